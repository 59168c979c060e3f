#include "supervisor/clients.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <filesystem>

#include "shm/base/clock.hpp"
#include "tests/support/scratch_directory.hpp"
#include "tests/support/unix_socket.hpp"

namespace shoal::supervisor {
namespace {

namespace fs = std::filesystem;

struct Observer final : ClientObserver {
  Status client_bound(Client&) override { return bound; }
  void client_gone(Client&) override { ++gone; }
  void client_forgotten(Client&) override { ++forgotten; }
  Status bound;
  int gone = 0, forgotten = 0;
};

/// The daemon's side of the attach socket, and clients made by hand.
class ClientsTest : public testing::Test {
 protected:
  ClientsTest() { EXPECT_TRUE(clients_.listen().ok()); }

  UniqueFd connect() const {
    UniqueFd socket = test::connected_socket(directory_.attach_path(), SOCK_SEQPACKET | SOCK_NONBLOCK);
    EXPECT_TRUE(socket);
    return socket;
  }
  void serve() {  // connections and messages are there already: the sockets are local
    for (int i = 0; i < 4; ++i) loop_.run_ready();
  }
  static wire::ControlMessage receive(const UniqueFd& socket) {
    auto received = wire::receive_control(socket.get());
    EXPECT_TRUE(received.ok()) << received.status().to_string();
    return received.ok() && *received ? *std::move(*received) : wire::ControlMessage{};
  }
  // ATTACH, and the path that comes back.
  UniqueFd attach() {
    UniqueFd socket = connect();
    EXPECT_TRUE(wire::send_control(socket.get(), {.kind = wire::ControlKind::kAttach}).ok());
    serve();
    EXPECT_EQ(receive(socket).kind, wire::ControlKind::kPath);
    return socket;
  }
  static void expect_refused(const UniqueFd& socket, StatusCode code, const std::string& why) {
    const wire::ControlMessage refusal = receive(socket);
    EXPECT_EQ(refusal.kind, wire::ControlKind::kRefused);
    EXPECT_EQ(refusal.a, static_cast<std::uint64_t>(code)) << refusal.text;
    EXPECT_NE(refusal.text.find(why), std::string::npos) << refusal.text;
  }

