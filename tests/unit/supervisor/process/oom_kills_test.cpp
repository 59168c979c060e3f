#include "supervisor/process/oom_kills.hpp"
#include "tests/support/scratch_directory.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>

namespace shoal::supervisor {
namespace {

namespace fs = std::filesystem;
constexpr std::uint64_t kSecond = 1'000'000'000;

class OomKillsTest : public testing::Test {
 protected:
  const test::ScratchDirectory root_;
};

TEST_F(OomKillsTest, ReadsTheGroupsCountWhereThereIsOneElseTheMachines) {
  EXPECT_EQ(OomKills(root_.path()).file(), "");
  EXPECT_FALSE(OomKills(root_.path()).take_recent(kSecond));
  root_.write("proc/vmstat", "nr_free_pages 5\noom_kill 3\n");
  EXPECT_EQ(OomKills(root_.path()).file(), root_.path("proc/vmstat"));
  root_.write("proc/self/cgroup", "9:name=systemd:/\n4:memory:/a/b\n0::/c\n");
  EXPECT_EQ(OomKills(root_.path()).file(), root_.path("proc/vmstat"));
  root_.write("sys/fs/cgroup/memory/a/b/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n");
  EXPECT_EQ(OomKills(root_.path()).file(), root_.path("sys/fs/cgroup/memory/a/b/memory.oom_control"));
  root_.write("proc/self/cgroup", "0::/c\n");
  root_.write("sys/fs/cgroup/memory.events", "low 0\noom 1\noom_kill 1\n");  // the mount's root is the container's group
  EXPECT_EQ(OomKills(root_.path()).file(), root_.path("sys/fs/cgroup/memory.events"));
  root_.write("sys/fs/cgroup/c/memory.events", "oom_kill 0\n");
  EXPECT_EQ(OomKills(root_.path()).file(), root_.path("sys/fs/cgroup/c/memory.events"));
}

TEST_F(OomKillsTest, EachKillIsTakenOnce) {
  root_.write("proc/vmstat", "oom_kill 3\n");
  OomKills kills(root_.path());
  EXPECT_FALSE(kills.take_recent(kSecond));
  root_.write("proc/vmstat", "oom_kill 5\n");
  EXPECT_TRUE(kills.take_recent(kSecond));
  EXPECT_TRUE(kills.take_recent(kSecond));
  EXPECT_FALSE(kills.take_recent(kSecond));
}

TEST_F(OomKillsTest, AKillThatWasCountedMomentsAgoIsStillRecentOneOfLongAgoIsNot) {
  root_.write("proc/vmstat", "oom_kill 0\n");
  OomKills kills(root_.path());
  kills.count(10 * kSecond);
  root_.write("proc/vmstat", "oom_kill 1\n");
  kills.count(11 * kSecond);  // its victim is still going
  EXPECT_TRUE(kills.take_recent(12 * kSecond));
  root_.write("proc/vmstat", "oom_kill 2\n");
  kills.count(13 * kSecond);
  kills.count(14 * kSecond);
  EXPECT_FALSE(kills.take_recent(15 * kSecond));
  root_.write("proc/vmstat", "oom_kill 3\n");
  kills.count(16 * kSecond);
  EXPECT_FALSE(kills.take_recent(100 * kSecond));
}

}  // namespace
}  // namespace shoal::supervisor
