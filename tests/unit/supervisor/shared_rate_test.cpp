#include "supervisor/plane/shared_rate.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace shoal::supervisor {
namespace {

constexpr std::uint64_t kRateMs = 1'000'000, kRateMb = 1 << 20, kRateAll = 64 * kRateMb, kRateStart = 5'000 * kRateMs;

// Each of them is within its own limit.
TEST(SharedRate, ManyProcessesTogetherHaveOneLimitAndLeaveSomethingForAnother) {
  SharedRate rate(kRateAll);
  std::vector<RateShare> greedy(200);
  RateShare other;
  std::uint64_t of_greedy = 0;
  int others_answers = 0;
  for (std::uint64_t now = kRateStart; now < kRateStart + 1'000 * kRateMs; now += 10 * kRateMs) {
    for (RateShare& process : greedy) {
      if (!rate.allows(process, now)) continue;
      rate.charge(process, kRateMb / 4, now);
      of_greedy += kRateMb / 4;
    }
    if ((now - kRateStart) % (100 * kRateMs) != 0) continue;
    ASSERT_TRUE(rate.allows(other, now)) << "after " << (now - kRateStart) / kRateMs << " ms, of " << rate.used();
    rate.charge(other, 10'000, now);
    ++others_answers;
  }
  EXPECT_EQ(others_answers, 10);
  EXPECT_LE(of_greedy, kRateAll);
  EXPECT_FALSE(rate.allows(greedy.front(), kRateStart + 990 * kRateMs));
  EXPECT_GT(of_greedy, kRateAll / 2) << "and not much less";
}

TEST(SharedRate, OneProcessAloneMayHaveAllOfIt) {
  SharedRate rate(kRateAll);
  RateShare process;
  std::uint64_t bytes = 0;
  for (; rate.allows(process, kRateStart); bytes += kRateMb) rate.charge(process, kRateMb, kRateStart);
  EXPECT_GE(bytes, 32 * kRateMb) << "its own limit comes first";
  EXPECT_FALSE(rate.allows(process, kRateStart + 999 * kRateMs));
  EXPECT_LE(rate.wait_ms(kRateStart + 999 * kRateMs), 2u);
  EXPECT_TRUE(rate.allows(process, kRateStart + 1'000 * kRateMs)) << "a new second";
}

// Else a process that once had much would wait for ever, while two others use half of each second.
TEST(SharedRate, AProcessThatHadMuchIsServedAgain) {
  SharedRate rate(1000);
  RateShare victim, others[2];
  rate.charge(victim, 1000, 0);
  int served = 0;
  for (std::uint64_t second = 1; second <= 320; ++second) {
    const std::uint64_t now_ns = second * SharedRate::kPeriodNs;
    for (RateShare& other : others) rate.charge(other, 300, now_ns);
    if (!rate.allows(victim, now_ns)) continue;
    ++served;
    rate.charge(victim, 390, now_ns);
  }
  EXPECT_GE(served, 4);
}

TEST(SharedRate, AHugeAnswerKeepsNobodyElseFromAsking) {
  SharedRate rate(kRateAll);
  RateShare greedy, other, third;
  ASSERT_TRUE(rate.allows(greedy, kRateStart));
  rate.charge(greedy, 40 * kRateMb, kRateStart);
  EXPECT_FALSE(rate.allows(greedy, kRateStart));
  EXPECT_TRUE(rate.allows(other, kRateStart));
  rate.charge(other, 40 * kRateMb, kRateStart);
  EXPECT_FALSE(rate.allows(third, kRateStart)) << "nothing is left";
  EXPECT_TRUE(rate.allows(third, kRateStart + 1'000 * kRateMs));
}

// As soon as it is known how long their answers are.
TEST(SharedRate, HoweverManyAskForMuchWhoAsksForLittleIsAnswered) {
  SharedRate rate(kRateAll);
  std::vector<RateShare> greedy(2'000);
  RateShare other;
  rate.charge(other, 10'000, kRateStart);
  for (std::uint64_t second = 0; second < 20; ++second) {
    const std::uint64_t now = kRateStart + second * 1'000 * kRateMs;
    for (RateShare& process : greedy) {
      if (rate.allows(process, now)) rate.charge(process, kRateMb / 4, now);
    }
    if (second < 17) continue;  // the last of them has had its first answer
    EXPECT_TRUE(rate.allows(other, now)) << second;
    EXPECT_LE(rate.used(), kRateAll / 2 + kRateMb);
  }
}

}  // namespace
}  // namespace shoal::supervisor
