#include "tools/shoal/process_memory.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

namespace shoal::tool {
namespace {

TEST(ProcessMemory, SumsCleanAndDirtyPages) {
  const ProcessMemory memory = parse_smaps_rollup(
      "00400000-7ffd00000000 ---p 00000000 00:00 0    [rollup]\n"
      "Rss:                1000 kB\nPss:                 600 kB\nPss_Dirty:           100 kB\n"
      "Shared_Clean:        500 kB\nShared_Dirty:         50 kB\nPrivate_Clean:        30 kB\nPrivate_Dirty:       420 kB\nSwap: "
      "7 kB");
  EXPECT_EQ(memory.rss_bytes, 1000u * 1024);
  EXPECT_EQ(memory.pss_bytes, 600u * 1024);
  EXPECT_EQ(memory.shared_bytes, 550u * 1024);
  EXPECT_EQ(memory.private_bytes, 450u * 1024);
}

TEST(ProcessMemory, OfTextThatIsNoneIsNothing) {
  for (const char* text : {"", "\n\n", "Pss", "Pss:", "Pss: many kB", ":::"})
    EXPECT_EQ(parse_smaps_rollup(text).pss_bytes, 0u) << text;
}

TEST(ProcessMemory, IsKnownOfThisProcessAndOfNoneThatIsGone) {
  EXPECT_GT(read_process_memory(::getpid()).value().pss_bytes, 0u);
  EXPECT_FALSE(read_process_memory(0x7ffffff0).has_value());
}

}  // namespace
}  // namespace shoal::tool
