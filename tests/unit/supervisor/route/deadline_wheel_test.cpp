#include "supervisor/route/deadline_wheel.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace shoal::supervisor {
namespace {

TEST(DeadlineWheel, FiresWhenDueAndNotBefore) {
  constexpr std::uint64_t kStart = 5'000'000'000;
  DeadlineWheel wheel;
  std::vector<std::uint32_t> due;
  wheel.advance(kStart, due);
  wheel.add(3, kStart + 30'000'000'000);  // many turns of the wheel away
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

}  // namespace
}  // namespace shoal::supervisor
