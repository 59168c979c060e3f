// The attach socket: what happens when somebody removes or replaces it, the lock or the directory.
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <vector>

#include "tests/support/no_descriptors.hpp"
#include "tests/support/says.hpp"
#include "tests/unit/supervisor/clients_fixture.hpp"

namespace shoal::supervisor {
namespace {

namespace fs = std::filesystem;

// A cleaner of /tmp removes old files.
TEST_F(ClientsTest, AnAttachSocketThatWasRemovedIsMadeAgain) {
  const std::string path = directory_.attach_path();
  const auto mode = [&] {
    struct stat info {};
    return ::stat(path.c_str(), &info) == 0 ? info.st_mode & 0777 : 0;
  };
  ASSERT_TRUE(directory_.share_with(::getegid()).ok());
  clients_.set_access({.socket_group = ::getegid()});
  UniqueFd first = attach();
  ASSERT_TRUE(wire::send_control(first.get(), {.kind = wire::ControlKind::kBound}).ok());
  serve();
  clients_.welcomed(*clients_.find(1));
  for (const bool is_renamed : {false, true, false}) {
    std::vector<UniqueFd> waiting;  // more than are accepted in one turn
    for (int i = 0; i < 20; ++i) waiting.push_back(connect());
    is_renamed ? fs::rename(path, scratch_.path("elsewhere")) : static_cast<void>(fs::remove(path));
    loop_.run_ready();
    EXPECT_FALSE(fs::exists(path)) << "its remover may go on with the lock";
    run_next_timer();
    ASSERT_TRUE(fs::is_socket(path));
    EXPECT_EQ(mode(), 0660u) << "of socket_group";
    for (const UniqueFd& one : waiting) EXPECT_TRUE(wire::send_control(one.get(), hello()).ok());
    serve();
    for (const UniqueFd& one : waiting) EXPECT_EQ(receive(one).kind, wire::ControlKind::kPath) << "it had connected before";
    attach();
    waiting.clear();
    serve();
  }
  EXPECT_NE(clients_.find(1), nullptr) << "it goes on";
}

TEST_F(ClientsTest, AnAttachSocketIsMadeAgainWhenThereAreDescriptorsAgain) {
  fs::remove(directory_.attach_path());
  {
    const test::NoDescriptors none;
    serve();
    for (int i = 0; i < 3; ++i) run_next_timer();
    EXPECT_FALSE(fs::exists(directory_.attach_path()));
  }
  for (int i = 0; i < 3 && !fs::exists(directory_.attach_path()); ++i) run_next_timer();
  attach();
}

// Its listener is closed: whoever connects there would be refused for ever.
TEST_F(ClientsTest, AnAttachSocketThatComesBackIsReplaced) {
  const std::string path = directory_.attach_path(), old = scratch_.path("old");
  fs::rename(path, old);
  serve();
  run_next_timer();
  ASSERT_TRUE(fs::is_socket(path));
  fs::rename(old, path);
  serve();
  EXPECT_FALSE(test::connected_socket(path, SOCK_SEQPACKET));
  run_next_timer();
  attach();
  serve();
  fs::rename(path, old);
  fs::rename(old, path);
  serve();
  run_next_timer();
  attach();
}

TEST_F(ClientsTest, AFileThatHasTheNameOfTheAttachSocketIsLeftAloneAndToldOnce) {
  const std::string path = directory_.attach_path();
  fs::remove(path);
  scratch_.write("attach", "x");
  testing::internal::CaptureStderr();
  for (int i = 0; i < 3; ++i) {
    serve();
    run_next_timer();
    EXPECT_TRUE(fs::is_regular_file(path));
  }
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(test::says(said, {"attach_lost", path, "Remove it"})) << said;
  EXPECT_EQ(said.find("attach_lost"), said.rfind("attach_lost")) << said;
  fs::remove(path);
  serve();
  run_next_timer();
  attach();
}

// Bound, but of no use to the group.
TEST_F(ClientsTest, AnAttachSocketThatIsOnlyHalfMadeIsMadeAgain) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can act as another user";
  constexpr uid_t kUser = 64321, kGroup = 64322;
  ASSERT_TRUE(directory_.share_with(kGroup).ok());
  clients_.set_access({.socket_group = kGroup});
  ASSERT_EQ(::chown(scratch_.path().c_str(), kUser, kGroup), 0);
  fs::remove(directory_.attach_path());
  serve();
  ASSERT_EQ(::seteuid(kUser), 0);  // no member of that group
  for (int i = 0; i < 2; ++i) run_next_timer();
  ASSERT_EQ(::seteuid(0), 0);
  run_next_timer();
  struct stat info {};
  ASSERT_EQ(::stat(directory_.attach_path().c_str(), &info), 0);
  EXPECT_EQ(info.st_gid, kGroup);
  EXPECT_EQ(info.st_mode & 0777, 0660u);
  attach();
}

TEST_F(ClientsTest, ADaemonThatLostItsDirectoryToAnotherSaysSo) {
  fs::remove(scratch_.path("lock"));
  const auto next = SocketDirectory::open(scratch_.path());
  ASSERT_TRUE(next.ok()) << next.status().to_string();
  const UniqueFd theirs = test::bound_socket(next->attach_path(), SOCK_SEQPACKET);
  testing::internal::CaptureStderr();
  serve();
  run_next_timer();
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(test::says(said, {"attach_lost", scratch_.path(), "lock", "Restart shoald"})) << said;
  EXPECT_TRUE(test::connected_socket(next->attach_path(), SOCK_SEQPACKET)) << "it is the next daemon's";
}

// tmpreaper removes files, and spares sockets.
TEST_F(ClientsTest, ALostLockAndALostDirectoryAreToldAtOnce) {
  const test::ScratchDirectory elsewhere;
  testing::internal::CaptureStderr();
  fs::rename(scratch_.path(), elsewhere.path("moved"));
  serve();
  run_next_timer();
  EXPECT_TRUE(test::says(testing::internal::GetCapturedStderr(), {"attach_lost", scratch_.path(), "Restart shoald"}));
  fs::rename(elsewhere.path("moved"), scratch_.path());
  serve();
  run_next_timer();
  attach();
  testing::internal::CaptureStderr();
  fs::remove(scratch_.path("lock"));
  serve();
  run_next_timer();
  EXPECT_TRUE(test::says(testing::internal::GetCapturedStderr(), {"attach_lost", scratch_.path(), "lock", "Restart shoald"}));
}

TEST_F(ClientsTest, ItIsSaidWhyTheAttachSocketIsNotWatched) {
  const test::ScratchDirectory scratch;
  const auto directory = SocketDirectory::open(scratch.path());
  Clients clients(clock_, *directory, loop_, timers_, observer_, log_);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  testing::internal::CaptureStderr();
  const int last = ::dup(STDERR_FILENO);
  ::close(last);
  const rlimit one{static_cast<rlim_t>(last) + 1, before.rlim_max};  // for the listener
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &one), 0);
  EXPECT_TRUE(clients.listen().ok());
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(
      test::says(said, {"attach_unwatched", directory->attach_path(), "Too many open files", "fs.inotify.max_user_instances"}))
      << said;
}

// The next daemon is about to make its own there.
TEST_F(ClientsTest, NoAttachSocketIsMadeWhereTheLockIsAnothers) {
  fs::remove(scratch_.path("lock"));
  scratch_.write("lock", "1");
  fs::remove(directory_.attach_path());
  serve();
  run_next_timer();
  EXPECT_FALSE(fs::exists(directory_.attach_path()));
}

TEST_F(ClientsTest, NoAttachSocketIsMadeInAnotherDirectory) {
  const test::ScratchDirectory elsewhere;
  fs::rename(scratch_.path(), elsewhere.path("moved"));
  fs::create_directory(scratch_.path());
  fs::remove(elsewhere.path("moved/attach"));
  serve();
  run_next_timer();
  EXPECT_FALSE(fs::exists(directory_.attach_path()) || fs::exists(elsewhere.path("moved/attach")));
}

}  // namespace
}  // namespace shoal::supervisor
