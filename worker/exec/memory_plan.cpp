#include "worker/exec/memory_plan.hpp"

#include <algorithm>
#include <numeric>

#include "shm/base/ranges.hpp"

namespace shoal::worker {
namespace {

constexpr std::size_t kAlignment = 64;  // a cache line, and the widest vector

bool alive_together(const Interval& a, const Interval& b) { return a.first <= b.last && b.first <= a.last; }

}  // namespace

MemoryPlan plan_memory(std::span<const Interval> intervals) {
  std::vector<std::size_t> by_size(intervals.size());
  std::iota(by_size.begin(), by_size.end(), std::size_t{0});
  std::stable_sort(by_size.begin(), by_size.end(), [&](auto a, auto b) { return intervals[a].bytes > intervals[b].bytes; });

  MemoryPlan plan;
  plan.offsets.resize(intervals.size());
  std::vector<std::size_t> by_offset;  // those placed, in the order of their offsets
  for (const std::size_t index : by_size) {
    std::size_t offset = 0;
    for (const std::size_t other : by_offset) {
      if (!alive_together(intervals[index], intervals[other])) continue;
      if (plan.offsets[other] >= offset + intervals[index].bytes) break;  // fits into the gap before it
      offset = std::max(offset, static_cast<std::size_t>(align_up(plan.offsets[other] + intervals[other].bytes, kAlignment)));
    }
    plan.offsets[index] = offset;
    plan.total_bytes =
        std::max(plan.total_bytes, static_cast<std::size_t>(align_up(offset + intervals[index].bytes, kAlignment)));
    by_offset.insert(std::upper_bound(by_offset.begin(), by_offset.end(), index,
                                      [&](auto a, auto b) { return plan.offsets[a] < plan.offsets[b]; }),
                     index);
  }
  return plan;
}

}  // namespace shoal::worker
