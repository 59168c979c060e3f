// A storm: many client threads use a model of the daemon in $SHOAL_DIR while its workers are killed at random.
#pragma once

#include <string>

#include "shoal/result.hpp"

namespace shoal::bench {

struct StormOptions {
  std::string model;
  double seconds = 10;
  int threads = 20;
  int kill_every_ms = 100;  ///< 0 = no kills
};

/// Every thread repeats its own request and compares each answer, byte for byte, with the answer from before the kills. Shows
/// progress on a terminal. Prints the result as JSON.
///   Errors  kInternal (an answer was lost, wrong, or an error)
Status run_storm(const StormOptions& options);

}  // namespace shoal::bench
