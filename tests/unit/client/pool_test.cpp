#include "shoal/pool.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <span>
#include <thread>

#include "shm/wire/control.hpp"
#include "shm/wire/local_address.hpp"
#include "shm/wire/messages.hpp"
#include "shm/wire/socket.hpp"
#include "tests/support/child_process.hpp"
#include "tests/support/scratch_directory.hpp"
#include "tests/support/unix_socket.hpp"

namespace shoal {
namespace {

// A directory with an attach socket that behaves as the test wants.
class PoolTest : public testing::Test {
 protected:
  UniqueFd listen() const { return listen(directory_); }
  static UniqueFd listen(const std::string& directory) {
    UniqueFd fd = test::bound_socket(directory + "/attach", SOCK_SEQPACKET);
    EXPECT_TRUE(fd);
    return fd;
  }

  void let_in(const UniqueFd& client, wire::Router& router, const std::function<void()>& before_path) const;
  void serve_one_question_after_pings(
      const UniqueFd& listener, int pings, const std::function<void()>& before_path = [] {}) const;

  const test::ScratchDirectory scratch_;
  const std::string directory_ = scratch_.path();
};

TEST_F(PoolTest, WithoutADaemonTheErrorNamesTheSocketAndHowToStartOne) {
  const auto pool = Pool::connect({.directory = directory_});
  ASSERT_FALSE(pool.ok());
  EXPECT_EQ(pool.status().code(), StatusCode::kUnavailable);
  EXPECT_NE(pool.status().message().find(directory_ + "/attach"), std::string::npos);
  EXPECT_NE(pool.status().message().find("shoald --model"), std::string::npos);
}

TEST_F(PoolTest, ARefusalArrivesWithItsCode) {
  const UniqueFd listener = listen();
  std::jthread daemon([&] {
    const UniqueFd client(::accept(listener.get(), nullptr, nullptr));
    const auto attach = wire::receive_control(client.get(), true);
    EXPECT_EQ((*attach)->fds.size(), 3u) << "a socket and two arenas";
    EXPECT_TRUE(wire::send_control(client.get(), {.kind = wire::ControlKind::kRefused, .a = 12, .text = "not your daemon"}).ok());
  });
  const auto pool = Pool::connect({.directory = directory_});
  EXPECT_EQ(pool.status().code(), StatusCode::kPermissionDenied);
  EXPECT_NE(pool.status().message().find("not your daemon"), std::string::npos);
}

// Once at once, with what the daemon offers.
TEST_F(PoolTest, WhoseArenasAreRefusedAttachesWithSmallerOnes) {
  const UniqueFd listener = listen();
  std::vector<off_t> sizes;
  std::jthread daemon([&] {
    for (const std::uint64_t room : {std::uint64_t{10} << 20, std::uint64_t{0}}) {
      const UniqueFd client(::accept(listener.get(), nullptr, nullptr));
      const auto attach = wire::receive_control(client.get(), true);
      for (const UniqueFd& fd : std::span((*attach)->fds).subspan(1)) {  // behind the socket
        struct stat info {};
        EXPECT_EQ(::fstat(fd.get(), &info), 0);
        if (S_ISREG(info.st_mode)) sizes.push_back(info.st_size);  // the first one is the client's socket
      }
      EXPECT_TRUE(
          wire::send_control(client.get(), {.kind = wire::ControlKind::kRefused, .a = 4, .b = room, .text = "too large"}).ok());
    }
  });
  const auto pool = Pool::connect({.directory = directory_});
  daemon.join();
  EXPECT_EQ(pool.status().code(), StatusCode::kOverloaded);
  const auto largest = static_cast<off_t>(wire::kLargestArenaBytes);
  EXPECT_EQ(sizes, (std::vector<off_t>{largest, largest, 5 << 20, 5 << 20}));
}

TEST_F(PoolTest, ADaemonThatSaysNothingIsGivenUp) {
  const UniqueFd listener = listen();
  const auto pool = Pool::connect({.directory = directory_, .connect_timeout = std::chrono::milliseconds(50)});
  EXPECT_EQ(pool.status().code(), StatusCode::kUnavailable);
}

// Up to WELCOME. `before_path` is called when the client has attached.
void PoolTest::let_in(const UniqueFd& client, wire::Router& router, const std::function<void()>& before_path) const {
  const std::string path = directory_ + "/c1";
  const auto attach = wire::receive_control(client.get(), true);
  before_path();
  std::filesystem::remove(path);  // of an earlier client
  EXPECT_TRUE(wire::bind_at((*attach)->fds[0].get(), path).ok());
  EXPECT_TRUE(wire::send_control(client.get(), {.kind = wire::ControlKind::kPath, .id = 1, .text = path}).ok());
  EXPECT_TRUE(wire::receive_control(client.get(), true).ok());
  EXPECT_TRUE(router.connect(path, 1, false).ok());
  const wire::ControlHeader welcome = wire::make_control(wire::Kind::kWelcome, 0);
  EXPECT_TRUE(router.push(1, std::as_bytes(std::span(&welcome, 1))).ok());
}

// A daemon of an earlier release: it lets one client in, refuses its pings, and answers its question after `pings` of them.
void PoolTest::serve_one_question_after_pings(const UniqueFd& listener, int pings,
                                              const std::function<void()>& before_path) const {
  const UniqueFd client(::accept(listener.get(), nullptr, nullptr));
  wire::MessageContext context;
  wire::Router router = wire::Router::create(context).value();
  let_in(client, router, before_path);
  const auto answer = [&](wire::ControlHeader header, std::string_view text) {
    const std::span<const std::byte> frames[] = {std::as_bytes(std::span(&header, 1)), std::as_bytes(std::span(text))};
    EXPECT_TRUE(router.push(1, wire::Frames(frames), {}).ok());
  };
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  std::uint64_t question = 0;
  while (pings > 0 && std::chrono::steady_clock::now() < end) {
    wire::Waitable items[] = {{.socket = &router}};
    wire::wait(items, std::chrono::milliseconds(100));
    wire::Parcel message;
    wire::PeerId peer = 0;
    while (router.receive(peer, message).value()) {
      if (wire::peek_kind(message[0]).value() != wire::Kind::kControl) continue;
      const std::uint64_t seq = wire::decode_control(message[0]).value().seq;
      const std::string_view text(reinterpret_cast<const char*>(message[1].data()), message[1].size());
      if (text.find("ping") == std::string_view::npos) {
        question = seq;
      } else {
        answer(wire::make_control(wire::Kind::kControlReply, seq, StatusCode::kInvalidArgument),
               R"({"message": "no such question"})");
        --pings;
      }
    }
  }
  EXPECT_EQ(pings, 0) << "pings that did not come";
  answer(wire::make_control(wire::Kind::kControlReply, question), R"({"models": []})");
  EXPECT_FALSE(wire::receive_control(client.get(), true).ok());  // until the client leaves: its answer could arrive after our end
}

// Daemons of earlier releases do not know `ping`.
TEST_F(PoolTest, ADaemonThatRefusesPingsLives) {
  const UniqueFd listener = listen();
  std::jthread daemon([&] { serve_one_question_after_pings(listener, 5); });
  Pool pool = Pool::connect({.directory = directory_, .control_timeout = std::chrono::milliseconds(100)}).value();
  const auto models = pool.list();
  EXPECT_TRUE(models.ok()) << models.status().to_string();
}

TEST_F(PoolTest, APoolThatWasMovedFromHasNoConnection) {
  const UniqueFd listener = listen();
  std::jthread daemon([&] { serve_one_question_after_pings(listener, 1); });
  Pool first = Pool::connect({.directory = directory_, .control_timeout = std::chrono::milliseconds(100)}).value();
  EXPECT_TRUE(first.list().ok());
  Pool second = std::move(first);
  Pool& same = second;
  second = std::move(same);
  EXPECT_NE(second.loan(DType::kFloat32, {1}).status().code(), StatusCode::kFailedPrecondition) << "moved to itself";
  second = std::move(first);
  for (Pool* pool : {&first, &second}) EXPECT_EQ(pool->list().status().code(), StatusCode::kFailedPrecondition);
}

// Longer than an attempt may take at least.
void be_late() { std::this_thread::sleep_for(std::chrono::milliseconds(2100)); }

TEST_F(PoolTest, ADaemonMayTakeAsLongAsConnectTimeout) {
  const UniqueFd listener = listen();
  std::jthread daemon([&] { serve_one_question_after_pings(listener, 0, be_late); });
  const auto pool = Pool::connect({.directory = directory_, .connect_timeout = std::chrono::seconds(60)});
  EXPECT_TRUE(pool.ok()) << pool.status().to_string();
}

TEST_F(PoolTest, TheNextDaemonMayTakeAsLongAsReconnectTimeout) {
  const UniqueFd listener = listen();
  std::jthread daemon([&] {
    {
      const UniqueFd client(::accept(listener.get(), nullptr, nullptr));
      wire::MessageContext context;
      wire::Router router = wire::Router::create(context).value();
      let_in(client, router, [] {});
      wire::Parcel message;
      wire::PeerId peer = 0;
      wire::Waitable items[] = {{.socket = &router}};
      while (!router.receive(peer, message).value()) wire::wait(items, std::chrono::milliseconds(100));  // until it is in
    }
    serve_one_question_after_pings(listener, 1, be_late);
  });
  Pool pool = Pool::connect({.directory = directory_,
                             .reconnect_timeout = std::chrono::seconds(60),
                             .control_timeout = std::chrono::milliseconds(100)})
                  .value();
  const auto models = pool.list();
  EXPECT_TRUE(models.ok()) << models.status().to_string();
}

TEST_F(PoolTest, AControlTimeoutOfNothingIsRefused) {
  const auto pool = Pool::connect({.directory = directory_, .control_timeout = std::chrono::nanoseconds(0)});
  EXPECT_EQ(pool.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(pool.status().message().find("control_timeout"), std::string::npos);
}

// A daemon binds the socket of a client. One that only says so gets no file made or removed.
TEST_F(PoolTest, AClientMakesAndRemovesNoFile) {
  const std::string precious = directory_ + "/precious";
  std::ofstream(precious) << "mine";
  const UniqueFd listener = listen();
  std::jthread daemon([&] {
    for (const std::string& path : {precious, directory_ + "/c1", std::string()}) {
      const UniqueFd client(::accept(listener.get(), nullptr, nullptr));
      EXPECT_TRUE(wire::receive_control(client.get(), true).ok());
      EXPECT_TRUE(wire::send_control(client.get(), {.kind = wire::ControlKind::kPath, .id = 1, .text = path}).ok());
      EXPECT_FALSE(wire::receive_control(client.get(), true).ok()) << "it has left";
    }
  });
  for (int i = 0; i < 3; ++i) {
    const auto pool = Pool::connect({.directory = directory_, .connect_timeout = std::chrono::milliseconds(200)});
    EXPECT_EQ(pool.status().code(), StatusCode::kUnavailable) << pool.status().to_string();
    EXPECT_NE(pool.status().message().find("not bound"), std::string::npos) << pool.status().to_string();
  }
  EXPECT_TRUE(std::filesystem::is_regular_file(precious));
  EXPECT_FALSE(std::filesystem::exists(directory_ + "/c1"));
}

constexpr uid_t kOwner = 64321, kClient = 64322;

/// While it exists, this process acts as that user, who is not root.
class ActingAs {
 public:
  explicit ActingAs(uid_t user) {
    EXPECT_EQ(::setegid(user), 0);
    EXPECT_EQ(::seteuid(user), 0);
  }
  ~ActingAs() {
    EXPECT_EQ(::seteuid(0), 0);
    EXPECT_EQ(::setegid(0), 0);
  }
  ActingAs(const ActingAs&) = delete;
  ActingAs& operator=(const ActingAs&) = delete;
};

TEST_F(PoolTest, ADaemonIsTrustedOnlyIfNoStrangerCanHavePutItThere) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can act as other users";
  // A user makes /tmp/shoal-.../daemon, where another user expects a daemon.
  const std::string theirs = directory_ + "/daemon";
  std::filesystem::permissions(directory_, std::filesystem::perms(0777));
  UniqueFd listener;
  {
    const ActingAs owner(kOwner);
    std::filesystem::create_directory(theirs);
    std::filesystem::permissions(theirs, std::filesystem::perms(0755));
    listener = listen(theirs);  // SO_PEERCRED: whoever listened
    EXPECT_EQ(::chmod((theirs + "/attach").c_str(), 0777), 0);
  }
  const auto refusal = [&](uid_t user) {
    const ActingAs client(user);
    return Pool::connect({.directory = theirs, .connect_timeout = std::chrono::milliseconds(50)}).status();
  };
  const Status stranger = refusal(kClient);
  EXPECT_EQ(stranger.code(), StatusCode::kPermissionDenied) << stranger.to_string();
  EXPECT_NE(stranger.message().find("SHOAL_DAEMON_USER=64321"), std::string::npos) << stranger.to_string();
  EXPECT_EQ(refusal(kOwner).code(), StatusCode::kUnavailable) << "its own daemon is trusted, and says nothing here";
  ::setenv("SHOAL_DAEMON_USER", "64321", 1);
  EXPECT_EQ(refusal(kClient).code(), StatusCode::kUnavailable) << "trusted by its number";
  ::setenv("SHOAL_DAEMON_USER", "64320", 1);
  EXPECT_EQ(refusal(kClient).code(), StatusCode::kPermissionDenied) << "another number";
  ::setenv("SHOAL_DAEMON_USER", "shoal", 1);
  const Status name = refusal(kClient);
  EXPECT_EQ(name.code(), StatusCode::kInvalidArgument) << name.to_string();
  EXPECT_NE(name.message().find("id -u"), std::string::npos) << name.to_string();
  ::unsetenv("SHOAL_DAEMON_USER");
  EXPECT_EQ(refusal(kClient).code(), StatusCode::kPermissionDenied);
}

// As systemd makes /run/shoal for the user shoal.
TEST_F(PoolTest, TheOwnerOfADirectoryThatRootMadeIsTrusted) {
  struct stat run {};
  if (::geteuid() != 0 || ::stat("/run", &run) != 0 || run.st_uid != 0 || (run.st_mode & 022) != 0)
    GTEST_SKIP() << "needs root, and a directory /run that only root writes to";
  std::string base = "/run/shoal-test-XXXXXX";
  ASSERT_NE(::mkdtemp(base.data()), nullptr);
  const std::string theirs = base + "/daemon", link = directory_ + "/link";
  std::filesystem::permissions(base, std::filesystem::perms(0755));
  std::filesystem::permissions(directory_, std::filesystem::perms(0755));
  std::filesystem::create_directory(theirs);
  ASSERT_EQ(::chown(theirs.c_str(), kOwner, kOwner), 0);
  UniqueFd listener;
  {
    const ActingAs owner(kOwner);
    listener = listen(theirs);
    EXPECT_EQ(::chmod((theirs + "/attach").c_str(), 0777), 0);
  }
  std::filesystem::create_directory_symlink(theirs, link);
  const auto code_at = [&](const std::string& directory) {
    const ActingAs client(kClient);
    return Pool::connect({.directory = directory, .connect_timeout = std::chrono::milliseconds(50)}).status().code();
  };
  EXPECT_EQ(code_at(theirs), StatusCode::kUnavailable) << "trusted, and says nothing";
  EXPECT_EQ(code_at(theirs + "/"), StatusCode::kUnavailable);
  EXPECT_EQ(code_at(link), StatusCode::kPermissionDenied) << "anybody could have made the link in /tmp";
  ASSERT_EQ(::chmod(base.c_str(), 0775), 0);
  EXPECT_EQ(code_at(theirs), StatusCode::kPermissionDenied) << "a group could have made the directory";
  ASSERT_EQ(::chmod(base.c_str(), 01777), 0);
  EXPECT_EQ(code_at(theirs), StatusCode::kPermissionDenied) << "like /tmp";
  ASSERT_EQ(::chmod(base.c_str(), 0755), 0);
  ASSERT_EQ(::chown(theirs.c_str(), kClient + 1, kOwner), 0);
  EXPECT_EQ(code_at(theirs), StatusCode::kPermissionDenied) << "the daemon does not own the directory";
  std::filesystem::remove_all(base);
}

TEST_F(PoolTest, ADirectoryWhosePathIsTooLongIsRefused) {
  const auto pool = Pool::connect({.directory = directory_ + std::string(100, 'x')});
  EXPECT_EQ(pool.status().code(), StatusCode::kInvalidArgument);
}

// libzmq aborts the program then.
TEST(Pool, IsAnErrorIfItsThreadsCannotBeStarted) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer has a thread of its own";
#endif
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become a user who has no other threads";
  const int code = test::exit_code_of([] {
    constexpr uid_t kNobodyElse = 64'125;
    const rlimit two{2, 2};
    if (::setrlimit(RLIMIT_NPROC, &two) != 0 || ::setresuid(kNobodyElse, kNobodyElse, kNobodyElse) != 0) return 2;
    const Status status = Pool::connect({.directory = "/nowhere"}).status();
    return status.code() == StatusCode::kUnavailable && status.message().find("ulimit -u") != std::string::npos ? 0 : 1;
  });
  EXPECT_EQ(code, 0);
}

}  // namespace
}  // namespace shoal
