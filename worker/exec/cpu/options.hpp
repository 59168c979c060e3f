// The options of the backend `cpu` alone.
#pragma once

#include <cstddef>

#include "worker/exec/choices.hpp"

namespace shoal::worker::cpu {

/// The cache of a core, as assumed: a larger batch may run image by image. Not measured, so that machines compile alike.
inline constexpr std::size_t kCoreCacheBytes = std::size_t{1} << 20;

struct Options {
  int threads = 1;  ///< OpenMP's width: baked into every primitive when it is created
  bool fuse = true;
  Precision precision = Precision::kF32;  ///< of the variants, and of results without a choice; kAuto then counts as kF32
  std::size_t core_cache_bytes = kCoreCacheBytes;
};

}  // namespace shoal::worker::cpu
