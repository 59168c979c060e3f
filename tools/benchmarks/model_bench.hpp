// One model in this process: run on demand, so that tools/bench can interleave it with other engines, or profiled step by step.
#pragma once

#include <string>
#include <vector>

#include "shoal/result.hpp"

namespace shoal::bench {

struct ModelBenchOptions {
  std::string path;                 ///< the checkpoint, as for `shoal run`
  std::vector<std::string> shapes;  ///< of each input, in any order: "data=1,3,224,224"
  std::string device = "cpu";
  int threads = 1;
  std::string precision = "f32";
  int tuning_ms = 10'000;  ///< for measuring algorithms, as in model.toml; 0 = the device's default
};

/// Loads the model and executes the lines of standard input until its end. Answers each with one line:
///   input FILE   takes the input of shapes[0] from an .npy file  -> "ok"
///   inputs DIR   takes the inputs from DIR/0.npy, DIR/1.npy, ... in the order of `shapes`  -> "ok"
///   run [N]      N runs, or one                             -> their wall times in milliseconds
///   output FILE  writes the first output as .npy            -> "ok"
///   outputs DIR  writes all outputs as DIR/0.npy, DIR/1.npy, ...                           -> their number
///   threads      the threads of this process                -> their number
///   tuning       where the choice of algorithms comes from  -> "off", "packed L", "record L", "measured L in 1234 ms" or
///                                                             "failed: why"; L is the layout
///   Errors  those of loading and of the commands
Status serve_model(const ModelBenchOptions& options);

struct ProfileOptions {
  int runs = 20;
  bool json = false;
  std::string inputs;  ///< a directory, as for the command `inputs`; empty: zeros
};
/// Loads the model and runs it. Prints, for each step, its best time and the least time that this machine's arithmetic
/// or memory needs for it. The slowest step comes first; then sums per implementation and the total.
Status profile_model(const ModelBenchOptions& options, const ProfileOptions& profile);

}  // namespace shoal::bench