  const test::ScratchDirectory scratch_;
  SocketDirectory directory_ = SocketDirectory::open(scratch_.path()).value();
  EventLoop loop_;
  Observer observer_;
  Logger log_{"test"};
  Clients clients_{directory_, loop_, observer_, log_};
};

TEST_F(ClientsTest, ManyWhoSayNothingArePutOutAFewAtATimeAndNobodyElseIs) {
  UniqueFd speaking = attach();
  ASSERT_TRUE(wire::send_control(speaking.get(), {.kind = wire::ControlKind::kBound}).ok());
  serve();
  clients_.welcomed(*clients_.find(1));
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 100; ++i) silent.push_back(connect());
  for (int i = 0; i < 10; ++i) serve();
  ASSERT_EQ(clients_.count(), 101u);
  const std::uint64_t late_ns = monotonic_now_ns() + Clients::kHandshakeLimitNs;
  ASSERT_TRUE(clients_.next_tick_ns().has_value());
  EXPECT_LE(*clients_.next_tick_ns(), late_ns);
  for (std::size_t before = clients_.count(); before > 1; before = clients_.count()) {
    clients_.tick(late_ns);
    ASSERT_LT(clients_.count(), before);
    ASSERT_GE(clients_.count() + 20, before);  // requests have their turn between
  }
  EXPECT_FALSE(clients_.next_tick_ns().has_value());
  EXPECT_NE(clients_.find(1), nullptr);
  for (const UniqueFd& one : silent) expect_refused(one, StatusCode::kUnavailable, "no ATTACH within 2 s");
}

TEST_F(ClientsTest, AClientHearsItWhenTheDaemonHasNoDescriptorsLeft) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP()
      << "UndefinedBehaviorSanitizer looks at objects through a pipe, and says they are none when it gets no descriptors";
#endif
  const UniqueFd first = connect(), second = connect();  // both wait to be accepted
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit low{128, limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  std::vector<UniqueFd> all;
  while (UniqueFd one{::open("/dev/null", O_RDONLY | O_CLOEXEC)}) all.push_back(std::move(one));
  serve();
  expect_refused(first, StatusCode::kUnavailable, "no file descriptors left");
  expect_refused(second, StatusCode::kUnavailable, "no file descriptors left");  // so the reserve was taken again
  EXPECT_EQ(clients_.count(), 0u);
  all.clear();
  const UniqueFd third = attach();
  EXPECT_EQ(clients_.count(), 1u);
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

TEST_F(ClientsTest, ADaemonThatDrainsRefusesNewClientsWithItsReason) {
  clients_.refuse_new("the daemon is stopping");
  const UniqueFd client = connect();
  serve();
  expect_refused(client, StatusCode::kUnavailable, "the daemon is stopping");
}

TEST_F(ClientsTest, AClientThatDoesNotAttachInTimeIsPutOut) {
  const UniqueFd client = connect();
  serve();
  ASSERT_TRUE(clients_.next_tick_ns().has_value());
  clients_.tick(*clients_.next_tick_ns() - 1);
  EXPECT_EQ(clients_.count(), 1u);
  clients_.tick(*clients_.next_tick_ns());
  EXPECT_EQ(clients_.count(), 0u);
  expect_refused(client, StatusCode::kUnavailable, "no ATTACH within 2 s");
  EXPECT_FALSE(clients_.next_tick_ns().has_value());
  EXPECT_EQ(observer_.forgotten, 1);
}

TEST_F(ClientsTest, MessagesOutOfTurnEndTheConnection) {
  const UniqueFd client = attach();
  ASSERT_TRUE(wire::send_control(client.get(), {.kind = wire::ControlKind::kAttach}).ok());
  serve();
  expect_refused(client, StatusCode::kInvalidArgument, "where it does not belong");
  EXPECT_EQ(clients_.count(), 0u);
}

TEST_F(ClientsTest, AClientThatCannotBeReachedAtItsPathIsPutOutWithTheReason) {
  observer_.bound = Status(StatusCode::kInternal, "connect: no such file");
  const UniqueFd client = attach();
  ASSERT_TRUE(wire::send_control(client.get(), {.kind = wire::ControlKind::kBound}).ok());
  serve();
  expect_refused(client, StatusCode::kInvalidArgument, "connect: no such file");
}

TEST_F(ClientsTest, DescriptorsThatAreNoArenasAreRefusedByName) {
  const auto refused_for = [&](std::vector<UniqueFd> fds, const std::string& why) {
    const UniqueFd client = connect();
    wire::ControlMessage message{.kind = wire::ControlKind::kAttach};
    message.fds = std::move(fds);
    ASSERT_TRUE(wire::send_control(client.get(), message).ok());
    serve();
    expect_refused(client, StatusCode::kInvalidArgument, why);
  };
  const auto null = [] { return UniqueFd(::open("/dev/null", O_RDWR | O_CLOEXEC)); };
  std::vector<UniqueFd> fds;
  fds.push_back(null());
  refused_for(std::move(fds), "1 descriptors instead of two");
  fds.clear();
  fds.push_back(null());
  fds.push_back(null());
  refused_for(std::move(fds), "input arena");
}

TEST_F(ClientsTest, AGoneClientStaysKnownUntilItsLastRequestIsOver) {
  UniqueFd socket = attach();
  ASSERT_TRUE(wire::send_control(socket.get(), {.kind = wire::ControlKind::kBound}).ok());
  serve();
  Client* client = clients_.find(1);
  ASSERT_NE(client, nullptr);
  clients_.welcomed(*client);
  EXPECT_EQ(client->state, Client::State::kReady);
  ++client->outstanding;
  socket.reset();
  serve();
  EXPECT_EQ(clients_.find(1), nullptr);
  EXPECT_EQ(observer_.gone, 1);
  EXPECT_EQ(observer_.forgotten, 0);
  clients_.release(1);
  EXPECT_EQ(observer_.forgotten, 1);
  EXPECT_EQ(clients_.count(), 0u);
}

}  // namespace
}  // namespace shoal::supervisor
