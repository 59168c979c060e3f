// Clients that send garbage, change data while it is read, do not read their answers, or stand still.
//   SHOAL_TEST_LONG=1  ten million messages in all
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>

#include "tests/integration/handmade_peer.hpp"
#include "tests/integration/hostile_fixture.hpp"
#include "tests/integration/mutator.hpp"
#include "tests/integration/raw_client.hpp"
#include "tests/support/checkpoint.hpp"
#include "tests/support/child_process.hpp"
#include "tests/support/scratch_directory.hpp"
#include "tests/support/unix_socket.hpp"
#include "tests/support/zmtp.hpp"

namespace shoal::test {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr int kBurst = 100;  // messages
bool is_long() { return std::getenv("SHOAL_TEST_LONG") != nullptr; }

Bytes bytes_of(std::string_view text) {
  Bytes bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}
template <typename T>
Bytes bytes_of_struct(const T& value) {
  Bytes bytes(sizeof value);
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

/// Sends requests, cancellations, control requests, and messages that only a daemon may send. One head in eight is unchanged.
class MessageMutator {
 public:
  ///   like  an attached client; its requests are the pattern
  explicit MessageMutator(RawClient& like) : head_(heads(like), 1) {}
  /// Returns false when the daemon does not take it.
  bool send_one(RawClient& from) {
    std::vector<Bytes> parts{head_.below(8) == 0 ? head_.seed() : head_.next()};
    for (std::size_t more = head_.below(3); more > 0; --more) parts.push_back(body_.below(4) == 0 ? body_.seed() : body_.next());
    const std::vector<std::span<const std::byte>> frames(parts.begin(), parts.end());
    return from.try_send(wire::Frames(frames));
  }

 private:
  static std::vector<Bytes> heads(RawClient& like);

  Mutator head_;
  Mutator body_{{bytes_of(R"({"what": "describe", "model": "echo", "version": 1})"), bytes_of(R"({"what": "list"})"),
                 bytes_of(R"({"what": "crashes", "model": "echo"})"), Bytes(16)},
                2};
};
std::vector<Bytes> MessageMutator::heads(RawClient& like) {
  wire::Request two = like.request(5), framed = like.request(6), plain = like.request(7), cancel = like.request(5);
  two.inputs.push_back(two.inputs[0]);
  framed.inputs[0].location = static_cast<std::uint8_t>(wire::Location::kFrame);
  cancel.inputs.clear();
  cancel.outputs.clear();
  cancel.header.kind = static_cast<std::uint16_t>(wire::Kind::kCancel);
  std::vector<Bytes> heads;
  for (const wire::Request& request : {two, framed, plain, cancel}) wire::encode_request(request, heads.emplace_back());
  for (const auto kind : {wire::Kind::kControl, wire::Kind::kWelcomed, wire::Kind::kControlReply, wire::Kind::kParked})
    heads.push_back(bytes_of_struct(wire::make_control(kind, 3)));
  wire::encode_reply({}, heads.emplace_back());
  return heads;
}

TEST_F(FloodTest, MutatedMessages) {
  constexpr std::uint64_t kMark = 0x7700'0000'0000'0000;
  const int total = is_long() ? 9'000'000 : 90'000;
  RawClient hostile(daemon_.directory());
  hostile.attach();
  MessageMutator messages(hostile);
  for (std::uint64_t mark = kMark; mark < kMark + static_cast<std::uint64_t>(total / kBurst); ++mark) {
    for (int i = 0; i < kBurst; ++i) ASSERT_TRUE(messages.send_one(hostile));
    hostile.send(hostile.request(mark));
    for (std::uint64_t seq = 0; seq != mark;) {
      ASSERT_TRUE(hostile.receive()) << "after burst " << mark - kMark;
      ASSERT_GE(hostile.message()[0].size(), 16u);
      std::memcpy(&seq, hostile.message()[0].data() + 8, sizeof seq);
    }
    const auto reply = wire::decode_reply(hostile.message()[0]);
    ASSERT_TRUE(reply.ok() && static_cast<StatusCode>(reply->header.status) == StatusCode::kOk) << "after burst " << mark - kMark;
  }
  expect_nobody_died();
}

// libzmq ends its connection, and keeps something of it for good.
TEST_F(HostileTest, AProcessWhoseClientsAreCutOffAgainAndAgainMayNotConnectForAWhile) {
  const std::string longer_than_any_frame("\2\x7f\0\0\0\0\0\0\0", 9);
  std::string why_not;
  int cut_off = 0;
  for (; cut_off < 20 && why_not.empty(); ++cut_off) {
    why_not = RawClient(daemon_.directory()).attach_or_why_not();
    if (!why_not.empty()) break;
    HandmadePeer rude(daemon_.directory());
    rude.be_welcomed();
    ASSERT_TRUE(rude.send_all(longer_than_any_frame));
    rude.read_everything(1000);         // until it is cut off
    std::this_thread::sleep_for(30ms);  // a peer that is disconnected before libzmq has forgotten it leaves nothing behind
  }
  EXPECT_TRUE(contains(why_not, "broke the protocol too often")) << why_not;
  EXPECT_LE(cut_off, 11);
  EXPECT_EQ(exit_code_of([&] {
              return daemon_.connect().predict("echo", {{"data", counting({4})}}).ok() ? 0 : 1;
            }),
            0)
      << "another process";
}

// With the default limits a client that sends garbage is disconnected soon. It comes back as often as the limits allow.
TEST_F(HostileTest, OneThatSendsMutatedMessagesAndComesBack) {
  const auto start = Clock::now(), end = start + (is_long() ? 30s : 3s);
  const auto context = std::make_shared<wire::MessageContext>();
  std::optional<MessageMutator> messages;
  int attached = 0, refused = 0;
  while (Clock::now() < end && !HasFailure()) {
    RawClient hostile(daemon_.directory(), context);
    if (const std::string why = hostile.attach_or_why_not(); !why.empty()) {
      EXPECT_TRUE(contains(why, "broke the protocol too often")) << why;
      ++refused;
      continue;
    }
    ++attached;
    if (!messages) messages.emplace(hostile);
    for (int i = 0; i < kBurst; ++i) (void)messages->send_one(hostile);  // the daemon may have disconnected it already
    const auto disconnected = hostile.receive_control();
    ASSERT_TRUE(disconnected && disconnected->kind == wire::ControlKind::kRefused);
    EXPECT_TRUE(contains(disconnected->text, "client_bad_messages")) << disconnected->text;
  }
  std::printf("attached %d times and was refused %d times\n", attached, refused);
  EXPECT_GE(attached, 8) << "at once, and then one a second";
  EXPECT_LE(attached, 9 + std::chrono::duration<double>(Clock::now() - start).count());
  EXPECT_LE(daemon_.stats()["supervisor"]["bad_messages"], attached * 17);
  expect_nobody_died();
}

/// Sends any bytes and any descriptors in one packet.
void send_packet(int socket, const Bytes& bytes, std::span<const int> fds) {
  iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(8 * sizeof(int))> room{};
  msghdr packet{};
  packet.msg_iov = &part;
  packet.msg_iovlen = 1;
  if (!fds.empty()) {
    packet.msg_control = room.data();
    packet.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* header = CMSG_FIRSTHDR(&packet);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(header), fds.data(), fds.size_bytes());
  }
  (void)::sendmsg(socket, &packet, MSG_NOSIGNAL | MSG_DONTWAIT);  // the daemon may have disconnected it already
}

/// Returns the packet that send_control() sends for the message.
Bytes packet_of(const wire::ControlMessage& message) {
  const wire::ControlPair pair = wire::make_control_pair().value();
  EXPECT_TRUE(wire::send_control(pair.ours.get(), message).ok());
  Bytes bytes(4096);
  bytes.resize(static_cast<std::size_t>(std::max<ssize_t>(::recv(pair.theirs.get(), bytes.data(), bytes.size(), 0), 0)));
  return bytes;
}

/// Sends mutated attach messages, and correct ones at the wrong time, with wrong or too many descriptors.
class AttachMutator {
 public:
  AttachMutator() {
    EXPECT_TRUE(seal(input_, Seals::kOneWriter).ok() && seal(output_, Seals::kFixedSize).ok());
    hello_.fds.push_back(duplicate_fd(bound_.get()).value());
    hello_.fds.push_back(duplicate_fd(input_.get()).value());
    hello_.fds.push_back(duplicate_fd(output_.get()).value());
    packets_.emplace(
        std::vector{packet_of(hello_), packet_of({.kind = wire::ControlKind::kAttach}),
                    packet_of({.kind = wire::ControlKind::kBound}), packet_of({.kind = wire::ControlKind::kLoad, .text = "{}"})},
        3);
  }
  /// Connects one client, which sends something and now and then waits for the refusal.
  void attach(const std::string& directory) {
    RawClient one(directory, context_);
    one.connect();
    // Now and then a correct ATTACH comes first, so that the later states are tested, too.
    const UniqueFd socket = unbound_socket();
    const int good[] = {socket.get(), input_.get(), output_.get()};
    if (packets_->below(3) == 0) send_packet(one.attach_socket(), packet_of(hello_), good);
    const std::size_t first = packets_->below(std::size(fds_)), count = packets_->below(std::size(fds_) - first + 1);
    send_packet(one.attach_socket(), packets_->next(), std::span(fds_).subspan(first, count));
    if (packets_->below(4) != 0) return;  // most leave without waiting for an answer
    const auto answer = one.receive_control();
    if (answer && answer->kind == wire::ControlKind::kRefused) {
      ASSERT_FALSE(answer->text.empty());
    }
  }

