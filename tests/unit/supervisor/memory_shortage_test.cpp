#include "supervisor/plane/memory_shortage.hpp"

#include <gtest/gtest.h>

namespace shoal::supervisor {
namespace {

constexpr std::uint64_t kMilli = 1'000'000, kMb = 1 << 20, kMost = 100 * kMb, kStart = 5000 * kMilli;

TEST(MemoryShortage, OneLookIsNotEnough) {
  MemoryShortage shortage;
  EXPECT_FALSE(shortage.look(kMost + 1, kMost, kStart));
  EXPECT_TRUE(shortage.is_short());
  EXPECT_FALSE(shortage.look(kMost, kMost, kStart + 10 * kMilli)) << "it was short for a moment";
  EXPECT_FALSE(shortage.is_short());
  EXPECT_FALSE(shortage.look(kMost + 1, kMost, kStart + 20 * kMilli));
  EXPECT_TRUE(shortage.look(kMost + 1, kMost, kStart + 30 * kMilli));
}

TEST(MemoryShortage, AfterADisconnectTheMemoryHasTimeToBeFreed) {
  MemoryShortage shortage;
  (void)shortage.look(3 * kMost, kMost, kStart);
  ASSERT_TRUE(shortage.look(3 * kMost, kMost, kStart + 10 * kMilli));
  shortage.put_out();
  EXPECT_FALSE(shortage.look(3 * kMost - kMb, kMost, kStart + 20 * kMilli)) << "it is being freed";
  EXPECT_FALSE(shortage.look(3 * kMost - 2 * kMb, kMost, kStart + 30 * kMilli)) << "it is being freed";
  EXPECT_TRUE(shortage.look(3 * kMost, kMost, kStart + 40 * kMilli)) << "it grows again: another client holds it";
}

TEST(MemoryShortage, AClientThatFinishesMessagesDoesNotHoldIt) {
  MemoryShortage shortage;
  EXPECT_FALSE(shortage.may_hold(0, true, kStart)) << "nothing is short";
  (void)shortage.look(kMost + 1, kMost, kStart);
  (void)shortage.look(kMost + 1, kMost, kStart + 10 * kMilli);
  EXPECT_TRUE(shortage.may_hold(kStart - 1, true, kStart + 10 * kMilli));
  EXPECT_FALSE(shortage.may_hold(kStart, true, kStart + 10 * kMilli)) << "it has finished a message";
  EXPECT_FALSE(shortage.may_hold(kStart + 4500 * kMilli, true, kStart + 5000 * kMilli)) << "it goes on finishing messages";
  EXPECT_FALSE(shortage.may_hold(kStart + 4500 * kMilli, false, kStart + 5000 * kMilli));
}

TEST(MemoryShortage, AClientThatFinishedOneMessageMayHoldItLater) {
  MemoryShortage shortage;
  (void)shortage.look(kMost + 1, kMost, kStart);
  const std::uint64_t last = kStart + 20 * kMilli;
  EXPECT_FALSE(shortage.may_hold(last, true, last + 999 * kMilli));
  EXPECT_TRUE(shortage.may_hold(last, true, last + 1000 * kMilli));
  EXPECT_TRUE(shortage.may_hold(last, false, last + 1000 * kMilli));
}

TEST(MemoryShortage, SilentClientsMayHoldItWhenItLastsForASecond) {
  MemoryShortage shortage;
  (void)shortage.look(kMost + 1, kMost, kStart);
  EXPECT_FALSE(shortage.may_hold(kStart - 1, false, kStart + 999 * kMilli));
  EXPECT_TRUE(shortage.may_hold(kStart - 1, false, kStart + 1000 * kMilli));
}

TEST(MemoryShortage, WhileItGrowsSilentClientsAreNotTheCause) {
  MemoryShortage shortage;
  (void)shortage.look(kMost + 1, kMost, kStart);
  (void)shortage.look(kMost + 2 * kMb, kMost, kStart + 500 * kMilli);
  (void)shortage.look(kMost + 52 * kMb, kMost + 50 * kMb, kStart + 600 * kMilli);  // a finished message came
  EXPECT_TRUE(shortage.includes_silent(kStart + 1000 * kMilli)) << "that is no growth";
  (void)shortage.look(kMost + 6 * kMb, kMost, kStart + 900 * kMilli);
  EXPECT_FALSE(shortage.includes_silent(kStart + 1899 * kMilli)) << "whoever holds that has finished a message before";
  EXPECT_TRUE(shortage.includes_silent(kStart + 1900 * kMilli));
  std::uint64_t heap = kMost + 6 * kMb, now = kStart + 900 * kMilli;
  for (; now < kStart + 3000 * kMilli; now += 500 * kMilli) (void)shortage.look(heap += 5 * kMb, kMost, now);
  EXPECT_FALSE(shortage.includes_silent(kStart + 2999 * kMilli));
  EXPECT_TRUE(shortage.includes_silent(kStart + 3000 * kMilli)) << "it cannot go on like this";
}

TEST(MemoryShortage, TheNextLookComesBeforeMemoryCanBeShort) {
  EXPECT_EQ(MemoryShortage::pause_ns(0, 8'000'000'000), 1000 * kMilli);
  EXPECT_EQ(MemoryShortage::pause_ns(0, 400'000'000), 100 * kMilli);
  EXPECT_EQ(MemoryShortage::pause_ns(399'999'999, 400'000'000), 10 * kMilli);
  EXPECT_EQ(MemoryShortage::pause_ns(500'000'000, 400'000'000), 10 * kMilli);
}

}  // namespace
}  // namespace shoal::supervisor
