// The memory plan: where each piece of memory lies in the arena. Pieces that are alive together never overlap.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace shoal::worker {

/// Alignment of every tensor in an arena: a cache line, and the widest vector.
inline constexpr std::size_t kTensorAlignment = 64;

/// A piece of memory that is alive from step `first` to step `last`, both included.
struct Interval {
  std::size_t bytes = 0;
  int first = 0, last = 0;
};

struct MemoryPlan {
  std::vector<std::size_t> offsets;  ///< one per interval, multiples of kTensorAlignment
  std::size_t total_bytes = 0;
};

/// Greedy by size: places the largest piece first, each at the lowest free offset. Deterministic.
MemoryPlan plan_memory(std::span<const Interval> intervals);

}  // namespace shoal::worker