 private:
  const UniqueFd open_ = create_memfd("open", 4096).value(), null_{::open("/dev/null", O_RDWR | O_CLOEXEC)};
  UniqueFd input_ = create_memfd("input", 4096).value(), output_ = create_memfd("output", 4096).value();
  const UniqueFd bound_ = unbound_socket();  // from its first use on
  const int fds_[7] = {bound_.get(), input_.get(), output_.get(), input_.get(), output_.get(), open_.get(), null_.get()};
  wire::ControlMessage hello_{.kind = wire::ControlKind::kAttach};
  std::optional<Mutator> packets_;
  const std::shared_ptr<wire::MessageContext> context_ = std::make_shared<wire::MessageContext>();
};

TEST_F(FloodTest, MutatedAttachMessages) {
  const int total = is_long() ? 1'000'000 : 10'000;
  AttachMutator mutator;
  for (int i = 0; i < total && !HasFatalFailure(); ++i) mutator.attach(daemon_.directory());
  expect_nobody_died();
}

// With the default limits the daemon accepts and refuses a limited number of connections a second, and the others wait.
TEST_F(HostileTest, OneThatSendsMutatedAttachMessagesAllTheTime) {
  const auto start = Clock::now(), end = start + (is_long() ? 30s : 5s);
  AttachMutator mutator;
  int attached = 0;
  for (; Clock::now() < end && !HasFatalFailure(); ++attached) mutator.attach(daemon_.directory());
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  std::printf("%d connections in %.1f s\n", attached, seconds);
  EXPECT_LE(attached, 1024 + 1500 + 5500 * seconds + 1000) << "1024 in the backlog, what was saved up, and the rates";
  EXPECT_GT(attached, 100);
  expect_nobody_died();
}

TEST_F(UnlimitedRateTest, MutatedZeroMqConnections) {
  const int total = is_long() ? 20'000 : 500;
  const std::string greeting = zmtp::greeting(), ready = zmtp::ready("DEALER"),
                    welcomed = HandmadePeer::control(wire::Kind::kWelcomed, 0),
                    overlong = zmtp::frame(zmtp::kLong, std::string_view("\0\0\0\0\0\0\0\xff", 8)),
                    part = zmtp::frame(zmtp::kMore, "more"),
                    ping = zmtp::frame(zmtp::kCommand, std::string_view("\4PING\0\1x", 8));
  Mutator mutator({bytes_of(greeting), bytes_of(ready), bytes_of(welcomed), bytes_of(overlong), bytes_of(part), bytes_of(ping)},
                  4);
  for (int i = 0; i < total && !HasFailure(); ++i) {
    HandmadePeer peer(daemon_.directory());
    switch (mutator.below(5)) {  // correct up to here
      case 1:
        peer.send(greeting);
        break;
      case 2:
        peer.send(greeting + ready);
        break;
      case 3:
        peer.shake_hands("DEALER");
        break;
      case 4:
        peer.be_welcomed();
        break;
      default:
        break;
    }
    for (std::size_t more = 1 + mutator.below(5); more > 0; --more) {
      const Bytes bytes = mutator.next();
      peer.send({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    }
  }
  expect_nobody_died();
}

// The client does not read its answers, so one of them is half sent when it is disconnected; it hangs up at that moment.
TEST_F(UnlimitedRateTest, OneThatHangsUpWhileItIsDisconnected) {
  const int total = is_long() ? 20'000 : 300;
  for (int i = 0; i < total && !HasFailure(); ++i) {
    // The first answer has a different length each time, so that the later ones are cut at different places.
    std::string said =
        HandmadePeer::question(R"({"what": "describe", "model": ")" + std::string(static_cast<std::size_t>(i % 97), 'n') + "\"}");
    for (int asked = 0; asked < 2000; ++asked) said += HandmadePeer::question(R"({"what": "list"})");
    for (int bad = 0; bad < 17; ++bad) said += zmtp::frame(0, "no message");
    HandmadePeer peer(daemon_.directory());
    peer.be_welcomed();
    peer.send(said);
    pollfd disconnected{peer.attach_socket(), POLLIN, 0};
    EXPECT_EQ(::poll(&disconnected, 1, 5000), 1);
    if (i % 2 == 0) std::this_thread::sleep_for(std::chrono::microseconds(i % 100));
    peer.hang_up();
  }
  expect_nobody_died();
}

TEST_F(HostileTest, ABundleIsOneBadMessageAndSoIsASecondWelcome) {
  RawClient client(daemon_.directory());
  client.attach();
  wire::Bundle bundle;
  std::vector<std::byte> head;
  for (const std::uint64_t seq : {7, 8, 9}) {
    wire::encode_request(client.request(seq), head);
    bundle.add(head);
  }
  client.send(bundle.message());
  EXPECT_EQ(client.receive_reply().header.status, static_cast<std::uint16_t>(StatusCode::kInvalidArgument));
  const auto welcomed = wire::make_control(wire::Kind::kWelcomed, 5);
  client.send(std::as_bytes(std::span(&welcomed, 1)));
  const wire::ReplyHeader refused = client.receive_reply().header;
  EXPECT_EQ(refused.status, static_cast<std::uint16_t>(StatusCode::kInvalidArgument));
  EXPECT_EQ(refused.seq, 5u);
  client.send(client.request(10));
  EXPECT_EQ(client.receive_reply().header.seq, 10u) << "nothing of the bundle is answered";
  EXPECT_EQ(daemon_.stats()["supervisor"]["bad_messages"], 2);
}

TEST_F(HostileTest, ArenasThatChangeWhileTheyAreRead) {
  const auto half = is_long() ? 30s : 1s;
  const auto end = Clock::now() + 2 * half;
  constexpr std::uint64_t kBytes = 1 << 20;
  RawClient hostile(daemon_.directory());
  hostile.attach(kBytes, kBytes);
  const int output = hostile.output().get();
  EXPECT_NE(::ftruncate(output, 0), 0);  // an arena that can shrink is refused (intruder_test)
  std::vector<std::byte> own(kBytes);
  std::atomic<bool> stop = false, is_hostile = false;
  std::thread writer([&] {
    std::mt19937_64 random(5);
    while (!stop) {
      const std::span<std::byte> bytes = is_hostile ? hostile.input() : std::span(own);
      for (std::size_t i = 0; i + 8 <= bytes.size(); i += 8) {
        const std::uint64_t value = random();
        std::memcpy(bytes.data() + i, &value, sizeof value);
      }
      if (is_hostile) ::fallocate(output, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kBytes);
    }
  });
  wire::Request request = hostile.request(2);
  request.inputs[0] = wire::to_wire({DType::kFloat32, Shape{kBytes / 4}, nullptr});
  request.outputs[0].capacity_bytes = kBytes;
  honest_.from_now("beside one that asks the same and writes elsewhere");
  int answered = 0;
  for (; Clock::now() < end && !HasFailure(); ++answered) {
    if (!is_hostile && Clock::now() > end - half) {
      honest_.from_now("beside it");
      is_hostile = true;
    }
    ++request.header.seq;
    hostile.send(request);
    EXPECT_EQ(static_cast<StatusCode>(hostile.receive_reply().header.status), StatusCode::kOk);
  }
  stop = true;
  writer.join();
  EXPECT_GT(answered, 20);
  expect_nobody_died();
}

// ---- clients that do not read or do not run ----

TEST_F(HostileTest, AClientThatReadsNothing) {
  RawClient hostile(daemon_.directory());
  hostile.attach();
  const std::string_view question = R"({"what": "list"})";
  honest_.from_now("beside it, at leisure");
  for (const auto end = Clock::now() + (is_long() ? 20s : 1s); Clock::now() < end;) {
    for (int i = 0; i < 10; ++i) (void)hostile.try_ask(1, question);
    std::this_thread::sleep_for(10ms);
  }
  honest_.from_now("beside it, as fast as it can");
  int sent = 0;
  pollfd disconnected{hostile.attach_socket(), POLLIN, 0};
  while (sent < 1'000'000 && ::poll(&disconnected, 1, 0) == 0) sent += hostile.try_ask(1, question);
  std::printf("disconnected after %d questions\n", sent);
  const auto out = hostile.receive_control();
  ASSERT_TRUE(out.has_value());
  EXPECT_EQ(out->kind, wire::ControlKind::kRefused);
  EXPECT_TRUE(contains(out->text, "does not read its answers")) << out->text;
  expect_nobody_died();
}

/// The number of bytes that this process has sent and that nobody has read.
std::size_t unread_bytes() {
  std::size_t sum = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    int bytes = 0;
    if (::ioctl(std::atoi(entry.path().filename().c_str()), SIOCOUTQ, &bytes) == 0) sum += static_cast<std::size_t>(bytes);
  }
  return sum;
}

// Each request is answered with 8 MB of frames. The client may be stopped when only some twenty requests have left it.
TEST(UnreadAnswers, TakeNoMoreMemoryThanTheirClientMayHave) {
  static constexpr std::size_t kRequests = 400;
  constexpr std::uint64_t kMost = 64 << 20, kSlack = 64 << 20;
  const ScratchDirectory scratch;
  write_checkpoint(scratch.path(), "m", {{"Pad", "pad", {{"mode", "constant"}, {"pad_width", "(0,0,0,0,0,1447,0,1447)"}}, {}}},
                   "[-1, 1, 1, 1]");
  const DaemonFixture daemon({.models = {"m=" + scratch.path()}, .limits = "client_message_mb = 64"});
  const auto before = sample_process(daemon.pid());
  const pid_t child = start_child([&] {
    Pool pool = daemon.connect({.arena_limit_bytes = 64 << 10});
    if (!pool.describe("m").ok()) return 1;
    ::raise(SIGSTOP);
    std::vector<Prediction> predictions;
    for (std::size_t i = 0; i < kRequests; ++i) predictions.push_back(pool.submit("m", {{"data", counting({1, 1, 1, 1})}}));
    if (!eventually([] { return unread_bytes() > kRequests / 2 * sizeof(wire::RequestHeader); })) return 3;
    ::raise(SIGSTOP);
    int disconnected = 0;
    for (const Prediction& prediction : predictions)
      disconnected += contains(prediction.get().status().message(), "does not read its answers");
    return disconnected > 0 && pool.predict("m", {{"data", counting({1, 1, 1, 1})}}).ok() ? 0 : 2;  // it may connect again
  });
  const auto wait_until_it_stops = [&] {
    int status = 0;
    EXPECT_TRUE(::waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status));
  };
  wait_until_it_stops();
  stop_process(daemon.pid());  // so that nothing is answered before the client is stopped
  ::kill(child, SIGCONT);
  wait_until_it_stops();
  ::kill(daemon.pid(), SIGCONT);
  EXPECT_TRUE(eventually([&] { return contains(daemon.log(), "client_disconnected"); }, 60s));
  EXPECT_TRUE(daemon.logs("client_message_mb"));
  const auto after = sample_process(daemon.pid());
  ASSERT_TRUE(before && after);
  EXPECT_LT(after->private_bytes, before->private_bytes + kMost + kSlack);
  ::kill(child, SIGCONT);
  EXPECT_EQ(exit_code_of(child), 0);
}

