#include "supervisor/process/lateness.hpp"

#include <gtest/gtest.h>

#include <optional>
#include <utility>

namespace shoal::supervisor {
namespace {

class LatenessTest : public testing::Test {
 protected:
  static constexpr std::uint64_t kMs = 1'000'000, kStart = 1000 * kMs;
  /// A turn that waited since `from_ns`; 0: since the last turn.
  std::uint64_t turn(std::uint64_t now_ns, std::optional<std::uint64_t> waited_ns, std::uint64_t from_ns = 0) {
    const std::uint64_t last_ns = std::exchange(last_ns_, now_ns);
    return lateness_.turn(now_ns, from_ns ? from_ns : last_ns, waited_ns);
  }
  Lateness lateness_;
  std::uint64_t last_ns_ = kStart;
};

TEST_F(LatenessTest, ALoopThatTurnsInTimeIsNotLate) {
  EXPECT_EQ(turn(kStart, 100 * kMs), 0u) << "the first turn";
  EXPECT_EQ(turn(kStart + 50 * kMs, 100 * kMs), 0u) << "something happened";
  EXPECT_EQ(turn(kStart + 150 * kMs, 100 * kMs), 0u);
  EXPECT_EQ(turn(kStart + 250 * kMs + Lateness::kLateNs, 100 * kMs), 0u) << "on a busy machine";
}

TEST_F(LatenessTest, AStandstillIsTheWholeTimeSinceTheLastTurn) {
  (void)turn(kStart, 100 * kMs);
  EXPECT_EQ(turn(kStart + 5000 * kMs, 100 * kMs), 5000 * kMs) << "while it waited";
  EXPECT_EQ(turn(kStart + 5100 * kMs, 100 * kMs), 0u);
  EXPECT_EQ(turn(kStart + 8100 * kMs, 0, kStart + 8100 * kMs), 3000 * kMs) << "in the middle of a turn";
  EXPECT_EQ(turn(kStart + 9000 * kMs, 0, kStart + 9000 * kMs), 0u) << "it had much to do";
}

TEST_F(LatenessTest, WithoutADeadlineNothingIsLate) {
  (void)turn(kStart, 100 * kMs);
  EXPECT_EQ(turn(kStart + 5000 * kMs, std::nullopt), 0u);
  EXPECT_EQ(Lateness::next_turn_ns(std::nullopt, kStart), std::nullopt);
}

TEST_F(LatenessTest, TheLoopTurnsOftenEnoughToNotice) {
  EXPECT_EQ(Lateness::next_turn_ns(kStart + kMs, kStart), kStart + kMs);
  EXPECT_EQ(Lateness::next_turn_ns(kStart + 60'000 * kMs, kStart), kStart + Lateness::kLongestWaitNs);
}

}  // namespace
}  // namespace shoal::supervisor
