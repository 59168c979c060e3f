// What the pool does when more is asked than it can do, and what joining requests gains.
#pragma once

#include <string>

#include "shoal/result.hpp"

namespace shoal::bench {

struct OverloadOptions {
  std::string path;       ///< a directory with model.toml, one input
  int workers = 1;        ///< of one lane
  double seconds = 60;    ///< of overload, all rounds together
  int rounds = 6;         ///< capacity and overload in turns
  double factor = 3;      ///< of the capacity just measured that is offered
  int deadline_ms = 100;  ///< of each request
};

/// Goodput: closed-loop throughput, then `factor` times as much offered at random moments with deadlines, in turns. Fairness: the
/// latency of a client with one request at a time beside one that keeps all lanes busy, and beside one that floods, in turns.
/// Prints JSON. An answer counts as good when it came before its deadline, and 20 ms.
Status bench_overload(const OverloadOptions& options);

/// Closed-loop throughput of `path` (one input, first dimension open) with max_batch = 1 and = `max_batch`, in turns. Prints
/// JSON.
Status bench_batching(const std::string& path, int max_batch, int rounds, double seconds);

}  // namespace shoal::bench
