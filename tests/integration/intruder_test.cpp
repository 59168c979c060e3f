// Peers that break the protocol: each is told why it is refused, and others do not notice.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <random>
#include <string_view>
#include <vector>

#include "tests/integration/handmade_peer.hpp"
#include "tests/integration/raw_client.hpp"
#include "tests/integration/raw_packets.hpp"
#include "tests/support/pool_fixture.hpp"
#include "tests/support/process_sample.hpp"
#include "tests/support/says.hpp"
#include "tests/support/tcp_connection.hpp"

namespace shoal::test {
namespace {

/// A TCP connection over which no more bytes fit. The last close() of `socket` lingers for 5 s.
struct Lingering {
  UniqueFd peer, socket;
  Lingering() {
    socket = tcp_connection(peer);
    const std::vector<char> bytes(1 << 16);
    while (::send(socket.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
    }
    const linger on{.l_onoff = 1, .l_linger = 5};
    EXPECT_EQ(::setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &on, sizeof on), 0);
  }
};

class IntruderTest : public testing::Test {
 protected:
  using Clock = std::chrono::steady_clock;

  ~IntruderTest() override {
    // After each test the same daemon and the same workers still serve.
    EXPECT_TRUE(is_alive(daemon_.pid()));
    EXPECT_EQ(daemon_.workers(), workers_);
    Pool pool = daemon_.connect();
    EXPECT_TRUE(pool.predict("echo", {{"data", counting({4})}}).ok());
  }
  /// The daemon is stopped while `send` sends a socket that lingers and this process closes its own. So the daemon has the last
  /// descriptor of it. Expects that an honest client does not wait for the daemon's close().
  template <typename Send>
  void expect_no_wait_for(Send send) {
    intruder_.connect();
    expect_no_wait_on(intruder_.attach_socket(), send, [this] {
      while (intruder_.receive_control()) {  // why it was refused
      }
    });
  }
  /// Likewise, on the connection for messages. libzmq reads it, and knows nothing of descriptors.
  template <typename Send>
  void expect_no_wait_on_messages_for(Send send) {
#if defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "such a daemon does not guard its streams";
#endif
    HandmadePeer peer(daemon_.directory());
    peer.be_welcomed();
    expect_no_wait_on(peer.fd(), send, [] {});
  }
  template <typename Send, typename Then>
  void expect_no_wait_on(int socket, Send send, Then then) {
    Pool honest = daemon_.connect();
    EXPECT_TRUE(honest.predict("echo", {{"data", counting({4})}}).ok());
    Lingering tcp;
    stop_process(daemon_.pid());
    send(socket, tcp.socket);
    tcp.socket.reset();
    ASSERT_EQ(::kill(daemon_.pid(), SIGCONT), 0);
    Clock::duration longest{};
    bool is_out = false;
    for (const auto begin = Clock::now(); Clock::now() - begin < std::chrono::seconds(2) || !is_out;) {
      const auto sent = Clock::now();
      EXPECT_TRUE(honest.predict("echo", {{"data", counting({4})}}).ok());
      longest = std::max(longest, Clock::now() - sent);
      if (!is_out) then();
      is_out = true;
    }
    EXPECT_LT(longest, std::chrono::seconds(1));
  }
  static StatusCode status_of(const wire::Reply& reply) { return static_cast<StatusCode>(reply.header.status); }

