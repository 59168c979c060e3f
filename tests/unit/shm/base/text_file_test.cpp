#include "shm/base/text_file.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/support/scratch_directory.hpp"

namespace shoal {
namespace {

using test::ScratchDirectory;

TEST(TextFile, IsReadWhole) {
  const ScratchDirectory directory;
  const std::string text(100'000, 'x');
  directory.write("a", text);
  directory.write("empty");
  EXPECT_EQ(read_text_file(directory.path("a")).value(), text);
  EXPECT_EQ(read_text_file(directory.path("empty")).value(), "");
}

TEST(TextFile, WhatIsNoFileIsRefusedAndNotWaitedFor) {
  const ScratchDirectory directory;
  ASSERT_EQ(::mkfifo(directory.path("pipe").c_str(), 0600), 0);
  for (const std::string& path : {directory.path("pipe"), directory.path(), std::string("/dev/zero")}) {
    const auto text = read_text_file(path);
    EXPECT_EQ(text.status().code(), StatusCode::kInvalidArgument) << path;
    EXPECT_NE(text.status().message().find(path), std::string::npos) << text.status().to_string();
  }
  EXPECT_EQ(read_text_file(directory.path("missing")).status().code(), StatusCode::kNotFound);
}

TEST(TextFile, HasABound) {
  const ScratchDirectory directory;
  directory.write("a");
  std::filesystem::resize_file(directory.path("a"), kLargestTextFile);
  EXPECT_EQ(read_text_file(directory.path("a")).value().size(), kLargestTextFile);
  std::filesystem::resize_file(directory.path("a"), kLargestTextFile + 1);
  EXPECT_NE(read_text_file(directory.path("a")).status().message().find("16 MiB"), std::string::npos);
}

}  // namespace
}  // namespace shoal
