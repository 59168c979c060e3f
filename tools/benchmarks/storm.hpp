// A storm: many client threads at a model of the daemon of $SHOAL_DIR while its workers are killed at random.
#pragma once

#include <string>

#include "shoal/result.hpp"

namespace shoal::bench {

struct StormOptions {
  std::string model;
  double seconds = 10;
  int threads = 20;
  int kill_every_ms = 100;  ///< 0: no kills
};

/// Every thread submits its own input again and again and compares each answer with the quiet one, byte for byte. A live line on
/// a terminal counts; the result is JSON on standard output.
///   Errors  kInternal when an answer was lost, wrong, or an error
Status run_storm(const StormOptions& options);

}  // namespace shoal::bench