  DaemonFixture daemon_{{.limits = "client_bad_messages = 0\nconnection_rate = 0"}};
  std::vector<pid_t> workers_ = daemon_.workers();
  RawClient intruder_{daemon_.directory()};
};

/// The last close() of `holder` takes as long as a connection lingers that waits in it.
struct Stuck {
  Lingering tcp;
  UniqueFd holder;
  Stuck() {
    const linger minute{.l_onoff = 1, .l_linger = 60};
    EXPECT_EQ(::setsockopt(tcp.socket.get(), SOL_SOCKET, SO_LINGER, &minute, sizeof minute), 0);
    int ends[2] = {-1, -1};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    holder.reset(ends[0]);
    const UniqueFd other(ends[1]);
    send_packet(other.get(), "x", std::vector(1, tcp.socket.get()));
    tcp.socket.reset();
  }
};

class StuckDescriptors : public IntruderTest {
 protected:
  /// Sends a message with as many descriptors as fit to each socket. The first ones keep all threads busy that close them.
  void send_to(const std::vector<int>& sockets) {
    constexpr std::size_t kMost = 253;
    const UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    for (std::size_t i = 0; i < sockets.size(); ++i) {
      const bool is_stuck = i < stuck_.size();
      send_packet(sockets[i], "x", std::vector(is_stuck ? 1 : kMost, is_stuck ? stuck_[i].holder.get() : null.get()));
      if (is_stuck) stuck_[i].holder.reset();
    }
  }
  /// Requests of another client go on meanwhile.
  void expect_that_few_are_collected() {
    int most = 0;
    for (const auto start = Clock::now(); Clock::now() - start < std::chrono::seconds(1);) {
      most = std::max(most, descriptors_of(daemon_.pid()));
      EXPECT_TRUE(honest_.predict("echo", {{"data", counting({4})}}).ok());
    }
    EXPECT_LT(most, before_ + 1200);
    EXPECT_GT(descriptors_of(daemon_.pid()), before_ + 256) << "nothing is stuck";
  }
  /// The daemon stands still while they are sent, so that it, and not this process, has the last descriptor of each.
  void expect_that_few_are_collected_from(const std::vector<int>& sockets) {
    stop_process(daemon_.pid());
    send_to(sockets);
    ASSERT_EQ(::kill(daemon_.pid(), SIGCONT), 0);
    expect_that_few_are_collected();
    stuck_.clear();
    EXPECT_TRUE(eventually([&] { return Pool::connect({.directory = daemon_.directory()}).ok(); })) << daemon_.log();
  }
  std::vector<std::unique_ptr<RawClient>> connect(std::size_t count) {
    std::vector<std::unique_ptr<RawClient>> clients;
    for (std::size_t i = 0; i < count; ++i) {
      clients.push_back(std::make_unique<RawClient>(daemon_.directory()));
      clients.back()->connect();
    }
    return clients;
  }
  static std::vector<int> attach_sockets(const std::vector<std::unique_ptr<RawClient>>& clients) {
    std::vector<int> sockets;
    for (const auto& client : clients) sockets.push_back(client->attach_socket());
    return sockets;
  }
  bool are_closed() {
    return eventually([&] { return descriptors_of(daemon_.pid()) <= before_ + 1; });
  }

