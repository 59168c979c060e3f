#include "shm/base/memory_group.hpp"

#include <gtest/gtest.h>

#include <limits>

#include "tests/support/scratch_directory.hpp"

namespace shoal {
namespace {

constexpr std::uint64_t kNoLimit = std::numeric_limits<std::uint64_t>::max();

class AvailableMemoryTest : public testing::Test {
 protected:
  std::uint64_t available() const { return available_memory_bytes(root_.path()); }

  const test::ScratchDirectory root_;
};

TEST_F(AvailableMemoryTest, IsTheMachinesWhereNoGroupLimitsIt) {
  EXPECT_EQ(available(), kNoLimit) << "nothing can be read";
  root_.write("proc/meminfo", "MemTotal:       2000 kB\nMemFree:         100 kB\nMemAvailable:   1000 kB\n");
  EXPECT_EQ(available(), 1000u * 1024);
  root_.write("proc/self/cgroup", "0::/a/b\n");
  EXPECT_EQ(available(), 1000u * 1024);
  root_.write("sys/fs/cgroup/a/b/memory.max", "max\n");
  root_.write("sys/fs/cgroup/a/b/memory.current", "500000\n");
  EXPECT_EQ(available(), 1000u * 1024);
  EXPECT_GT(available_memory_bytes(), 1'000'000u) << "of this machine";
}

TEST_F(AvailableMemoryTest, IsWhatAGroupOfVersion2AndThoseAroundItLeave) {
  root_.write("proc/meminfo", "MemAvailable:   1000 kB\n");
  root_.write("proc/self/cgroup", "0::/a/b\n");
  root_.write("sys/fs/cgroup/a/b/memory.max", "600000\n");
  root_.write("sys/fs/cgroup/a/b/memory.current", "500000\n");
  EXPECT_EQ(available(), 100'000u);
  root_.write("sys/fs/cgroup/a/b/memory.stat", "anon 100000\ninactive_file 300000\nactive_file 7\n");
  EXPECT_EQ(available(), 400'000u) << "what is only read from files can go";
  root_.write("sys/fs/cgroup/a/memory.max", "700000\n");
  root_.write("sys/fs/cgroup/a/memory.current", "650000\n");
  EXPECT_EQ(available(), 50'000u) << "the one around it has less";
  root_.write("sys/fs/cgroup/a/memory.current", "800000\n");
  EXPECT_EQ(available(), 0u);
}

TEST_F(AvailableMemoryTest, IsWhatAContainersGroupLeavesWhateverItsPath) {
  root_.write("proc/self/cgroup", "0::/../outside\n");
  root_.write("sys/fs/cgroup/memory.max", "600000\n");
  root_.write("sys/fs/cgroup/memory.current", "500000\n");
  EXPECT_EQ(available(), 100'000u);
}

TEST_F(AvailableMemoryTest, IsWhatAGroupOfVersion1Leaves) {
  root_.write("proc/meminfo", "MemAvailable:   1000 kB\n");
  root_.write("proc/self/cgroup", "9:name=systemd:/\n4:memory:/a\n0::/\n");
  root_.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  root_.write("sys/fs/cgroup/memory/memory.usage_in_bytes", "900000000\n");
  EXPECT_EQ(available(), 1000u * 1024);
  root_.write("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "600000\n");
  root_.write("sys/fs/cgroup/memory/a/memory.usage_in_bytes", "500000\n");
  root_.write("sys/fs/cgroup/memory/a/memory.stat", "inactive_file 1\ntotal_inactive_file 200000\n");
  EXPECT_EQ(available(), 300'000u);
}

}  // namespace
}  // namespace shoal
