#include <gtest/gtest.h>

#include "supervisor/route/deadline_wheel.hpp"
#include "supervisor/route/histogram.hpp"
#include "supervisor/route/request_queue.hpp"

namespace shoal::supervisor {
namespace {

TEST(RequestQueue, GivesTheHighestPriorityFirstAndTheRestInOrder) {
  SlotLinkTable table(8);
  RequestQueue queue;
  queue.push_back(table, 0, 0);
  queue.push_back(table, 1, 127);
  queue.push_back(table, 2, -128);
  queue.push_back(table, 3, 0);
  queue.push_front(table, 4, 0);
  std::vector<std::uint32_t> order;
  const std::int8_t priorities[] = {0, 127, -128, 0, 0};
  for (std::uint32_t slot = queue.front(); slot < std::size(priorities); slot = queue.front()) {
    order.push_back(slot);
    queue.remove(table, slot, priorities[slot]);
  }
  EXPECT_EQ(order, (std::vector<std::uint32_t>{1, 4, 0, 3, 2}));
  EXPECT_EQ(queue.front(), kNoSlot);
}

TEST(RequestQueue, RemovesFromTheMiddle) {
  SlotLinkTable table(3);
  RequestQueue queue;
  for (std::uint32_t slot = 0; slot < 3; ++slot) queue.push_back(table, slot, 1);
  queue.remove(table, 1, 1);
  queue.remove(table, 0, 1);
  EXPECT_EQ(queue.front(), 2u);
  EXPECT_EQ(queue.size(), 1u);
}

TEST(DeadlineWheel, FiresWhenDueAndNotBefore) {
  constexpr std::uint64_t kStart = 5'000'000'000;
  DeadlineWheel wheel;
  std::vector<std::uint32_t> due;
  wheel.advance(kStart, due);
  wheel.add(3, kStart + 30'000'000'000);  // many turns away
  wheel.add(4, kStart + 10'000'000);
  wheel.add(5, kStart - 1);  // due already
  std::uint64_t fired_at[6] = {};
  for (std::uint64_t now = kStart; now < kStart + 31'000'000'000; now += 1'000'000) {
    wheel.advance(now, due);
    for (const std::uint32_t slot : due) fired_at[slot] = now;
  }
  EXPECT_EQ(fired_at[5], kStart);
  EXPECT_GE(fired_at[4], kStart + 10'000'000);
  EXPECT_LE(fired_at[4], kStart + 10'000'000 + DeadlineWheel::kTickNs);
  EXPECT_GE(fired_at[3], kStart + 30'000'000'000);
  EXPECT_LE(fired_at[3], kStart + 30'000'000'000 + DeadlineWheel::kTickNs);
  EXPECT_FALSE(wheel.next_ns(kStart).has_value());
}

TEST(DeadlineWheel, SurvivesLongSleepsAndForgetsWhatIsRemoved) {
  DeadlineWheel wheel;
  std::vector<std::uint32_t> due;
  wheel.advance(1'000'000'000, due);
  for (std::uint32_t slot = 0; slot < 1000; ++slot) wheel.add(slot, 1'000'000'000 + slot * 7'000'000ull);
  wheel.remove(500);
  wheel.remove(500);
  wheel.advance(100'000'000'000, due);
  EXPECT_EQ(due.size(), 999u);
  EXPECT_EQ(std::count(due.begin(), due.end(), 500u), 0);
}

TEST(Histogram, QuantilesAreRightToAFewPercent) {
  Histogram histogram;
  for (std::uint64_t value = 1; value <= 100'000; ++value) histogram.add(value);
  EXPECT_NEAR(static_cast<double>(histogram.quantile(0.5)), 50'000, 3'500);
  EXPECT_NEAR(static_cast<double>(histogram.quantile(0.99)), 99'000, 7'000);
  histogram.add(~std::uint64_t{0});
  EXPECT_GT(histogram.quantile(1.0 - 1e-9), 1'000'000u);
}

}  // namespace
}  // namespace shoal::supervisor
