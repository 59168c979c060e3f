// The memory plan: where in the arena each piece of memory lies, so that those alive together never overlap.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace shoal::worker {

/// A piece of memory that must exist from step `first` to step `last`, both included.
struct Interval {
  std::size_t bytes = 0;
  int first = 0, last = 0;
};

struct MemoryPlan {
  std::vector<std::size_t> offsets;  ///< one per interval, 64-byte aligned
  std::size_t total_bytes = 0;
};

/// Greedy by size: the largest first, each at the lowest offset where nothing alive at the same time lies. Deterministic.
MemoryPlan plan_memory(std::span<const Interval> intervals);

}  // namespace shoal::worker
