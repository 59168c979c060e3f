// The daemon's doors: who stands in them, or runs against them, hinders nobody else.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <thread>

#include "tests/integration/raw_client.hpp"
#include "tests/support/pool_fixture.hpp"

namespace shoal::test {
namespace {

constexpr std::size_t kSilent = 2000;
constexpr double kAllowedRatio = 1.5;
constexpr double kNoiseMs = 1;  // of a p99 on a machine with others on it

std::size_t descriptors_of(pid_t pid) {
  const std::filesystem::directory_iterator entries("/proc/" + std::to_string(pid) + "/fd");
  return static_cast<std::size_t>(std::distance(begin(entries), end(entries)));
}

double p99_ms(Pool& pool) {
  const Tensor input = counting({4});
  std::vector<double> times;
  for (int i = 0; i < 1000; ++i) {
    const auto start = std::chrono::steady_clock::now();
    EXPECT_TRUE(pool.predict("echo", {{"data", input}}).ok());
    times.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
  }
  std::ranges::sort(times);
  return times[times.size() * 99 / 100];
}

TEST(Doors, ConnectionsThatSayNothingCostOthersNothing) {
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_cur = limit.rlim_max;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  if (limit.rlim_cur < 2 * kSilent) GTEST_SKIP() << "too few descriptors here: " << limit.rlim_cur;
  DaemonFixture daemon;
  Pool pool = daemon.connect();
  (void)p99_ms(pool);
  const std::size_t at_first = descriptors_of(daemon.pid());
  std::vector<double> quiet, crowded;
  std::size_t most = 0;
  for (int round = 0; round < 3; ++round) {
    quiet.push_back(p99_ms(pool));
    std::vector<std::unique_ptr<RawClient>> silent;
    for (std::size_t i = 0; i < kSilent; ++i) {
      silent.push_back(std::make_unique<RawClient>(daemon.directory()));
      silent.back()->connect();
    }
    crowded.push_back(p99_ms(pool));
    most = std::max(most, descriptors_of(daemon.pid()));
    // They are put out by themselves.
    EXPECT_TRUE(eventually([&] { return descriptors_of(daemon.pid()) <= at_first + 2; })) << descriptors_of(daemon.pid());
  }
  const double alone = std::ranges::min(quiet), beside = std::ranges::min(crowded);  // noise only adds
  EXPECT_LE(beside, std::max(kAllowedRatio * alone, alone + kNoiseMs));
  EXPECT_GT(most, at_first + kSilent / 10);  // they were there
  EXPECT_LE(most, at_first + 2 * kSilent);   // a socket and a pidfd each
  std::printf("p99 %.3f ms alone, %.3f ms beside %zu silent connections\n", alone, beside, kSilent);
}

}  // namespace
}  // namespace shoal::test
