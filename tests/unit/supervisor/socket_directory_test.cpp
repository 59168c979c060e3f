#include "supervisor/process/socket_directory.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/support/says.hpp"
#include "tests/support/scratch_directory.hpp"
#include "tests/support/unix_socket.hpp"

namespace shoal::supervisor {
namespace {

namespace fs = std::filesystem;
using test::bound_socket;
using test::says;

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
  for (const char* name : {"attach", "c12", "w3-0", "other", "w3", "cx"})
    EXPECT_TRUE(bound_socket(root_ / name, SOCK_STREAM)) << name;
  for (const char* name : {"notes.txt", "c13"}) std::ofstream(root_ / name) << "x";
  fs::create_symlink("notes.txt", root_ / "c14");
  const auto directory = SocketDirectory::open(root_.string());
  ASSERT_TRUE(directory.ok());
  for (const char* name : {"attach", "c12", "w3-0"}) EXPECT_FALSE(fs::exists(root_ / name)) << name;
  for (const char* name : {"other", "w3", "cx", "notes.txt"}) EXPECT_TRUE(fs::exists(root_ / name)) << name;
  EXPECT_TRUE(fs::exists(root_ / "c13")) << "a user's file, whatever its name";
  EXPECT_TRUE(fs::is_symlink(root_ / "c14"));
}

mode_t mode_of(const fs::path& path) {
  struct stat info {};
  EXPECT_EQ(::stat(path.c_str(), &info), 0) << path;
  return info.st_mode & 0777;
}

std::string text_of(const fs::path& file) {
  std::ifstream stream(file);
  return {std::istreambuf_iterator<char>(stream), {}};
}

TEST_F(SocketDirectoryTest, FollowsNoSymbolicLink) {
  fs::create_directory(root_ / "private");
  ASSERT_EQ(::chmod((root_ / "private").c_str(), 0755), 0);
  fs::create_directory_symlink(root_ / "private", root_ / "link");
  for (const char* name : {"link", "link/"}) {
    const auto directory = SocketDirectory::open((root_ / name).string());
    EXPECT_EQ(directory.status().code(), StatusCode::kInvalidArgument) << name;
    EXPECT_TRUE(says(directory.status().message(), {(root_ / "link").string(), "symbolic link", "SHOAL_DIR"}));
  }
  EXPECT_EQ(mode_of(root_ / "private"), 0755u);
  EXPECT_TRUE(fs::is_empty(root_ / "private"));
}

// Each would be cut to nothing, and a pid written to it.
TEST_F(SocketDirectoryTest, WritesToNoFileThatNoDaemonMade) {
  const fs::path diary = root_ / "diary", directory = root_ / "run", lock = directory / "lock";
  const auto refuses = [&](const char* what) {
    std::ofstream(diary) << "dear diary";
    fs::remove(lock);
    const std::string said = what;
    if (said == "a link") fs::create_symlink(diary, lock);
    if (said == "a hard link") fs::create_hard_link(diary, lock);
    if (said == "a file") fs::copy_file(diary, lock);
    if (said == "a pipe") {
      EXPECT_EQ(::mkfifo(lock.c_str(), 0600), 0);
    }
    const Status refused = SocketDirectory::open(directory.string()).status();
    EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument) << what << ": " << refused.to_string();
    EXPECT_TRUE(says(refused.message(), {lock.string(), "SHOAL_DIR"})) << what;
    EXPECT_EQ(text_of(diary), "dear diary") << what;
    if (said == "a file") {
      EXPECT_EQ(text_of(lock), "dear diary");
    }
  };
  fs::create_directory(directory);
  for (const char* what : {"a link", "a hard link", "a file", "a pipe"}) refuses(what);
  fs::remove(lock);
  std::ofstream(lock) << "4711";  // of a daemon that is dead
  EXPECT_TRUE(SocketDirectory::open(directory.string()).ok());
}

TEST_F(SocketDirectoryTest, RefusesWhatIsNoDirectory) {
  std::ofstream(root_ / "file") << "x";
  const Status refused = SocketDirectory::open((root_ / "file").string()).status();
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(says(refused.message(), {(root_ / "file").string(), "SHOAL_DIR"}));
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
