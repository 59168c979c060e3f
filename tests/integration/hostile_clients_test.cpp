// Clients that send anything, change what is read, do not read, or stand still.
//   SHOAL_TEST_LONG=1  ten million messages in all
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <random>

#include "tests/integration/hostile_fixture.hpp"
#include "tests/integration/raw_client.hpp"
#include "tests/support/checkpoint.hpp"
#include "tests/support/child_process.hpp"
#include "tests/support/scratch_directory.hpp"
#include "tests/support/unix_socket.hpp"

namespace shoal::test {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using Bytes = std::vector<std::byte>;

bool is_long() { return std::getenv("SHOAL_TEST_LONG") != nullptr; }

/// What an honest peer sends, and what becomes of it on the way.
class Mutator {
 public:
  Mutator(std::vector<Bytes> seeds, unsigned seed) : seeds_(std::move(seeds)), random_(seed) {}
  std::size_t below(std::size_t count) { return random_() % count; }
  const Bytes& seed() { return seeds_[below(seeds_.size())]; }
  Bytes next() {
    Bytes bytes = seed();
    for (std::size_t changes = 1 + below(4); changes > 0; --changes) change(bytes);
    return bytes;
  }

 private:
  void change(Bytes& bytes) {
    constexpr std::uint64_t kTelling[] = {0,
                                          1,
                                          63,
                                          64,
                                          4095,
                                          4096,
                                          4097,
                                          1 << 16,
                                          1ull << 31,
                                          1ull << 32,
                                          1ull << 40,
                                          1ull << 63,
                                          (1ull << 63) - 1,
                                          ~0ull,
                                          ~63ull,
                                          1 << 30,
                                          1ull << 62,
                                          255,
                                          256,
                                          257};
    if (bytes.empty()) return;
    const std::size_t at = below(bytes.size());
    switch (below(6)) {
      case 0:
        bytes[at] ^= std::byte{1} << below(8);
        return;
      case 1:
        bytes[at] = static_cast<std::byte>(random_());
        return;
      case 2: {
        const std::uint64_t value = kTelling[below(std::size(kTelling))];
        const std::size_t start = at & ~std::size_t{7};
        std::memcpy(bytes.data() + start, &value, std::min(std::size_t{1} << below(4), bytes.size() - start));
        return;
      }
      case 3:
        bytes.resize(at);
        return;
      case 4:
        bytes.resize(bytes.size() + below(200), static_cast<std::byte>(random_()));
        return;
      default: {
        const Bytes& other = seed();
        const std::size_t size = std::min({other.size(), bytes.size() - at, 1 + below(32)});
        if (size > 0) std::memcpy(bytes.data() + at, other.data() + below(other.size() - size + 1), size);
      }
    }
  }

