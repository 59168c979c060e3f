#include "supervisor/plane/clients.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "shm/base/clock.hpp"
#include "shm/segment/segment.hpp"
#include "tests/support/child_process.hpp"
#include "tests/support/no_descriptors.hpp"
#include "tests/support/scratch_directory.hpp"
#include "tests/support/sparse_memfd.hpp"
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

/// A process of its own that has connected, and whose end of the connection the test holds.
class OtherProcess {
 public:
  explicit OtherProcess(const std::string& path) {
    wire::ControlPair pair = wire::make_control_pair().value();
    pid_ = test::start_child([&] {
      // Copies of connections that the test closes must be gone before it goes on, or the daemon hears of no hang-up.
      const unsigned theirs = static_cast<unsigned>(pair.theirs.get());
      if (theirs > 3) ::close_range(3, theirs - 1, 0);
      ::close_range(theirs + 1, ~0U, 0);
      wire::ControlMessage hello;
      hello.fds.push_back(test::connected_socket(path, SOCK_SEQPACKET | SOCK_NONBLOCK));
      if (!wire::send_control(pair.theirs.get(), hello).ok()) return 1;
      return ::pause();
    });
    pollfd waiting{.fd = pair.ours.get(), .events = POLLIN, .revents = 0};
    EXPECT_EQ(::poll(&waiting, 1, 10'000), 1);
    auto hello = wire::receive_control(pair.ours.get());
    EXPECT_TRUE(hello.ok() && *hello && (*hello)->fds.size() == 1);
    if (hello.ok() && *hello && (*hello)->fds.size() == 1) connection = std::move((*hello)->fds[0]);
  }
  ~OtherProcess() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  OtherProcess(const OtherProcess&) = delete;
  OtherProcess& operator=(const OtherProcess&) = delete;

  UniqueFd connection;

 private:
  pid_t pid_ = -1;
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
  static bool pollfd_is_readable(int fd) {
    pollfd waiting{.fd = fd, .events = POLLIN, .revents = 0};
    return ::poll(&waiting, 1, 0) == 1;
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
  const Clock clock_{};
  Clients clients_{clock_, directory_, loop_, observer_, log_};
};

TEST_F(ClientsTest, SilentClientsAreDisconnectedAFewAtATimeAndOthersAreNot) {
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

// Neither the connection nor the reserve gets a descriptor. The loop must not turn round and round meanwhile.
TEST_F(ClientsTest, WithoutAnyDescriptorConnectionsWaitAndNothingSpins) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "UndefinedBehaviorSanitizer needs descriptors";
#endif
  const UniqueFd client = connect();
  {
    const test::NoDescriptors none;
    for (int i = 0; i < 3; ++i) {
      serve();
      EXPECT_FALSE(pollfd_is_readable(loop_.fd())) << "the loop would spin";
      ASSERT_TRUE(clients_.next_tick_ns().has_value()) << "it is tried again";
      EXPECT_GT(*clients_.next_tick_ns(), monotonic_now_ns());
      clients_.tick(*clients_.next_tick_ns());
    }
  }
  serve();
  EXPECT_EQ(clients_.count(), 1u) << "it waited";
}

TEST_F(ClientsTest, ADaemonThatDrainsRefusesNewClientsWithItsReason) {
  clients_.refuse_new("the daemon is stopping");
  const UniqueFd client = connect();
  serve();
  expect_refused(client, StatusCode::kUnavailable, "the daemon is stopping");
}

TEST_F(ClientsTest, AClientThatDoesNotAttachInTimeIsDisconnected) {
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

TEST_F(ClientsTest, OneProcessCannotTakeAllPlaces) {
  clients_.limit_connections(8, 0);
  std::vector<UniqueFd> own;
  for (int i = 0; i < 6; ++i) own.push_back(attach());
  const UniqueFd surplus = connect();
  serve();
  expect_refused(surplus, StatusCode::kOverloaded, "this process has 6 of the 8 places");
  const OtherProcess first(directory_.attach_path()), second(directory_.attach_path());
  serve();
  EXPECT_EQ(clients_.count(), 8u);
}

TEST_F(ClientsTest, ConnectingAndHangingUpTakesOthersNoTurn) {
  clients_.limit_connections(0, 10);  // after a pause 20
  for (int i = 0; i < 200; ++i) {
    connect();  // and hangs up
    serve();
  }
  const OtherProcess other(directory_.attach_path());
  serve();
  EXPECT_EQ(clients_.count(), 1u);
}

TEST_F(ClientsTest, MessagesOutOfTurnEndTheConnection) {
  const UniqueFd client = attach();
  ASSERT_TRUE(wire::send_control(client.get(), {.kind = wire::ControlKind::kAttach}).ok());
  serve();
  expect_refused(client, StatusCode::kInvalidArgument, "unexpected message");
  EXPECT_EQ(clients_.count(), 0u);
}

TEST_F(ClientsTest, AClientThatCannotBeReachedAtItsPathIsDisconnectedWithTheReason) {
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

class ClientArenasTest : public ClientsTest {
 protected:
  static constexpr std::uint64_t kGb = std::uint64_t{1} << 30;
  ClientArenasTest() {
    clients_.limit_connections(16, 0);
    clients_.limit_arenas(64 * kGb);  // 1 GiB for each, and 48 for all
  }
  /// Attaches two arenas. They are sparse, so that they cost nothing but addresses.
  void attach_arenas(const UniqueFd& socket, std::uint64_t bytes) {
    wire::ControlMessage message{.kind = wire::ControlKind::kAttach};
    message.fds.push_back(test::sparse_memfd(bytes));
    message.fds.push_back(test::sparse_memfd(bytes));
    EXPECT_TRUE(seal(message.fds[0], Seals::kOneWriter).ok() && seal(message.fds[1], Seals::kFixedSize).ok());
    EXPECT_TRUE(wire::send_control(socket.get(), message).ok());
    serve();
  }
  std::unique_ptr<OtherProcess> other_process(std::uint64_t bytes) {
    auto other = std::make_unique<OtherProcess>(directory_.attach_path());
    attach_arenas(other->connection, bytes);
    return other;
  }
};

TEST_F(ClientArenasTest, AllTogetherAreLimitedUntilTheLastRequestOfEachIsOver) {
  auto large = other_process(12 * kGb);
  EXPECT_EQ(receive(large->connection).kind, wire::ControlKind::kPath);
  EXPECT_EQ(clients_.arena_bytes(), 24 * kGb);
  expect_refused(other_process(12 * kGb)->connection, StatusCode::kOverloaded, "total_arena_gb");
  EXPECT_EQ(clients_.arena_bytes(), 24 * kGb) << "who is refused has nothing";
  const auto half = other_process(6 * kGb), small = other_process(kGb / 2);
  EXPECT_EQ(receive(half->connection).kind, wire::ControlKind::kPath);
  EXPECT_EQ(receive(small->connection).kind, wire::ControlKind::kPath);
  ++clients_.find(1)->outstanding;
  large.reset();
  ASSERT_TRUE(pollfd_is_readable(loop_.fd()));
  serve();
  EXPECT_EQ(clients_.find(1), nullptr);
  EXPECT_EQ(clients_.arena_bytes(), 37 * kGb) << "its request may run still";
  expect_refused(other_process(12 * kGb)->connection, StatusCode::kOverloaded, "total_arena_gb");
  clients_.release(1);
  EXPECT_EQ(clients_.arena_bytes(), 13 * kGb);
  EXPECT_EQ(receive(other_process(8 * kGb)->connection).kind, wire::ControlKind::kPath);
}

// 16 connections of one process would have the parts of 16, and leave nothing to others.
TEST_F(ClientArenasTest, ManyConnectionsOfOneProcessHaveOnePart) {
  std::vector<UniqueFd> greedy;
  for (int i = 0; i < 12; ++i) {
    greedy.push_back(connect());
    attach_arenas(greedy.back(), 2 * kGb);
    const wire::ControlMessage answer = receive(greedy.back());
    if (answer.kind == wire::ControlKind::kPath) continue;
    EXPECT_NE(answer.text.find("total_arena_gb"), std::string::npos) << answer.text;
  }
  EXPECT_EQ(clients_.arena_bytes(), 24 * kGb) << "half of what is for everyone";
  const auto modest = other_process(5 * kGb);
  EXPECT_EQ(receive(modest->connection).kind, wire::ControlKind::kPath);
  greedy.clear();
  serve();
  UniqueFd again = connect();
  attach_arenas(again, 9 * kGb);
  EXPECT_EQ(receive(again).kind, wire::ControlKind::kPath) << "nothing is left of its connections";
}

// A lease (F_SETLEASE) makes open() wait up to 45 s.
TEST_F(ClientsTest, AnArenaWithALeaseIsRefusedAtOnce) {
  struct sigaction ignore {
  }, before{};
  ignore.sa_handler = SIG_IGN;
  ASSERT_EQ(::sigaction(SIGIO, &ignore, &before), 0);
  const UniqueFd client = connect();
  wire::ControlMessage message{.kind = wire::ControlKind::kAttach};
  UniqueFd input = create_memfd("test", 4096).value();
  ASSERT_TRUE(seal(input, Seals::kOneWriter).ok());
  message.fds.emplace_back(::open(format("/proc/self/fd/{}", input.get()).c_str(), O_RDWR | O_CLOEXEC));
  message.fds.push_back(create_memfd("test", 4096).value());
  ASSERT_TRUE(seal(message.fds[1], Seals::kFixedSize).ok());
  input.reset();
  ASSERT_EQ(::fcntl(message.fds[0].get(), F_SETLEASE, F_WRLCK), 0) << std::strerror(errno);
  ASSERT_TRUE(wire::send_control(client.get(), message).ok());
  const std::uint64_t begin_ns = monotonic_now_ns();
  serve();
  EXPECT_LT(monotonic_now_ns() - begin_ns, 10'000'000'000u);
  expect_refused(client, StatusCode::kInvalidArgument, "lease");
  ::sigaction(SIGIO, &before, nullptr);
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
