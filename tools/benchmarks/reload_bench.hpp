// What it costs the others when a model is loaded anew.
#pragma once

#include <string>

#include "shoal/result.hpp"

namespace shoal::bench {

struct ReloadOptions {
  std::string path;      ///< a directory with model.toml, one input: both models
  double seconds = 30;   ///< beside reloads, all rounds together
  int rounds = 6;        ///< quiet and beside reloads, in turns
  double every_s = 0.5;  ///< a reload begins so often, or when the last is over
};

/// Latency of a client of one model, with one request at a time, while another model of the same daemon is asked all the time:
/// left alone, and reloaded all the time, in turns. Prints JSON.
///   Errors  of any request and of any reload
Status bench_reload(const ReloadOptions& options);

}  // namespace shoal::bench