  Pool honest_ = daemon_.connect();
  const int before_ = descriptors_of(daemon_.pid());
  std::vector<Stuck> stuck_{12};
};

TEST_F(StuckDescriptors, OfThoseThatAttachAreNotCollected) {
  stop_process(daemon_.pid());  // so that the daemon, and not this process, has the last descriptor of each
  const std::vector<std::unique_ptr<RawClient>> intruders = connect(100);
  send_to(attach_sockets(intruders));
  ASSERT_EQ(::kill(daemon_.pid(), SIGCONT), 0);
  expect_that_few_are_collected();
  ::kill(workers_.at(0), SIGKILL);
  const auto killed = Clock::now();
  ASSERT_TRUE(honest_.predict("echo", {{"data", counting({4})}}, {.timeout = std::chrono::seconds(2)}).ok()) << daemon_.log();
  EXPECT_LT(Clock::now() - killed, std::chrono::seconds(1)) << "the replacement";
  stuck_.clear();
  // It is connected behind all intruders. Those that the daemon has not read still have a descriptor there, and one of them alone
  // is not too much for a further client.
  EXPECT_TRUE(eventually([&] { return Pool::connect({.directory = daemon_.directory()}).ok(); })) << daemon_.log();
  EXPECT_TRUE(are_closed()) << descriptors_of(daemon_.pid());
  workers_ = daemon_.workers();
}

TEST_F(StuckDescriptors, KeepNoSocketOpenInWhichOnlyMessagesWait) {
  stop_process(daemon_.pid());
  const std::vector<std::unique_ptr<RawClient>> intruders = connect(20);
  send_to(attach_sockets(intruders));
  ASSERT_EQ(::kill(daemon_.pid(), SIGCONT), 0);
  EXPECT_TRUE(eventually([&] { return descriptors_of(daemon_.pid()) > before_ + 256; }));
  const int stuck = descriptors_of(daemon_.pid());
  stop_process(daemon_.pid());
  const std::vector<std::unique_ptr<RawClient>> others = connect(100);
  for (const int socket : attach_sockets(others)) {
    send_packet(socket, "x");
    send_packet(socket, "");
  }
  ASSERT_EQ(::kill(daemon_.pid(), SIGCONT), 0);
  for (const auto& other : others) {
    const auto refused = other->receive_control();
    ASSERT_TRUE(refused.has_value());
    EXPECT_TRUE(says(refused->text, {"close() of them takes long"})) << refused->text;
  }
  EXPECT_TRUE(eventually([&] { return descriptors_of(daemon_.pid()) < stuck + 20; }))
      << descriptors_of(daemon_.pid()) << " descriptors, and " << stuck << " before";
  stuck_.clear();
  EXPECT_TRUE(are_closed()) << descriptors_of(daemon_.pid());
}

// They have nothing to say on their attach sockets any more.
TEST_F(StuckDescriptors, OfReadyClientsAreNotCollected) {
  const auto context = std::make_shared<wire::MessageContext>();
  std::vector<std::unique_ptr<RawClient>> intruders;
  for (std::size_t i = 0; i < 100; ++i) {
    intruders.push_back(std::make_unique<RawClient>(daemon_.directory(), context));
    intruders.back()->attach();
  }
  expect_that_few_are_collected_from(attach_sockets(intruders));
  EXPECT_TRUE(are_closed()) << descriptors_of(daemon_.pid());
}

TEST_F(StuckDescriptors, AmongMessagesAreNotCollected) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "such a daemon does not guard its streams";
#endif
  std::vector<std::unique_ptr<HandmadePeer>> intruders;
  std::vector<int> sockets;
  for (std::size_t i = 0; i < 60; ++i) {
    intruders.push_back(std::make_unique<HandmadePeer>(daemon_.directory()));
    intruders.back()->be_welcomed();
    sockets.push_back(intruders.back()->fd());
  }
  expect_that_few_are_collected_from(sockets);
  intruders.clear();
  EXPECT_TRUE(are_closed()) << descriptors_of(daemon_.pid());
}

TEST_F(IntruderTest, GarbageOnTheAttachSocketEndsThatConnection) {
  std::mt19937 random(5);
  for (int round = 0; round < 50; ++round) {
    RawClient one(daemon_.directory());
    one.connect();
    std::vector<unsigned char> garbage(1 + random() % 5000);
    for (auto& byte : garbage) byte = static_cast<unsigned char>(random());
    ASSERT_GT(::send(one.attach_socket(), garbage.data(), garbage.size(), MSG_NOSIGNAL), 0);
    const auto answer = one.receive_control();
    ASSERT_TRUE(answer.has_value());
    EXPECT_EQ(answer->kind, wire::ControlKind::kRefused);
    EXPECT_FALSE(one.receive_control().has_value());  // and then the end
  }
}

TEST_F(IntruderTest, MessagesOutOfTheirOrderAreRefused) {
  for (const auto kind : {wire::ControlKind::kBound, wire::ControlKind::kReady, wire::ControlKind::kLoaded}) {
    RawClient one(daemon_.directory());
    one.connect();
    ASSERT_TRUE(wire::send_control(one.attach_socket(), {.kind = kind}).ok());
    const auto answer = one.receive_control();
    ASSERT_TRUE(answer.has_value());
    EXPECT_EQ(answer->kind, wire::ControlKind::kRefused);
  }
}

TEST_F(IntruderTest, ArenasWithoutSealsAreRefusedAndTheMissingSealIsNamed) {
  intruder_.connect();
  wire::ControlMessage hello = intruder_.make_hello();
  for (int i = 0; i < 2; ++i) hello.fds.push_back(create_memfd("open", 4096).value());
  ASSERT_TRUE(wire::send_control(intruder_.attach_socket(), hello).ok());
  const auto answer = intruder_.receive_control();
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->kind, wire::ControlKind::kRefused);
  EXPECT_NE(answer->text.find("input arena"), std::string::npos) << answer->text;
  EXPECT_NE(answer->text.find("F_SEAL"), std::string::npos) << answer->text;
}

TEST_F(IntruderTest, InputsInTheArenaOfAClientWithoutOneAreRefused) {
  intruder_.attach(0, 0);
  wire::Request request = intruder_.request(2);
  request.inputs[0] = wire::to_wire({DType::kFloat32, Shape{0, 3}, nullptr});  // no bytes, so they lie inside any arena
  request.outputs[0].capacity_bytes = 0;
  intruder_.send(request);
  EXPECT_EQ(status_of(intruder_.receive_reply()), StatusCode::kInvalidArgument);
  request.header.seq = 3;
  request.inputs[0].location = static_cast<std::uint8_t>(wire::Location::kFrame);
  std::vector<std::byte> head;
  wire::encode_request(request, head);
  const std::span<const std::byte> frames[] = {head, {}};
  intruder_.send(wire::Frames(frames));
  EXPECT_EQ(status_of(intruder_.receive_reply()), StatusCode::kOk);
}