TEST_F(HostileTest, ClientsThatStandStill) {
  honest_.from_now("beside eight at work");
  std::vector<pid_t> children;
  for (int i = 0; i < 8; ++i) {
    children.push_back(start_child([this] {
      Pool pool = daemon_.connect();
      std::vector<Prediction> predictions;
      for (int asked = 0; asked < 50; ++asked) predictions.push_back(pool.submit("echo", {{"data", counting({4096})}}));
      while (true) {
        for (Prediction& one : predictions) {
          if (!one.get().ok()) return 1;
          one = pool.submit("echo", {{"data", counting({4096})}});
        }
      }
    }));
  }
  const std::string clients = "clients";
  EXPECT_TRUE(eventually([&] { return daemon_.stats().at("supervisor").at(clients) >= 10; }));
  for (const pid_t child : children) stop_process(child);
  honest_.from_now("beside them, stopped");
  wait_for_honest(is_long() ? 2000 : 200);
  honest_.from_now("beside them, at work again");
  for (const pid_t child : children) {
    ::kill(child, SIGCONT);
    EXPECT_TRUE(is_alive(child));
  }
  wait_for_honest();
  for (const pid_t child : children) {
    ::kill(child, SIGKILL);
    EXPECT_EQ(exit_code_of(child), 128 + SIGKILL);
  }
  expect_nobody_died();
}

}  // namespace
}  // namespace shoal::test
