// The operators that the device cpu runs by kernels of Shoal, beside their oracle kernels.
#pragma once

#include "shoal/result.hpp"

namespace shoal::bench {

struct KernelBenchOptions {
  int rounds = 7;
  int threads = 1;
};

/// Runs models of one node on `cpu` and on `cpu-reference`, in turns, and prints a JSON array: processor time of the best run of
/// each, in ms, and their ratio.
///   Errors  those of Model::load() and of running
Status bench_kernels(const KernelBenchOptions& options);

}  // namespace shoal::bench
