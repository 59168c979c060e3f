#include "worker/exec/memory_plan.hpp"

#include <gtest/gtest.h>

#include <random>

namespace shoal::worker {
namespace {

bool overlap(const MemoryPlan& plan, std::span<const Interval> intervals, std::size_t a, std::size_t b) {
  return plan.offsets[a] < plan.offsets[b] + intervals[b].bytes && plan.offsets[b] < plan.offsets[a] + intervals[a].bytes;
}

TEST(MemoryPlan, NeverOverlapsWhatIsAliveTogether) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<Interval> intervals;
    for (int i = 0; i < 40; ++i) {
      const int first = static_cast<int>(random() % 30);
      intervals.push_back({random() % 5000 + 1, first, first + static_cast<int>(random() % 6)});
    }
    const MemoryPlan plan = plan_memory(intervals);
    for (std::size_t a = 0; a < intervals.size(); ++a) {
      EXPECT_EQ(plan.offsets[a] % 64, 0U);
      EXPECT_LE(plan.offsets[a] + intervals[a].bytes, plan.total_bytes);
      for (std::size_t b = 0; b < a; ++b) {
        const bool together = intervals[a].first <= intervals[b].last && intervals[b].first <= intervals[a].last;
        EXPECT_FALSE(together && overlap(plan, intervals, a, b)) << "intervals " << a << " and " << b << " of round " << round;
      }
    }
  }
}

TEST(MemoryPlan, UsesTheMemoryOfTheDead) {
  const Interval chain[] = {{1024, 0, 1}, {1024, 1, 2}, {1024, 2, 3}, {1024, 3, 4}};
  EXPECT_EQ(plan_memory(chain).total_bytes, 2048U);
}

TEST(MemoryPlan, IsTheSameForEqualInput) {
  const Interval intervals[] = {{100, 0, 3}, {100, 1, 2}, {300, 2, 4}, {100, 4, 5}};
  EXPECT_EQ(plan_memory(intervals).offsets, plan_memory(intervals).offsets);
}

}  // namespace
}  // namespace shoal::worker