TEST_F(IntruderTest, DescriptorsThatAreNoMemoryAreRefused) {
  for (const std::size_t count : {1u, 2u, 3u, 4u}) {
    RawClient one(daemon_.directory());
    one.connect();
    wire::ControlMessage hello{.kind = wire::ControlKind::kAttach};
    for (std::size_t i = 0; i < count; ++i) hello.fds.push_back(duplicate_fd(0).value());
    ASSERT_TRUE(wire::send_control(one.attach_socket(), hello).ok());
    const auto answer = one.receive_control();
    ASSERT_TRUE(answer.has_value());
    EXPECT_EQ(answer->kind, wire::ControlKind::kRefused);
  }
}

TEST_F(IntruderTest, NobodyWaitsForTheCloseOfADescriptorThatIsRefused) {
  expect_no_wait_for([](int attach, const UniqueFd& lingering) {
    wire::ControlMessage hello{.kind = wire::ControlKind::kAttach};
    for (int i = 0; i < 3; ++i) hello.fds.push_back(duplicate_fd(lingering.get()).value());
    ASSERT_TRUE(wire::send_control(attach, hello).ok());
  });
}

TEST_F(IntruderTest, NobodyWaitsForTheCloseOfADescriptorThatCameWithGarbage) {
  expect_no_wait_for(
      [](int attach, const UniqueFd& lingering) { send_packet(attach, "garbage", std::vector(1, lingering.get())); });
}

// The kernel itself closes what the receiver has no room for.
TEST_F(IntruderTest, NobodyWaitsForTheCloseOfSuperfluousDescriptors) {
  expect_no_wait_for([](int attach, const UniqueFd& lingering) {
    send_packet(attach, "garbage", std::vector(wire::kMaxControlFds + 5, lingering.get()));
  });
}

TEST_F(IntruderTest, NobodyWaitsForTheCloseOfDescriptorsThatWereNotRead) {
  expect_no_wait_for([](int attach, const UniqueFd& lingering) {
    ASSERT_GT(::send(attach, "garbage", 7, MSG_NOSIGNAL), 0);  // the daemon disconnects the client for this
    ASSERT_EQ(::send(attach, "", 0, MSG_NOSIGNAL), 0);
    send_packet(attach, "more", std::vector(1, lingering.get()));
  });
}

TEST_F(IntruderTest, NobodyWaitsForTheCloseOfADescriptorAmongMessages) {
  expect_no_wait_on_messages_for([](int messages, const UniqueFd& lingering) {
    send_packet(messages, zmtp::frame(0, "x"), std::vector(3, lingering.get()));
  });
}

TEST_F(IntruderTest, NobodyWaitsForTheCloseOfADescriptorBehindMessages) {
  expect_no_wait_on_messages_for([](int messages, const UniqueFd& lingering) {
    const std::string no_frame(1 << 14, '\xff');  // the daemon hangs up when it has read its beginning
    ASSERT_GT(::send(messages, no_frame.data(), no_frame.size(), MSG_NOSIGNAL), 0);
    send_packet(messages, "x", std::vector(1, lingering.get()));
  });
}

/// Whether a local stream has urgent bytes (CONFIG_AF_UNIX_OOB, Linux 5.15). A reader that did not ask for them in line skips
/// them, and the kernel closes their descriptors.
bool has_urgent_bytes() {
  int ends[2] = {-1, -1};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const UniqueFd one(ends[0]), other(ends[1]);
  return ::send(one.get(), "x", 1, MSG_OOB) == 1;
}

TEST_F(IntruderTest, NobodyWaitsForTheCloseOfADescriptorWithAnUrgentByte) {
  if (!has_urgent_bytes()) GTEST_SKIP() << "this kernel has none";
  expect_no_wait_on_messages_for([](int messages, const UniqueFd& lingering) {
    send_packet(messages, "x", std::vector(1, lingering.get()), MSG_OOB);
    ASSERT_GT(::send(messages, "y", 1, MSG_NOSIGNAL), 0);
  });
}

