// The pool under overload, and the gain of joining requests.
#pragma once

#include <string>

#include "shoal/result.hpp"

namespace shoal::bench {

struct OverloadOptions {
  std::string path;       ///< a directory with model.toml, one input
  int workers = 1;        ///< with one lane each
  double seconds = 60;    ///< of overload, all rounds together
  int rounds = 6;         ///< capacity and overload in turns
  double factor = 3;      ///< offered requests, as a multiple of the capacity just measured
  int deadline_ms = 100;  ///< of each request
};

/// Goodput: in turns, measures the closed-loop throughput and then offers `factor` times as many requests at random moments, with
/// deadlines. Fairness: in turns, measures the latency of a client with one request at a time beside a client that keeps all
/// lanes busy, and beside one that floods. Prints JSON. An answer is good if it comes at most 20 ms after its deadline.
Status bench_overload(const OverloadOptions& options);

/// Closed-loop throughput of `path` (one input, first dimension open) with max_batch = 1 and = `max_batch`, in turns. Prints
/// JSON.
Status bench_batching(const std::string& path, int max_batch, int rounds, double seconds);

}  // namespace shoal::bench