  std::vector<Bytes> seeds_;
  std::mt19937_64 random_;
};
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
TEST_F(HostileTest, MutatedMessages) {
  constexpr std::uint64_t kMark = 0x7700'0000'0000'0000;
  constexpr int kBurst = 100;
  const int total = is_long() ? 9'000'000 : 90'000;
  RawClient hostile(daemon_.directory());
  hostile.attach();
  wire::Request two = hostile.request(5), framed = hostile.request(6), plain = hostile.request(7), cancel = hostile.request(5);
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
  Mutator head(heads, 1);
  Mutator body({bytes_of(R"({"what": "describe", "model": "echo", "version": 1})"), bytes_of(R"({"what": "list"})"),
                bytes_of(R"({"what": "crashes", "model": "echo"})"), Bytes(16)},
               2);
  for (std::uint64_t mark = kMark; mark < kMark + static_cast<std::uint64_t>(total / kBurst); ++mark) {
    for (int i = 0; i < kBurst; ++i) {
      std::vector<Bytes> parts{head.below(8) == 0 ? head.seed() : head.next()};
      for (std::size_t frames = head.below(3); frames > 0; --frames)
        parts.push_back(body.below(4) == 0 ? body.seed() : body.next());
      const std::vector<std::span<const std::byte>> frames(parts.begin(), parts.end());
      hostile.send(wire::Frames(frames));
    }
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

/// Any bytes and any descriptors, in one packet.
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
  (void)::sendmsg(socket, &packet, MSG_NOSIGNAL | MSG_DONTWAIT);  // it may have been put out already
}

/// The packet that send_control makes of it.
Bytes packet_of(const wire::ControlMessage& message) {
  const wire::ControlPair pair = wire::make_control_pair().value();
  EXPECT_TRUE(wire::send_control(pair.ours.get(), message).ok());
  Bytes bytes(4096);
  bytes.resize(static_cast<std::size_t>(std::max<ssize_t>(::recv(pair.theirs.get(), bytes.data(), bytes.size(), 0), 0)));
  return bytes;
}

TEST_F(HostileTest, MutatedAttachMessages) {
  const int total = is_long() ? 1'000'000 : 10'000;
  UniqueFd input = create_memfd("input", 4096).value(), output = create_memfd("output", 4096).value();
  ASSERT_TRUE(seal(input, Seals::kOneWriter).ok() && seal(output, Seals::kFixedSize).ok());
  const UniqueFd open = create_memfd("open", 4096).value(), null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  const int fds[] = {input.get(), output.get(), input.get(), output.get(), open.get(), null.get()};
  wire::ControlMessage hello{.kind = wire::ControlKind::kAttach};
  hello.fds.push_back(duplicate_fd(input.get()).value());
  hello.fds.push_back(duplicate_fd(output.get()).value());
  Mutator packets({packet_of(hello), packet_of({.kind = wire::ControlKind::kAttach}),
                   packet_of({.kind = wire::ControlKind::kBound}), packet_of({.kind = wire::ControlKind::kLoad, .text = "{}"})},
                  3);
  for (int i = 0; i < total; ++i) {
    RawClient one(daemon_.directory());
    one.connect();
    // A whole ATTACH before it now and then, so that what comes later is met, too.
    if (packets.below(3) == 0) send_packet(one.attach_socket(), packet_of(hello), std::span(fds, 2));
    const std::size_t first = packets.below(std::size(fds)), count = packets.below(std::size(fds) - first + 1);
    send_packet(one.attach_socket(), packets.next(), std::span(fds).subspan(first, count));
    if (packets.below(4) != 0) continue;  // most go without a word
    const auto answer = one.receive_control();
    if (answer && answer->kind == wire::ControlKind::kRefused) {
      ASSERT_FALSE(answer->text.empty());
    }
  }
  expect_nobody_died();
}

// Below our messages there are ZeroMQ's: greeting, READY, frames. Here the daemon's peer at the path speaks those by hand.
TEST_F(HostileTest, MutatedZeroMqConnections) {
  const int total = is_long() ? 20'000 : 500;
  Bytes greeting(64);
  greeting[0] = std::byte{0xff};
  greeting[9] = std::byte{0x7f};
  greeting[10] = std::byte{3};
  std::memcpy(greeting.data() + 12, "NULL", 4);
  const auto frame = [](unsigned flags, std::string_view text) {
    Bytes bytes = bytes_of(text);
    bytes.insert(bytes.begin(), {static_cast<std::byte>(flags), static_cast<std::byte>(text.size())});
    return bytes;
  };
  const Bytes ready = frame(4, std::string_view("\5READY\13Socket-Type\0\0\0\6DEALER\10Identity\0\0\0\0", 41));
  std::string text(24, '\0');
  const wire::ControlHeader welcomed = wire::make_control(wire::Kind::kWelcomed, 0);
  std::memcpy(text.data(), &welcomed, sizeof welcomed);
  const Bytes message = frame(0, text), long_message = frame(2, std::string_view("\0\0\0\0\0\0\0\xff", 8));
  Mutator mutator({greeting, ready, message, long_message, frame(1, "more"), frame(4, "\4PING\0\1x")}, 4);
  for (int i = 0; i < total; ++i) {
    RawClient one(daemon_.directory());
    const std::string path = one.attach_until_path();
    ASSERT_FALSE(path.empty());
    const UniqueFd listener = bound_socket(path, SOCK_STREAM);
    ASSERT_TRUE(listener);
    ASSERT_TRUE(wire::send_control(one.attach_socket(), {.kind = wire::ControlKind::kBound}).ok());
    const UniqueFd daemon(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    ASSERT_TRUE(daemon);
    const std::size_t honest_parts = mutator.below(4);
    const Bytes* const parts[] = {&greeting, &ready, &message};
    for (std::size_t part = 0; part < honest_parts; ++part)
      (void)::send(daemon.get(), parts[part]->data(), parts[part]->size(), MSG_NOSIGNAL);
    for (std::size_t more = 1 + mutator.below(5); more > 0; --more) {
      const Bytes bytes = mutator.next();
      (void)::send(daemon.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    }
    ::unlink(path.c_str());
  }
  expect_nobody_died();
}

TEST_F(HostileTest, ArenasThatChangeWhileTheyAreRead) {
  const auto end = Clock::now() + (is_long() ? 60s : 2s);
  constexpr std::uint64_t kBytes = 1 << 20;
  RawClient hostile(daemon_.directory());
  hostile.attach(kBytes, kBytes);
  const int output = hostile.output().get();
  EXPECT_NE(::ftruncate(output, 0), 0);  // what can be cut short was refused at the door (intruder_test)
  std::atomic<bool> stop = false;
  std::thread writer([&] {
    std::mt19937_64 random(5);
    for (const auto bytes = hostile.input(); !stop;) {
      for (std::size_t i = 0; i + 8 <= bytes.size(); i += 8) {
        const std::uint64_t value = random();
        std::memcpy(bytes.data() + i, &value, sizeof value);
      }
      ::fallocate(output, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kBytes);
    }
  });
  wire::Request request = hostile.request(2);
  request.inputs[0] = wire::to_wire({DType::kFloat32, Shape{kBytes / 4}, nullptr});
  request.outputs[0].capacity_bytes = kBytes;
  int answered = 0;
  for (; Clock::now() < end && !HasFailure(); ++answered) {
    ++request.header.seq;
    hostile.send(request);
    EXPECT_EQ(static_cast<StatusCode>(hostile.receive_reply().header.status), StatusCode::kOk);
  }
  stop = true;
  writer.join();
  EXPECT_GT(answered, 20);
  expect_nobody_died();
}

// ---- clients that do not do their part ----

TEST_F(HostileTest, AClientThatReadsNothing) {
  RawClient hostile(daemon_.directory());
  hostile.attach();
  const auto ask = wire::make_control(wire::Kind::kControl, 1);
  const std::string text = R"({"what": "list"})";
  const std::span<const std::byte> frames[] = {std::as_bytes(std::span(&ask, 1)), std::as_bytes(std::span(text))};
  int sent = 0;
  pollfd put_out{hostile.attach_socket(), POLLIN, 0};
  while (sent < 1'000'000 && ::poll(&put_out, 1, 0) == 0) sent += hostile.try_send(wire::Frames(frames));
  std::printf("put out after %d questions\n", sent);
  const auto out = hostile.receive_control();
  ASSERT_TRUE(out.has_value());
  EXPECT_EQ(out->kind, wire::ControlKind::kRefused);
  EXPECT_TRUE(contains(out->text, "does not read its answers")) << out->text;
  expect_nobody_died();
}

// 4 MB for each of its requests, as frames.
TEST(UnreadAnswers, TakeNoMoreMemoryThanTheirClientMayHave) {
  constexpr int kRequests = 400;
  constexpr std::uint64_t kMost = 64 << 20, kSlack = 64 << 20;
  const ScratchDirectory scratch;
  write_checkpoint(scratch.path(), "m", {{"Pad", "pad", {{"mode", "constant"}, {"pad_width", "(0,0,0,0,0,1023,0,1023)"}}, {}}},
                   "[-1, 1, 1, 1]");
  scratch.write("shoal.toml", "[limits]\nclient_message_mb = 64\n");
  const DaemonFixture daemon({.models = {"m=" + scratch.path()}, .arguments = {"--config", scratch.path("shoal.toml")}});
  const auto before = sample_process(daemon.pid());
  const pid_t child = start_child([&] {
    Pool pool = daemon.connect({.output_arena_bytes = 4096});
    if (!pool.describe("m").ok()) return 1;
    ::raise(SIGSTOP);
    std::vector<Prediction> predictions;
    for (int i = 0; i < kRequests; ++i) predictions.push_back(pool.submit("m", {{"data", counting({1, 1, 1, 1})}}));
    std::this_thread::sleep_for(1s);  // until ZeroMQ's thread has sent them
    ::raise(SIGSTOP);
    int put_out = 0;
    for (const Prediction& prediction : predictions)
      put_out += contains(prediction.get().status().message(), "does not read its answers");
    return put_out > 0 && pool.predict("m", {{"data", counting({1, 1, 1, 1})}}).ok() ? 0 : 2;  // and it may come again
  });
  const auto wait_until_it_stops = [&] {
    int status = 0;
    EXPECT_TRUE(::waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status));
  };
  wait_until_it_stops();
  stop_process(daemon.pid());  // so that nothing is answered before the client stands still
  ::kill(child, SIGCONT);
  wait_until_it_stops();
  ::kill(daemon.pid(), SIGCONT);
  EXPECT_TRUE(eventually([&] { return contains(daemon.log(), "client_expelled"); }, 60s));
  EXPECT_TRUE(contains(daemon.log(), "client_message_mb"));
  const auto after = sample_process(daemon.pid());
  ASSERT_TRUE(before && after);
  EXPECT_LT(after->private_bytes, before->private_bytes + kMost + kSlack);
  ::kill(child, SIGCONT);
  EXPECT_EQ(exit_code_of(child), 0);
}

TEST_F(HostileTest, ClientsThatStandStill) {
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
  wait_for_honest(200);
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
