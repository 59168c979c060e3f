#include "shoal/pool.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "shm/wire/control.hpp"
#include "shm/wire/messages.hpp"
#include "shm/wire/socket.hpp"
#include "tests/support/scratch_directory.hpp"
#include "tests/support/unix_socket.hpp"

namespace shoal {
namespace {

using ControlAnswer = Result<std::optional<wire::ControlMessage>>;

// A directory with an attach socket that behaves as the test wants.
class PoolTest : public testing::Test {
 protected:
  UniqueFd listen() const { return listen(directory_); }
  static UniqueFd listen(const std::string& directory) {
    UniqueFd fd = test::bound_socket(directory + "/attach", SOCK_SEQPACKET);
    EXPECT_TRUE(fd);
    return fd;
  }

  static ControlAnswer meet_client(
      const UniqueFd& listener, const std::string& path, const std::function<void()>& before_path,
      const std::function<void()>& when_bound = [] {});

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
    EXPECT_EQ((*attach)->fds.size(), 2u);
    EXPECT_TRUE(wire::send_control(client.get(), {.kind = wire::ControlKind::kRefused, .a = 12, .text = "not your daemon"}).ok());
  });
  const auto pool = Pool::connect({.directory = directory_});
  EXPECT_EQ(pool.status().code(), StatusCode::kPermissionDenied);
  EXPECT_NE(pool.status().message().find("not your daemon"), std::string::npos);
}

TEST_F(PoolTest, ADaemonThatSaysNothingIsGivenUp) {
  const UniqueFd listener = listen();
  const auto pool = Pool::connect({.directory = directory_, .connect_timeout = std::chrono::milliseconds(50)});
  EXPECT_EQ(pool.status().code(), StatusCode::kUnavailable);
}

// Up to WELCOME. `before_path` is called when the client has attached.
void PoolTest::let_in(const UniqueFd& client, wire::Router& router, const std::function<void()>& before_path) const {
  const std::string path = directory_ + "/c1";
  EXPECT_TRUE(wire::receive_control(client.get(), true).ok());
  before_path();
  EXPECT_TRUE(wire::send_control(client.get(), {.kind = wire::ControlKind::kPath, .id = 1, .text = path}).ok());
  EXPECT_TRUE(wire::receive_control(client.get(), true).ok());
  EXPECT_TRUE(router.connect(path, 1).ok());
  const wire::ControlHeader welcome = wire::make_control(wire::Kind::kWelcome, 0);
  EXPECT_TRUE(router.send(1, std::as_bytes(std::span(&welcome, 1))).ok());
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
    EXPECT_TRUE(router.send(1, wire::Frames(frames)).ok());
  };
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  std::uint64_t question = 0;
  while (pings > 0 && std::chrono::steady_clock::now() < end) {
    wire::Waitable items[] = {{.socket = &router}};
    wire::wait(items, std::chrono::milliseconds(100));
    wire::Message message;
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

// A daemon that lets one client in, up to BOUND, and then ends: `before_path` is called when it has attached. Returns what the
// client then said.
ControlAnswer PoolTest::meet_client(const UniqueFd& listener, const std::string& path, const std::function<void()>& before_path,
                                    const std::function<void()>& when_bound) {
  const UniqueFd client(::accept(listener.get(), nullptr, nullptr));
  EXPECT_TRUE(wire::receive_control(client.get(), true).ok());
  before_path();
  EXPECT_TRUE(wire::send_control(client.get(), {.kind = wire::ControlKind::kPath, .id = 1, .text = path}).ok());
  ControlAnswer said = wire::receive_control(client.get(), true);
  when_bound();
  return said;
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
      wire::Message message;
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

TEST_F(PoolTest, AClientTouchesNoFileOutsideTheDaemonsDirectory) {
  const std::string precious = directory_ + "/precious";
  std::filesystem::create_directory(directory_ + "/daemon");
  std::ofstream(precious) << "mine";
  const UniqueFd listener = listen(directory_ + "/daemon");
  std::jthread daemon([&] {
    const auto said = meet_client(
        listener, precious, [] {}, [&] { EXPECT_TRUE(std::filesystem::is_socket(directory_ + "/daemon/precious")); });
    EXPECT_EQ((*said)->kind, wire::ControlKind::kBound);
  });
  EXPECT_FALSE(Pool::connect({.directory = directory_ + "/daemon", .connect_timeout = std::chrono::milliseconds(200)}).ok());
  daemon.join();
  EXPECT_TRUE(std::filesystem::is_regular_file(precious));
  EXPECT_FALSE(std::filesystem::exists(directory_ + "/daemon/precious"));  // what it made it removed
}

TEST_F(PoolTest, RootTouchesFilesInAnotherUsersDirectoryAsThatUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root has more rights than the daemon's user";
  constexpr uid_t kNobody = 65534;
  const std::string theirs = directory_ + "/daemon", roots = directory_ + "/roots";
  std::filesystem::create_directory(theirs);
  std::filesystem::create_directory(roots);
  std::ofstream(roots + "/c1") << "root's";
  std::filesystem::permissions(directory_, std::filesystem::perms(0711));
  ASSERT_EQ(::chown(theirs.c_str(), kNobody, kNobody), 0);
  ASSERT_EQ(::setegid(kNobody), 0);
  ASSERT_EQ(::seteuid(kNobody), 0);
  const UniqueFd listener = listen(theirs);  // SO_PEERCRED: whoever listened
  ASSERT_EQ(::seteuid(0), 0);
  ASSERT_EQ(::setegid(0), 0);
  {
    std::jthread daemon([&] {
      const auto said = meet_client(
          listener, theirs + "/c1", [] {},
          [&] {
            struct stat made {};
            EXPECT_EQ(::stat((theirs + "/c1").c_str(), &made), 0);
            EXPECT_EQ(made.st_uid, kNobody);
          });
      EXPECT_EQ((*said)->kind, wire::ControlKind::kBound);
    });
    EXPECT_FALSE(Pool::connect({.directory = theirs, .connect_timeout = std::chrono::milliseconds(200)}).ok());
  }
  // Now its directory is another one by the time the path comes.
  std::jthread daemon([&] {
    const auto said = meet_client(listener, theirs + "/c1", [&] {
      std::filesystem::rename(theirs, directory_ + "/elsewhere");
      std::filesystem::create_symlink(roots, theirs);
    });
    EXPECT_FALSE(said.ok()) << "the client bound in root's directory";
  });
  const auto pool = Pool::connect({.directory = theirs, .connect_timeout = std::chrono::milliseconds(200)});
  EXPECT_EQ(pool.status().code(), StatusCode::kPermissionDenied) << pool.status().to_string();
  EXPECT_TRUE(std::filesystem::is_regular_file(roots + "/c1"));
}

TEST_F(PoolTest, AnotherUsersDaemonIsNotUsed) {
  if (::geteuid() != 0) GTEST_SKIP() << "another user is needed";
  const UniqueFd listener = listen(directory_);
  std::filesystem::permissions(directory_, std::filesystem::perms(0777));
  std::filesystem::permissions(directory_ + "/attach", std::filesystem::perms(0777));
  ASSERT_EQ(::seteuid(65534), 0);
  const auto pool = Pool::connect({.directory = directory_});
  ASSERT_EQ(::seteuid(0), 0);
  EXPECT_EQ(pool.status().code(), StatusCode::kPermissionDenied) << pool.status().to_string();
}

TEST_F(PoolTest, ADirectoryWhosePathIsTooLongIsRefused) {
  const auto pool = Pool::connect({.directory = directory_ + std::string(100, 'x')});
  EXPECT_EQ(pool.status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace shoal
