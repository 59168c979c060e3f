#include "worker/zygote/process.hpp"

#include <grp.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <numeric>
#include <thread>
#include <vector>

#include "tests/support/child_process.hpp"
#include "worker/engine/thread_settings.hpp"

namespace shoal::worker {
namespace {

TEST(Process, CountsItsThreads) {
  const int before = count_threads().value();
  std::atomic<bool> is_over{false};
  std::jthread other([&] {
    while (!is_over) std::this_thread::yield();
  });
  EXPECT_EQ(count_threads().value(), before + 1);
  is_over = true;
}

TEST(Process, CountsItsThreadsHoweverManyGroupsItHas) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root chooses its groups";
  const auto counts_one = [] {
    std::vector<gid_t> groups(1000);
    std::iota(groups.begin(), groups.end(), gid_t{2'000'000'000});  // 11 bytes each in /proc/self/status, before the threads
    if (::setgroups(groups.size(), groups.data()) != 0) return 2;
    const auto threads = count_threads();
    return threads.ok() && *threads == 1 ? 0 : 1;
  };
  EXPECT_EQ(test::exit_code_of(counts_one), 0);
}

TEST(ProcessTitle, IsCutToTheRoomThatThereIsAndLeavesWhatFollowsAlone) {
  char memory[] = "worker\0--zygote\0003\0HOME=/root";
  char* argv[] = {memory, memory + 7, memory + 16};
  ProcessTitle title(3, argv);
  title.set("shoal-test", "a model with a long name");
  EXPECT_STREQ(memory, "shoal-test a mode");
  EXPECT_STREQ(memory + 18, "HOME=/root");
}

}  // namespace
}  // namespace shoal::worker
