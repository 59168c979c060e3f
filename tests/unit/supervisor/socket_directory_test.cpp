#include "supervisor/process/socket_directory.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/stat.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

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

// tmpfiles.d(5): what lies in a locked directory is never too old. Otherwise systemd-tmpfiles would remove the lock.
TEST_F(SocketDirectoryTest, NoCleanerTakesItForOld) {
  const auto lock = [&](int how) {
    const UniqueFd cleaner(::open((root_ / "a").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    return ::flock(cleaner.get(), how | LOCK_NB) == 0;
  };
  {
    const auto directory = SocketDirectory::open((root_ / "a").string());
    ASSERT_TRUE(directory.ok());
    {
      const UniqueFd cleaner(::open((root_ / "a").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
      ASSERT_EQ(::flock(cleaner.get(), LOCK_EX | LOCK_NB), 0);
      const Status refused = directory->keep_from_cleaners();
      EXPECT_TRUE(says(refused.message(), {"lock", (root_ / "a").string()})) << refused.to_string();
    }
    EXPECT_TRUE(directory->keep_from_cleaners().ok());
    EXPECT_FALSE(lock(LOCK_EX));
    EXPECT_TRUE(lock(LOCK_SH)) << "no user has to wait";
    EXPECT_EQ(SocketDirectory::open((root_ / "a").string()).status().code(), StatusCode::kFailedPrecondition);
    EXPECT_FALSE(lock(LOCK_EX));
  }
  EXPECT_TRUE(lock(LOCK_EX));
}

// Somebody had removed its lock.
TEST_F(SocketDirectoryTest, WhoeverLostItLeavesTheNextDaemonsSockets) {
  auto first = SocketDirectory::open(root_.string());
  ASSERT_TRUE(first.ok());
  fs::remove(root_ / "lock");
  {
    const auto next = SocketDirectory::open(root_.string());
    ASSERT_TRUE(next.ok()) << next.status().to_string();
    for (const char* name : {"attach", "c1", "lanes/w1-0"}) EXPECT_TRUE(bound_socket(root_ / name, SOCK_STREAM)) << name;
    { const SocketDirectory ended = *std::move(first); }
    for (const char* name : {"attach", "c1", "lanes/w1-0"}) EXPECT_TRUE(fs::exists(root_ / name)) << name;
  }
  for (const char* name : {"attach", "c1", "lanes/w1-0"}) EXPECT_FALSE(fs::exists(root_ / name)) << name;
}

TEST_F(SocketDirectoryTest, RandomNamesAreAllDifferent) {
  std::set<std::string> names;
  for (int i = 0; i < 1000; ++i) {
    const std::string name = random_name().value();
    EXPECT_EQ(name.size(), 26u);
    EXPECT_EQ(name.find_first_not_of("abcdefghijklmnopqrstuvwxyz234567"), name.npos) << name;
    names.insert(name);
  }
  EXPECT_EQ(names.size(), 1000u);
}

TEST_F(SocketDirectoryTest, SweepsSocketsThatWereLeftAndNothingElse) {
  const std::string lane = "w3-" + random_name().value() + "-0";
  const char* const kLane = lane.c_str();
  fs::create_directory(root_ / "lanes");
  const std::string in_lanes = "lanes/" + lane;
  for (const char* name : {"attach", "c12", "w3-0", kLane, "other", "w3", "cx", "w3-tooshort-0", in_lanes.c_str(), "lanes/other"})
    EXPECT_TRUE(bound_socket(root_ / name, SOCK_STREAM)) << name;
  for (const char* name : {"notes.txt", "c13", "lanes/notes.txt"}) std::ofstream(root_ / name) << "x";
  fs::create_symlink("notes.txt", root_ / "c14");
  const auto directory = SocketDirectory::open(root_.string());
  ASSERT_TRUE(directory.ok());
  for (const char* name : {"attach", "c12", "w3-0", kLane, in_lanes.c_str(), "lanes/other"})
    EXPECT_FALSE(fs::exists(root_ / name)) << name;
  for (const char* name : {"other", "w3", "cx", "w3-tooshort-0", "notes.txt", "lanes/notes.txt"})
    EXPECT_TRUE(fs::exists(root_ / name)) << name;
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
    EXPECT_EQ(mode_of(directory), 0755u) << what;
    if (said == "a file") {
      EXPECT_EQ(text_of(lock), "dear diary");
    }
  };
  fs::create_directory(directory);
  ASSERT_EQ(::chmod(directory.c_str(), 0755), 0);
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

// It would lock others out of a home, or of /run.
TEST_F(SocketDirectoryTest, LeavesADirectoryAsItIsThatOthersUse) {
  const fs::path home = root_ / "home";
  fs::create_directory(home);
  const auto refuses = [&](const char* name, mode_t mode, const auto& make) {
    make(home / name);
    ASSERT_EQ(::chmod(home.c_str(), mode), 0);
    const Status refused = SocketDirectory::open(home.string()).status();
    EXPECT_EQ(refused.code(), StatusCode::kPermissionDenied) << name << ": " << refused.to_string();
    EXPECT_TRUE(says(refused.message(), {home.string(), "SHOAL_DIR", "'" + std::string(name) + "'"})) << name;
    EXPECT_EQ(mode_of(home), mode) << name;
    EXPECT_EQ(std::distance(fs::directory_iterator(home), {}), 1) << name;
    fs::remove_all(home / name);
  };
  const auto file = [](const fs::path& path) { std::ofstream(path) << "x"; };
  const auto folder = [](const fs::path& path) { fs::create_directory(path); };
  const auto link = [](const fs::path& path) { fs::create_directory_symlink("elsewhere", path); };
  for (const mode_t mode : {0755, 0750, 0710, 0701}) refuses(".profile", mode, file);
  for (const char* name : {"attach", "c1", "lanes"}) refuses(name, 0755, file);
  for (const char* name : {"attach", "documents"}) refuses(name, 0755, folder);
  for (const char* name : {"lanes", "c1"}) refuses(name, 0755, link);
  refuses("agent", 0755, [](const fs::path& path) { EXPECT_TRUE(bound_socket(path, SOCK_STREAM)); });
}

TEST_F(SocketDirectoryTest, TakesAWideOneThatIsEmptyOrHasOnlyADaemonsFiles) {
  const fs::path path = root_ / "a";
  fs::create_directory(path);  // as systemd does
  ASSERT_EQ(::chmod(path.c_str(), 0755), 0);
  EXPECT_TRUE(SocketDirectory::open(path.string()).ok());
  EXPECT_EQ(mode_of(path), 0700u);
  for (const char* name : {"attach", "c12", "lanes/w3-0"}) EXPECT_TRUE(bound_socket(path / name, SOCK_STREAM)) << name;
  ASSERT_EQ(::chmod(path.c_str(), 0755), 0);
  EXPECT_TRUE(SocketDirectory::open(path.string()).ok());
  EXPECT_EQ(mode_of(path), 0700u);
  EXPECT_FALSE(fs::exists(path / "c12"));
}

TEST_F(SocketDirectoryTest, TakesItsOwnAgainWhateverElseIsThere) {
  const fs::path path = root_ / "a";
  ASSERT_TRUE(SocketDirectory::open(path.string()).ok());
  std::ofstream(path / "notes.txt") << "x";
  for (const mode_t mode : {0710, 0755, 0777}) {  // of a daemon with a socket_group; RuntimeDirectoryMode of systemd
    ASSERT_EQ(::chmod(path.c_str(), mode), 0);
    const auto again = SocketDirectory::open(path.string());
    EXPECT_TRUE(again.ok()) << again.status().to_string();
    EXPECT_EQ(mode_of(path), mode == 0710 ? mode : 0700u);
    EXPECT_EQ(text_of(path / "notes.txt"), "x");
  }
}

// Other programs have files called "lock", and others may put things into a directory that they may write to.
TEST_F(SocketDirectoryTest, ALockThatIsNotOursProvesNothing) {
  const fs::path home = root_ / "home", lock = home / "lock", lanes = home / "lanes";
  const auto refuses = [&](const char* what, const auto& change) {
    fs::remove_all(home);
    EXPECT_TRUE(SocketDirectory::open(home.string()).ok());
    std::ofstream(home / ".profile") << "x";
    change();
    EXPECT_EQ(::chmod(home.c_str(), 0755), 0);
    const Status refused = SocketDirectory::open(home.string()).status();
    EXPECT_EQ(refused.code(), StatusCode::kPermissionDenied) << what << ": " << refused.to_string();
    EXPECT_TRUE(says(refused.message(), {home.string(), "is not a daemon's"})) << what;
    EXPECT_EQ(mode_of(home), 0755u) << what;
  };
  refuses("no lock", [&] { fs::remove(lock); });
  refuses("no lanes", [&] { fs::remove(lanes); });
  refuses("a lock that others may read", [&] { EXPECT_EQ(::chmod(lock.c_str(), 0644), 0); });
  refuses("lanes that others may enter", [&] { EXPECT_EQ(::chmod(lanes.c_str(), 0755), 0); });
  refuses("a link", [&] {
    fs::rename(lock, root_ / "lock");
    fs::create_symlink(root_ / "lock", lock);
  });
  refuses("a link to lanes", [&] {
    fs::rename(lanes, root_ / "lanes");
    fs::create_directory_symlink(root_ / "lanes", lanes);
  });
  if (::geteuid() != 0) return;  // only root can give files away
  refuses("a stranger's lock", [&] { EXPECT_EQ(::chown(lock.c_str(), 64321, 64321), 0); });
  refuses("a stranger's lanes", [&] { EXPECT_EQ(::chown(lanes.c_str(), 64321, 64321), 0); });
}

TEST_F(SocketDirectoryTest, ASecondOwnerLocksNoGroupOut) {
  const auto first = SocketDirectory::open((root_ / "a").string());
  ASSERT_TRUE(first.ok());
  const UniqueFd attach = bound_socket(root_ / "a" / "attach", SOCK_SEQPACKET);
  ASSERT_TRUE(first->share_with(::getegid()).ok());
  EXPECT_EQ(SocketDirectory::open((root_ / "a").string()).status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(mode_of(root_ / "a"), 0710u);
}

TEST_F(SocketDirectoryTest, AGroupMayPassButNeitherListNorWrite) {
  const auto directory = SocketDirectory::open((root_ / "a").string());
  ASSERT_TRUE(directory.ok());
  const UniqueFd attach = bound_socket(root_ / "a" / "attach", SOCK_SEQPACKET);
  const gid_t group = ::getegid();
  const auto group_of = [](const fs::path& path) {
    struct stat info {};
    EXPECT_EQ(::stat(path.c_str(), &info), 0);
    return info.st_gid;
  };
  for (int again = 0; again < 2; ++again) {
    ASSERT_TRUE(directory->share_with(group).ok());
    EXPECT_EQ(mode_of(root_ / "a"), 0710u);
    EXPECT_EQ(mode_of(root_ / "a" / "attach"), 0660u);
    EXPECT_EQ(group_of(root_ / "a"), group);
    EXPECT_EQ(group_of(root_ / "a" / "attach"), group);
  }
  if (::geteuid() == 0) {  // another group, which this process is no member of
    ASSERT_TRUE(directory->share_with(64321).ok());
    EXPECT_EQ(group_of(root_ / "a"), 64321u);
    EXPECT_EQ(group_of(root_ / "a" / "attach"), 64321u);
    EXPECT_EQ(mode_of(root_ / "a"), 0710u);
  }
  ASSERT_TRUE(directory->share_with(std::nullopt).ok());
  EXPECT_EQ(mode_of(root_ / "a"), 0700u);
}

// Its mode stays as it is, or clients of the group would be refused meanwhile.
TEST_F(SocketDirectoryTest, ANewAttachSocketLocksNoGroupOut) {
  const auto directory = SocketDirectory::open((root_ / "a").string());
  ASSERT_TRUE(directory.ok());
  ASSERT_TRUE(directory->share_with(::getegid()).ok());
  const UniqueFd changes(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
  ASSERT_GE(::inotify_add_watch(changes.get(), (root_ / "a").c_str(), IN_ATTRIB | IN_ONLYDIR), 0);
  const UniqueFd attach = bound_socket(root_ / "a" / "attach", SOCK_SEQPACKET);
  ASSERT_TRUE(directory->share_with(::getegid()).ok());
  EXPECT_EQ(mode_of(root_ / "a" / "attach"), 0660u);
  alignas(inotify_event) std::array<char, 4096> notices;
  const ssize_t size = ::read(changes.get(), notices.data(), notices.size());
  ASSERT_GT(size, 0) << "of the socket's mode";
  for (const char* at = notices.data(); at < notices.data() + size;) {
    const auto* notice = reinterpret_cast<const inotify_event*>(at);
    EXPECT_GT(notice->len, 0u) << "the directory itself was changed";
    at += sizeof *notice + notice->len;
  }
}

// Somebody has removed the attach socket, or put another file there. It is made anew, and shared then.
TEST_F(SocketDirectoryTest, IsSharedWithoutAnAttachSocketToo) {
  const auto directory = SocketDirectory::open((root_ / "a").string());
  ASSERT_TRUE(directory.ok());
  for (const bool is_there : {false, true}) {
    if (is_there) std::ofstream(root_ / "a" / "attach") << "x";
    const mode_t before = is_there ? mode_of(root_ / "a" / "attach") : 0;
    const Status shared = directory->share_with(::getegid());
    EXPECT_TRUE(shared.ok()) << shared.to_string();
    EXPECT_EQ(mode_of(root_ / "a"), 0710u);
    if (is_there) {
      EXPECT_EQ(mode_of(root_ / "a" / "attach"), before);
    }
    ASSERT_TRUE(directory->share_with(std::nullopt).ok());
  }
}

TEST_F(SocketDirectoryTest, AGroupThatItMayNotLetInIsNamed) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can act as another user";
  ASSERT_EQ(::chmod(root_.c_str(), 0777), 0);
  ASSERT_EQ(::seteuid(64321), 0);
  {
    const auto directory = SocketDirectory::open((root_ / "a").string());
    const UniqueFd attach = bound_socket(root_ / "a" / "attach", SOCK_SEQPACKET);
    const Status refused = directory.ok() ? directory->share_with(64322) : directory.status();
    EXPECT_EQ(refused.code(), StatusCode::kPermissionDenied) << refused.to_string();
    EXPECT_TRUE(says(refused.message(), {"socket_group", "64322", "64321", "member"}));
    EXPECT_EQ(mode_of(root_ / "a"), 0700u);
  }
  ASSERT_EQ(::seteuid(0), 0);
}

// Clients of the group find no daemon until it serves, instead of being refused.
TEST_F(SocketDirectoryTest, ASharedOneStaysSoUntilTheNextDaemonSaysWhoMayEnter) {
  {
    const auto directory = SocketDirectory::open((root_ / "a").string());
    const UniqueFd attach = bound_socket(root_ / "a" / "attach", SOCK_SEQPACKET);
    ASSERT_TRUE(directory->share_with(::getegid()).ok());
  }
  const auto next = SocketDirectory::open((root_ / "a").string());
  ASSERT_TRUE(next.ok());
  EXPECT_EQ(mode_of(root_ / "a"), 0710u);
  ASSERT_TRUE(next->share_with(std::nullopt).ok());
  EXPECT_EQ(mode_of(root_ / "a"), 0700u);
}

}  // namespace
}  // namespace shoal::supervisor
