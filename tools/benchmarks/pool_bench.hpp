// Sub-benchmarks of the pool as a whole system; results are JSON on standard output.
#pragma once

#include <string>

#include "shoal/result.hpp"

namespace shoal::bench {

/// No-op round trip of 1 KB, compared with the bare echo in `rounds` interleaved rounds: the best p50 of each, and their ratio.
/// Also the bytes that the supervisor reads per request of 1 KB and of 600 KB.
Status bench_roundtrip(int rounds);
/// Requests per second with many unanswered, compared with the bare broker with the same credits.
Status bench_pipelined(int rounds);
/// System calls per request of client, supervisor and worker, for one request at a time and for many unanswered ones.
///   Errors  those of SyscallCount::of
Status bench_syscalls(int rounds);
/// The time from kill() of the only worker to the first answer of its replacement, `rounds` times.
Status bench_respawn(int rounds, const std::string& model);

/// The cost of the pool beyond the executor: `model` (a directory with model.toml, one float32 input "data") at batch 1 and width
/// 1 in a pool, compared with the same checkpoint in this process; also two workers compared with one. `rounds` interleaved
/// rounds.
///   Errors  those of loading and of predictions
Status bench_pool(int rounds, const std::string& model);

struct LoadOptions {
  std::string model;
  int requests = 100;
  int window = 1;       ///< unanswered requests
  int each_worker = 0;  ///< go on until every worker has answered this many
};
/// Submits zeros to a model of the daemon in $SHOAL_DIR. Prints latencies and compute times.
Status bench_load(const LoadOptions& options);

}  // namespace shoal::bench
