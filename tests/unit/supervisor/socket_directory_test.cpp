#include "supervisor/socket_directory.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "tests/support/scratch_directory.hpp"

namespace shoal::supervisor {
namespace {

namespace fs = std::filesystem;

class SocketDirectoryTest : public testing::Test {
 protected:
  const test::ScratchDirectory scratch_;
  const fs::path root_ = scratch_.path();
};

TEST_F(SocketDirectoryTest, IsMadePrivate) {
  const auto directory = SocketDirectory::open((root_ / "a").string());
  ASSERT_TRUE(directory.ok()) << directory.status().to_string();
  struct stat info {};
  ASSERT_EQ(::stat((root_ / "a").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
}

TEST_F(SocketDirectoryTest, RefusesASecondOwnerAndNamesTheDirectory) {
  const std::string path = (root_ / "a").string();
  const auto first = SocketDirectory::open(path);
  const auto second = SocketDirectory::open(path);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(second.status().message().find(path), std::string::npos);
  EXPECT_NE(second.status().message().find(std::to_string(::getpid())), std::string::npos);
}

TEST_F(SocketDirectoryTest, SweepsSocketsThatWereLeftAndNothingElse) {
  for (const char* name : {"attach", "c12", "w3-0", "notes.txt", "w3", "cx"}) std::ofstream(root_ / name) << "x";
  const auto directory = SocketDirectory::open(root_.string());
  ASSERT_TRUE(directory.ok());
  for (const char* name : {"attach", "c12", "w3-0"}) EXPECT_FALSE(fs::exists(root_ / name)) << name;
  for (const char* name : {"notes.txt", "w3", "cx"}) EXPECT_TRUE(fs::exists(root_ / name)) << name;
}

TEST_F(SocketDirectoryTest, RefusesPathsTooLongForSockets) {
  const auto directory = SocketDirectory::open((root_ / std::string(90, 'x')).string());
  EXPECT_EQ(directory.status().code(), StatusCode::kInvalidArgument);
}

TEST_F(SocketDirectoryTest, RefusesADirectoryThatIsSharedWithOthers) {
  EXPECT_EQ(SocketDirectory::open("/tmp").status().code(), StatusCode::kPermissionDenied);
}

}  // namespace
}  // namespace shoal::supervisor
