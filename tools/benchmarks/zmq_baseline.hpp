// Bare ZeroMQ systems to compare the pool with: three processes that only forward messages.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace shoal::bench {

struct BaselineOptions {
  std::size_t request_bytes = 264;  ///< a request frame with one input and one output
  std::size_t reply_bytes = 168;    ///< a reply frame with one output
  int requests = 20'000;
  int window = 1;    ///< the client's unanswered requests
  int credits = 64;  ///< the worker's unanswered requests
};

struct BaselineRun {
  std::vector<double> round_trips_us;
  double seconds = 0;  ///< from the first counted submission to the last answer
};

/// Forks a broker (ROUTER towards the client, ROUTER towards the worker, connecting to both as the supervisor does) and an
/// echoing worker, drives them from this process over ipc sockets in `directory`, and returns the round trip of each request.
BaselineRun run_baseline(const std::string& directory, const BaselineOptions& options);

}  // namespace shoal::bench
