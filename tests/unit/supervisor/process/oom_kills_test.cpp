#include "supervisor/process/oom_kills.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>

namespace shoal::supervisor {
namespace {

namespace fs = std::filesystem;
constexpr std::uint64_t kSecond = 1'000'000'000;

class OomKillsTest : public testing::Test {
 protected:
  OomKillsTest() {
    char name[] = "/tmp/shoal-test-XXXXXX";
    root_ = ::mkdtemp(name);
  }
  ~OomKillsTest() override { fs::remove_all(root_); }

  void write(const fs::path& file, const std::string& text) {
    fs::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text;
  }

  fs::path root_;
};

TEST_F(OomKillsTest, ReadsTheGroupsCountWhereThereIsOneElseTheMachines) {
  EXPECT_EQ(OomKills(root_).file(), "");
  EXPECT_FALSE(OomKills(root_).take_recent(kSecond));
  write("proc/vmstat", "nr_free_pages 5\noom_kill 3\n");
  EXPECT_EQ(OomKills(root_).file(), root_ / "proc/vmstat");
  write("proc/self/cgroup", "9:name=systemd:/\n4:memory:/a/b\n0::/c\n");
  EXPECT_EQ(OomKills(root_).file(), root_ / "proc/vmstat");
  write("sys/fs/cgroup/memory/a/b/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n");
  EXPECT_EQ(OomKills(root_).file(), root_ / "sys/fs/cgroup/memory/a/b/memory.oom_control");
  write("proc/self/cgroup", "0::/c\n");
  write("sys/fs/cgroup/memory.events", "low 0\noom 1\noom_kill 1\n");  // the mount's root is the container's group
  EXPECT_EQ(OomKills(root_).file(), root_ / "sys/fs/cgroup/memory.events");
  write("sys/fs/cgroup/c/memory.events", "oom_kill 0\n");
  EXPECT_EQ(OomKills(root_).file(), root_ / "sys/fs/cgroup/c/memory.events");
}

TEST_F(OomKillsTest, EachKillIsTakenOnce) {
  write("proc/vmstat", "oom_kill 3\n");
  OomKills kills(root_);
  EXPECT_FALSE(kills.take_recent(kSecond));
  write("proc/vmstat", "oom_kill 5\n");
  EXPECT_TRUE(kills.take_recent(kSecond));
  EXPECT_TRUE(kills.take_recent(kSecond));
  EXPECT_FALSE(kills.take_recent(kSecond));
}

TEST_F(OomKillsTest, AKillThatWasCountedMomentsAgoIsStillRecentOneOfLongAgoIsNot) {
  write("proc/vmstat", "oom_kill 0\n");
  OomKills kills(root_);
  kills.count(10 * kSecond);
  write("proc/vmstat", "oom_kill 1\n");
  kills.count(11 * kSecond);  // its victim is still going
  EXPECT_TRUE(kills.take_recent(12 * kSecond));
  write("proc/vmstat", "oom_kill 2\n");
  kills.count(13 * kSecond);
  kills.count(14 * kSecond);
  EXPECT_FALSE(kills.take_recent(15 * kSecond));
  write("proc/vmstat", "oom_kill 3\n");
  kills.count(16 * kSecond);
  EXPECT_FALSE(kills.take_recent(100 * kSecond));
}

}  // namespace
}  // namespace shoal::supervisor
