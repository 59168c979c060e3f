#include "supervisor/plane/allowance.hpp"

#include <gtest/gtest.h>

namespace shoal::supervisor {
namespace {

constexpr std::uint64_t kSecond = 1'000'000'000;

// Messages that pass when one comes every `every_ns` during `during_ns` from `from_ns` on.
int passed(Allowance& allowance, const ClientLimits& limits, std::uint64_t from_ns, std::uint64_t during_ns,
           std::uint64_t every_ns) {
  int count = 0;
  for (std::uint64_t at_ns = from_ns; at_ns < from_ns + during_ns; at_ns += every_ns)
    count += allowance.take_turn(limits, at_ns).ok() ? 1 : 0;
  return count;
}

TEST(Allowance, AFloodPassesAtTheRateAndNoFaster) {
  const ClientLimits limits{.client_rate = 1000};
  Allowance allowance;
  EXPECT_NEAR(passed(allowance, limits, kSecond, kSecond, 10'000), 1250, 1);      // what was saved up, then the rate
  EXPECT_NEAR(passed(allowance, limits, 2 * kSecond, kSecond, 10'000), 1000, 1);  // nothing is saved now
  EXPECT_NEAR(passed(allowance, limits, 9 * kSecond, kSecond, 10'000), 1250, 1);  // and never more than that
  EXPECT_EQ(passed(allowance, limits, 20 * kSecond, kSecond, 2'000'000), 500);    // who asks less is not hindered
}

TEST(Allowance, ARefusalSaysWhenTheNextOnePasses) {
  const ClientLimits limits{.client_rate = 2};
  Allowance allowance;
  EXPECT_EQ(passed(allowance, limits, 60 * kSecond, 100, 1), 8) << "a command of the tools asks several things at once";
  const Status refused = allowance.take_turn(limits, 60 * kSecond);
  EXPECT_EQ(refused.code(), StatusCode::kOverloaded);
  EXPECT_NE(refused.message().find("client_rate"), std::string::npos);
  const std::uint64_t wait_ms = allowance.retry_after_ms(60 * kSecond);
  EXPECT_NEAR(static_cast<double>(wait_ms), 500, 1);
  EXPECT_TRUE(allowance.take_turn(limits, 60 * kSecond + wait_ms * 1'000'000).ok());
}

TEST(Allowance, BytesUnderWayAreLimited) {
  const ClientLimits limits{.client_message_mb = 1};
  Allowance allowance;
  allowance.add(1000);
  EXPECT_TRUE(allowance.check_room(limits, (1 << 20) - 1000).ok());
  const Status bytes = allowance.check_room(limits, (1 << 20) - 999);
  EXPECT_EQ(bytes.code(), StatusCode::kOverloaded);
  EXPECT_NE(bytes.message().find("client_message_mb"), std::string::npos);
  const Status too_large = allowance.check_room(limits, (1 << 20) + 1);
  EXPECT_EQ(too_large.code(), StatusCode::kInvalidArgument) << "waiting would not help";
  EXPECT_NE(too_large.message().find("client_message_mb"), std::string::npos);
  allowance.remove(1000);
  EXPECT_TRUE(allowance.check_room(limits, 1 << 20).ok());
}

TEST(Allowance, ZeroIsNoLimit) {
  const ClientLimits limits{.client_message_mb = 0, .client_rate = 0};
  Allowance allowance;
  allowance.add(std::uint64_t{1} << 40);
  EXPECT_TRUE(allowance.check_room(limits, std::uint64_t{1} << 40).ok());
  EXPECT_EQ(passed(allowance, limits, 0, 1000, 1), 1000);
}

}  // namespace
}  // namespace shoal::supervisor
