#include "supervisor/repository/available_memory.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace shoal::supervisor {
namespace {

constexpr std::uint64_t kMs = 1'000'000;

// Each began to wait at another time.
TEST(AvailableMemory, IsReadOnceAtATimeForAHundredVersionsThatWait) {
  int reads = 0;
  AvailableMemory memory([&] { return std::uint64_t(++reads); });
  std::vector<std::uint64_t> looks_ns;
  for (std::uint64_t i = 0; i < 100; ++i) {
    const std::uint64_t now_ns = 5'000 * kMs + i * 3 * kMs;
    EXPECT_EQ(memory.bytes(now_ns), i + 1) << "what has changed is seen";
    looks_ns.push_back(AvailableMemory::next_look_ns(now_ns));
    EXPECT_GT(looks_ns.back(), now_ns);
    EXPECT_LE(looks_ns.back(), now_ns + AvailableMemory::kLookAgainNs);
  }
  reads = 0;
  std::uint64_t looks = 0;
  while (true) {
    const std::uint64_t now_ns = *std::ranges::min_element(looks_ns);
    if (now_ns >= 7'000 * kMs) break;
    for (std::uint64_t& look_ns : looks_ns) {
      if (look_ns > now_ns) continue;
      (void)memory.bytes(now_ns);
      ++looks;
      look_ns = AvailableMemory::next_look_ns(now_ns);
    }
  }
  EXPECT_GT(looks, 1'500u);
  EXPECT_LE(reads, 20) << "ten times a second";
}

}  // namespace
}  // namespace shoal::supervisor
