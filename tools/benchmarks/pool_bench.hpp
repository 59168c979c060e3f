// Sub-benchmarks of the pool as a whole system; results are JSON on standard output.
#pragma once

#include <string>

#include "shoal/result.hpp"

namespace shoal::bench {

/// No-op round trip of 1 KB beside the bare echo, `rounds` interleaved rounds; best p50 of each, and their ratio.
/// Also the bytes the supervisor reads per request of 1 KB and of 600 KB.
Status bench_roundtrip(int rounds);
/// Requests per second with many in flight, beside the bare broker with the same credits.
Status bench_pipelined(int rounds);
/// kill() of the only worker to the first answer of its replacement, `rounds` times, with the identity model.
Status bench_respawn(int rounds, const std::string& model);

/// What the pool costs on top of the executor: `model` (a directory with model.toml, one float32 input "data") at batch 1 and
/// width 1 through a pool beside the same checkpoint in this process, and two workers beside one; `rounds` interleaved rounds.
///   Errors  those of loading and of predictions
Status bench_pool(int rounds, const std::string& model);

struct LoadOptions {
  std::string model;
  int requests = 100;
  int window = 1;       ///< requests in flight
  int each_worker = 0;  ///< go on until every worker has answered so many
};
/// Submits zeros to a model of the daemon of $SHOAL_DIR; latencies and compute times.
Status bench_load(const LoadOptions& options);

}  // namespace shoal::bench
