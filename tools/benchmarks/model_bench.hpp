// One model in this process: run on demand, for what tools/bench interleaves with other engines; or profiled step by step.
#pragma once

#include <string>

#include "shoal/result.hpp"

namespace shoal::bench {

struct ModelBenchOptions {
  std::string path;   ///< checkpoint, as `shoal run` takes it
  std::string shape;  ///< "data=1,3,224,224"
  std::string device = "cpu";
  int threads = 1;
  std::string precision = "f32";
  int tuning_ms = 10'000;  ///< budget for measuring algorithms, as in model.toml; 0: the device's guess
};

/// Loads the model and obeys lines on standard input until it closes, answering each with one line:
///   input FILE   takes the input from an .npy file          -> "ok"
///   run [N]      N runs, or one                             -> their wall times in milliseconds
///   output FILE  writes the first output as .npy            -> "ok"
///   threads      threads this process has, load until now   -> their number
///   tuning       where the choice of algorithms comes from  -> "off", "packed L", "record L", "measured L in 1234 ms" (L: the
///   layout), "failed: why"
/// Errors: the Status of loading or of a command.
Status serve_model(const ModelBenchOptions& options);

struct ProfileOptions {
  int runs = 20;
  bool json = false;
};
/// Loads the model, runs it on zeros and prints, per step, the best time seen beside the time that this machine's arithmetic or
/// memory would need for it at least. The longest first, then the sum per implementation and the total.
Status profile_model(const ModelBenchOptions& options, const ProfileOptions& profile);

}  // namespace shoal::bench
