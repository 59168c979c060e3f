// The effect of a model's reloads on clients of other models.
#pragma once

#include <string>

#include "shoal/result.hpp"

namespace shoal::bench {

struct ReloadOptions {
  std::string path;      ///< a directory with model.toml, one input; used for both models
  double seconds = 30;   ///< with reloads, all rounds together
  int rounds = 6;        ///< each without and then with reloads
  double every_s = 0.5;  ///< seconds between starts of reloads, or more if a reload takes longer
};

/// The latency of a client of one model with one request at a time, while another client uses a second model of the same daemon.
/// In turns, the second model is left alone or reloaded all the time. Prints JSON.
///   Errors  those of every request and reload
Status bench_reload(const ReloadOptions& options);

}  // namespace shoal::bench