TEST_F(IntruderTest, NobodyWaitsForTheCloseOfADescriptorWithAnUrgentByteBehindMessages) {
  if (!has_urgent_bytes()) GTEST_SKIP() << "this kernel has none";
  expect_no_wait_on_messages_for([](int messages, const UniqueFd& lingering) {
    const std::string no_frame(1 << 14, '\xff');
    ASSERT_GT(::send(messages, no_frame.data(), no_frame.size(), MSG_NOSIGNAL), 0);
    send_packet(messages, "x", std::vector(1, lingering.get()), MSG_OOB);
  });
}

TEST_F(IntruderTest, AClientThatDoesNotListenInTimeIsDisconnectedAndThePathIsNamed) {
  intruder_.connect();
  ASSERT_TRUE(wire::send_control(intruder_.attach_socket(), intruder_.make_hello()).ok());
  const auto path = intruder_.receive_control();
  ASSERT_TRUE(path.has_value());
  const auto answer = intruder_.receive_control();
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->kind, wire::ControlKind::kRefused);
  EXPECT_NE(answer->text.find(path->text), std::string::npos) << answer->text;
}

TEST_F(IntruderTest, GarbageMessagesAreAnsweredInvalidArgument) {
  intruder_.attach();
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::byte> garbage(random() % 400);
    for (auto& byte : garbage) byte = static_cast<std::byte>(random());
    intruder_.send(garbage);
    EXPECT_EQ(status_of(intruder_.receive_reply()), StatusCode::kInvalidArgument);
  }
  intruder_.send(intruder_.request(9));
  const wire::Reply reply = intruder_.receive_reply();
  EXPECT_EQ(status_of(reply), StatusCode::kOk);
  EXPECT_EQ(reply.header.seq, 9u);
}

TEST_F(IntruderTest, MutatedRequestsAreAnsweredWhateverTheySay) {
  intruder_.attach();
  std::vector<std::byte> original;
  wire::encode_request(intruder_.request(9), original);
  std::mt19937 random(11);
  for (int round = 0; round < 500; ++round) {
    auto frame = original;
    for (int i = 0; i < 3; ++i) frame[8 + random() % (frame.size() - 8)] ^= static_cast<std::byte>(1u << random() % 8);
    intruder_.send(frame);
  }
  intruder_.send(intruder_.request(1'000'000));
  for (std::uint64_t seq = 0; seq != 1'000'000 && !HasFailure();) seq = intruder_.receive_reply().header.seq;
}

TEST_F(IntruderTest, TensorsOutsideTheArenasAreRefused) {
  intruder_.attach();
  wire::Request beyond_input = intruder_.request(2), beyond_output = intruder_.request(3), huge = intruder_.request(4);
  beyond_input.inputs[0].offset_bytes = 4096;
  beyond_output.outputs[0] = {.offset_bytes = 4032, .capacity_bytes = 128};
  huge.outputs[0] = {.offset_bytes = ~std::uint64_t{63}, .capacity_bytes = 128};
  for (const wire::Request& request : {beyond_input, beyond_output, huge}) {
    intruder_.send(request);
    EXPECT_EQ(status_of(intruder_.receive_reply()), StatusCode::kInvalidArgument);
  }
}

TEST_F(IntruderTest, UnknownModelsAndOldSignaturesAreRefused) {
  intruder_.attach();
  wire::Request unknown = intruder_.request(2), zero = intruder_.request(3), old = intruder_.request(4);
  unknown.header.model_id = 77;
  zero.header.model_id = 0;
  ++old.header.signature;
  intruder_.send(unknown);
  EXPECT_EQ(status_of(intruder_.receive_reply()), StatusCode::kNotFound);
  intruder_.send(zero);
  EXPECT_EQ(status_of(intruder_.receive_reply()), StatusCode::kNotFound);
  intruder_.send(old);
  EXPECT_EQ(status_of(intruder_.receive_reply()), StatusCode::kFailedPrecondition);
}

TEST_F(IntruderTest, MissingAndSuperfluousFramesAreRefused) {
  intruder_.attach();
  wire::Request request = intruder_.request(2);
  request.inputs[0].location = static_cast<std::uint8_t>(wire::Location::kFrame);
  intruder_.send(request);
  EXPECT_EQ(status_of(intruder_.receive_reply()), StatusCode::kInvalidArgument);
  std::vector<std::byte> frame;
  wire::encode_request(intruder_.request(3), frame);
  const std::span<const std::byte> frames[] = {frame, frame};
  intruder_.send(wire::Frames(frames));
  EXPECT_EQ(status_of(intruder_.receive_reply()), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace shoal::test
