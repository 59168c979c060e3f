// Clients that never pause, and the time of every one of their answers: Shoal's side of tools/bench timeline.
#pragma once

#include <string>

#include "shoal/result.hpp"

namespace shoal::bench {

struct TimelineOptions {
  std::string model;  ///< has one float32 input
  std::string input;  ///< an .npy file with that input
  double seconds = 20;
  int threads = 4;
  int timeout_ms = 5000;  ///< of each request
};

/// Each thread sends the same request to the daemon in $SHOAL_DIR, waits for its answer and sends the next one at once, also
/// after an error. Prints two lines of JSON:
///   {"output": [...]}        the first output's values, as soon as a first answer has come
///   {"requests": [...], "errors": {message: how often}}
///                            at the end. A request is [sent, wait, outcome]: seconds of CLOCK_MONOTONIC, milliseconds, and "ok",
///                            "error" or "wrong" (the output's bytes differ from those of the first answer)
///   Errors  those of connecting, of reading the file, and of the first request
Status run_timeline(const TimelineOptions& options);

}  // namespace shoal::bench
