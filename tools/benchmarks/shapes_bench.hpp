// The effect of new input shapes on requests of a cached shape.
#pragma once

#include <string>

#include "shoal/result.hpp"

namespace shoal::bench {

struct ShapesOptions {
  std::string path;  ///< a checkpoint with one input of 1×3×H×W that takes any H and W
  std::string input = "data";
  int shapes = 500;
  int window = 4;    ///< new shapes requested at the same time
  int rounds = 5;    ///< each quiet and then busy
  int lowest = 64;   ///< the smallest H and W
  int cached = 128;  ///< H and W of the cached shape
  int contexts = 2;
  int cache_mb = 64;
};

/// One client sends requests of a cached shape all the time: in turns alone, beside another client of the same shape, and while a
/// stream of new shapes is compiled. Prints JSON: the latencies of the first client in the three phases, those of the new shapes,
/// the worker's memory and the program counters.
///   Errors  kInvalidArgument (fewer shapes than rounds)
Status bench_shapes(const ShapesOptions& options);

}  // namespace shoal::bench
