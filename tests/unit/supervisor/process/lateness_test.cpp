#include "supervisor/process/lateness.hpp"

#include <gtest/gtest.h>

namespace shoal::supervisor {
namespace {

class LatenessTest : public testing::Test {
 protected:
  static constexpr std::uint64_t kMs = 1'000'000, kStart = 1000 * kMs;
  Lateness lateness_;
};

TEST_F(LatenessTest, ALoopThatTurnsInTimeIsNotLate) {
  EXPECT_EQ(lateness_.turn(kStart, 100 * kMs), 0u) << "the first turn";
  EXPECT_EQ(lateness_.turn(kStart + 50 * kMs, 100 * kMs), 0u) << "something happened";
  EXPECT_EQ(lateness_.turn(kStart + 150 * kMs, 100 * kMs), 0u);
  EXPECT_EQ(lateness_.turn(kStart + 250 * kMs + Lateness::kLateNs, 100 * kMs), 0u) << "on a busy machine";
}

TEST_F(LatenessTest, AStandstillIsTheWholeTimeSinceTheLastTurn) {
  (void)lateness_.turn(kStart, 100 * kMs);
  EXPECT_EQ(lateness_.turn(kStart + 5000 * kMs, 100 * kMs), 5000 * kMs) << "while it waited";
  EXPECT_EQ(lateness_.turn(kStart + 5100 * kMs, 100 * kMs), 0u);
  EXPECT_EQ(lateness_.turn(kStart + 8100 * kMs, 0), 3000 * kMs) << "in the middle of a turn";
}

TEST_F(LatenessTest, WithoutADeadlineNothingIsLate) {
  (void)lateness_.turn(kStart, 100 * kMs);
  EXPECT_EQ(lateness_.turn(kStart + 5000 * kMs, std::nullopt), 0u);
  EXPECT_EQ(Lateness::next_turn_ns(std::nullopt, kStart), std::nullopt);
}

TEST_F(LatenessTest, TheLoopTurnsOftenEnoughToNotice) {
  EXPECT_EQ(Lateness::next_turn_ns(kStart + kMs, kStart), kStart + kMs);
  EXPECT_EQ(Lateness::next_turn_ns(kStart + 60'000 * kMs, kStart), kStart + Lateness::kLongestWaitNs);
}

}  // namespace
}  // namespace shoal::supervisor
