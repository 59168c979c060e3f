#include "worker/exec/memory_plan.hpp"

#include <gtest/gtest.h>
#include <time.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/sanitizers.hpp"

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

/// The greedy plan by a plain search: every piece looks at all pieces before it.
MemoryPlan plain_search(const std::vector<Interval>& intervals) {
  std::vector<std::size_t> by_size(intervals.size()), placed;
  std::iota(by_size.begin(), by_size.end(), std::size_t{0});
  std::ranges::stable_sort(by_size, std::ranges::greater(), [&](std::size_t i) { return intervals[i].bytes; });
  const auto round_up = [](std::size_t bytes) { return (bytes + kTensorAlignment - 1) / kTensorAlignment * kTensorAlignment; };
  MemoryPlan plan;
  plan.offsets.resize(intervals.size());
  for (const std::size_t index : by_size) {
    std::size_t& offset = plan.offsets[index];
    for (bool is_moved = true; is_moved;) {
      is_moved = false;
      for (const std::size_t other : placed) {
        const Interval &a = intervals[index], &b = intervals[other];
        if (a.first > b.last || b.first > a.last || !overlap(plan, intervals, index, other)) continue;
        offset = round_up(plan.offsets[other] + b.bytes);
        is_moved = true;
      }
    }
    plan.total_bytes = std::max(plan.total_bytes, round_up(offset + intervals[index].bytes));
    placed.push_back(index);
  }
  return plan;
}

/// `count` pieces of which each is alive for up to `life` steps.
std::vector<Interval> pieces(int count, int life, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<Interval> made;
  for (int step = 0; step < count; ++step) {
    const int last = step + static_cast<int>(random() % static_cast<unsigned>(life));
    made.push_back({random() % 5000 + 1, step, std::min(last, count - 1)});
  }
  return made;
}

TEST(MemoryPlan, IsThatOfAPlainSearch) {
  for (const int life : {2, 30, 700, 3000}) {
    const std::vector<Interval> intervals = pieces(1500, life, static_cast<unsigned>(life));
    const MemoryPlan plan = plan_memory(intervals), wanted = plain_search(intervals);
    EXPECT_EQ(plan.offsets, wanted.offsets) << life;
    EXPECT_EQ(plan.total_bytes, wanted.total_bytes) << life;
  }
}

double processor_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// A model of 20 000 nodes is planned once per set of shapes.
TEST(MemoryPlan, OfManyStepsTakesLittleTime) {
  constexpr double kLimitSeconds = test::kSanitized ? 5 : 0.5;
  for (const auto& [name, life] : {std::pair("a chain", 2), std::pair("values that live long", 30)}) {
    const std::vector<Interval> intervals = pieces(20'000, life, 7);
    const double start = processor_seconds();
    EXPECT_GT(plan_memory(intervals).total_bytes, 0u);
    EXPECT_LT(processor_seconds() - start, kLimitSeconds) << name;
  }
}

TEST(MemoryPlan, ReusesTheMemoryOfFinishedIntervals) {
  const Interval chain[] = {{1024, 0, 1}, {1024, 1, 2}, {1024, 2, 3}, {1024, 3, 4}};
  EXPECT_EQ(plan_memory(chain).total_bytes, 2048U);
}

TEST(MemoryPlan, IsTheSameForEqualInput) {
  const Interval intervals[] = {{100, 0, 3}, {100, 1, 2}, {300, 2, 4}, {100, 4, 5}};
  EXPECT_EQ(plan_memory(intervals).offsets, plan_memory(intervals).offsets);
}

}  // namespace
}  // namespace shoal::worker
