// Files that are read whole or mapped.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "shm/base/mapped_file.hpp"
#include "shm/base/text_file.hpp"
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

TEST(MappedFile, HasTheBytes) {
  const ScratchDirectory directory;
  directory.write("a", "some bytes");
  directory.write("empty");
  const auto file = MappedFile::open(directory.path("a")).value();
  EXPECT_EQ(std::string_view(reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size()), "some bytes");
  EXPECT_TRUE(MappedFile::open(directory.path("empty")).value()->bytes().empty());
}

TEST(RegularFile, WhatIsNoneIsRefusedAndNotWaitedFor) {
  const ScratchDirectory directory;
  ASSERT_EQ(::mkfifo(directory.path("pipe").c_str(), 0600), 0);
  for (const std::string& path : {directory.path("pipe"), directory.path(), std::string("/dev/zero")}) {
    for (const Status& status : {read_text_file(path).status(), MappedFile::open(path).status()}) {
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << path;
      EXPECT_NE(status.message().find(path), std::string::npos) << status.to_string();
    }
  }
  for (const Status& status :
       {read_text_file(directory.path("missing")).status(), MappedFile::open(directory.path("missing")).status()})
    EXPECT_EQ(status.code(), StatusCode::kNotFound) << status.to_string();
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
