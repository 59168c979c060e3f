// Whatever clients do, and whatever their machine has run out of: the daemon lives, its processes too, and one that behaves is
// answered, rightly, all the time. How long that took is printed.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <sstream>
#include <thread>

#include "shm/base/errors.hpp"
#include "tests/integration/raw_client.hpp"
#include "tests/support/pool_fixture.hpp"
#include "tests/support/unix_socket.hpp"

namespace shoal::test {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using Bytes = std::vector<std::byte>;

bool is_long() { return std::getenv("SHOAL_TEST_LONG") != nullptr; }
bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::size_t descriptors_of(pid_t pid) {
  const std::filesystem::directory_iterator entries("/proc/" + std::to_string(pid) + "/fd");
  return static_cast<std::size_t>(std::distance(begin(entries), end(entries)));
}

/// A client that behaves: asks one thing after another and compares each answer.
class Honest {
 public:
  explicit Honest(const DaemonFixture& daemon)
      : pool_(daemon.connect()), thread_([this](const std::stop_token& stop) { run(stop); }) {}
  ~Honest() { end(); }
  /// Stops it. Everything must have been answered, and rightly.
  void end() {
    if (!thread_.joinable()) return;
    thread_.request_stop();
    thread_.join();
    EXPECT_GT(times_ms_.size(), 0u);
    EXPECT_EQ(failed_, 0) << error_;
    EXPECT_EQ(wrong_, 0);
    std::ranges::sort(times_ms_);
    if (times_ms_.empty()) return;
    std::printf("beside it: %zu answers, p50 %.3f ms, p99 %.3f ms, max %.3f ms\n", times_ms_.size(),
                times_ms_[times_ms_.size() / 2], times_ms_[times_ms_.size() * 99 / 100], times_ms_.back());
  }
  std::size_t answered() const { return answered_; }

 private:
  void run(const std::stop_token& stop) {
    for (int i = 0; !stop.stop_requested(); ++i) {
      const auto first = static_cast<float>(i % 100'000);
      const auto start = Clock::now();
      const auto outputs = pool_.predict("echo", {{"data", counting({16}, first)}});
      times_ms_.push_back(std::chrono::duration<double, std::milli>(Clock::now() - start).count());
      if (!outputs.ok()) {
        error_ = outputs.status().to_string();
        ++failed_;
      } else {
        wrong_ += (*outputs)[0].tensor.values<float>()[15] != first + 15;
      }
      ++answered_;
      std::this_thread::sleep_for(200us);  // one among others: it does not want the processor for itself
    }
  }

  Pool pool_;
  std::vector<double> times_ms_;
  int failed_ = 0, wrong_ = 0;  // read when it has ended
  std::string error_;
  std::atomic<std::size_t> answered_ = 0;
  std::jthread thread_;
};

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

class HostileTest : public testing::Test {
 protected:
  ~HostileTest() override {
    honest_.end();
    EXPECT_TRUE(is_alive(daemon_.pid()));
    EXPECT_TRUE(daemon_.wait_until_ready());
    EXPECT_TRUE(eventually([&] { return descriptors_of(daemon_.pid()) <= descriptors_ + 1; })) << descriptors_of(daemon_.pid());
  }
  /// No worker died; but for those that got no processor and were taken for hung, on a machine with too much to do.
  void expect_nobody_died() const {
    std::istringstream log(daemon_.log());
    for (std::string line; std::getline(log, line);) {
      EXPECT_TRUE(!contains(line, "worker_died") || contains(line, "cause=hung")) << line;
    }
  }
  /// Until it has had so many more answers.
  void wait_for_honest(std::size_t answers = 20) const {
    const std::size_t until = honest_.answered() + answers;
    EXPECT_TRUE(eventually([&] { return honest_.answered() >= until; }));
  }

  DaemonFixture daemon_{{.models = {"echo=builtin:identity,workers=2"}}};
  pid_t zygote_ = daemon_.zygote();
  std::vector<pid_t> workers_ = daemon_.workers();
  Honest honest_{daemon_};
  std::size_t descriptors_ = descriptors_of(daemon_.pid());
};

// ---- messages ----

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

// ---- arenas ----

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

/// Runs in a child process, which ends with what it returns.
pid_t in_child(const std::function<int()>& run) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(run());
  return pid;
}
int exit_code_of(pid_t pid) {
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TEST_F(HostileTest, ClientsThatStandStill) {
  std::vector<pid_t> children;
  for (int i = 0; i < 8; ++i) {
    children.push_back(in_child([this] {
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

// ---- descriptors ----

rlim_t soft_limit(pid_t pid, __rlimit_resource resource, rlim_t value) {
  rlimit old{};
  EXPECT_EQ(::prlimit(pid, resource, nullptr, &old), 0);
  const rlimit wanted{value, old.rlim_max};
  EXPECT_EQ(::prlimit(pid, resource, &wanted, nullptr), 0);
  return old.rlim_cur;
}

TEST_F(HostileTest, TheDaemonHasNoDescriptorsLeft) {
  const rlim_t before = soft_limit(daemon_.pid(), RLIMIT_NOFILE, descriptors_ + 12);
  std::vector<std::unique_ptr<RawClient>> crowd;
  int attached = 0, refused = 0;
  for (int i = 0; i < 40; ++i) {
    crowd.push_back(std::make_unique<RawClient>(daemon_.directory()));
    crowd.back()->connect();
    (void)wire::send_control(crowd.back()->attach_socket(), {.kind = wire::ControlKind::kAttach});  // it may be refused already
    const auto answer = crowd.back()->receive_control();
    ASSERT_TRUE(answer.has_value()) << i;
    attached += answer->kind == wire::ControlKind::kPath;
    if (answer->kind != wire::ControlKind::kRefused) continue;
    ++refused;
    EXPECT_TRUE(contains(answer->text, "descriptors")) << answer->text;
  }
  EXPECT_GT(attached, 0);
  EXPECT_GT(refused, 0);
  const auto pool = Pool::connect({.directory = daemon_.directory()});
  EXPECT_FALSE(pool.ok());
  EXPECT_TRUE(contains(pool.status().message(), "descriptors")) << pool.status().to_string();
  // Now a worker dies, and there is nothing to make its successor with: the other one answers.
  ::kill(workers_[0], SIGKILL);
  wait_for_honest(100);
  crowd.clear();
  soft_limit(daemon_.pid(), RLIMIT_NOFILE, before);
  EXPECT_TRUE(daemon_.wait_until_ready());
}

TEST_F(HostileTest, AZygoteHasNoDescriptorsLeft) {
  const rlim_t before = soft_limit(zygote_, RLIMIT_NOFILE, 3);
  ::kill(workers_[0], SIGKILL);
  EXPECT_TRUE(
      eventually([&] { return contains(daemon_.log(), "fork_failed model=echo reason=\"the zygote has no file descriptors"); }));
  wait_for_honest();
  soft_limit(zygote_, RLIMIT_NOFILE, before);
  EXPECT_TRUE(daemon_.wait_until_ready());
}

TEST_F(HostileTest, WorkersHaveNoDescriptorsLeft) {
  for (const pid_t worker : workers_) soft_limit(worker, RLIMIT_NOFILE, 3);
  for (int i = 0; i < 10; ++i) {
    Pool late = daemon_.connect();
    const auto outputs = late.predict("echo", {{"data", counting({4})}});
    EXPECT_TRUE(outputs.ok()) << outputs.status().to_string();
  }
  EXPECT_TRUE(contains(daemon_.log(), "no file descriptors are left for a client's arenas"));
  wait_for_honest();
}

TEST_F(HostileTest, AClientHasNoDescriptorsLeft) {
  for (const rlim_t spare : {0, 1, 3, 6, 12}) {
    const pid_t child = in_child([&] {
      soft_limit(::getpid(), RLIMIT_NOFILE, descriptors_of(::getpid()) + 3 + spare);
      const auto pool = Pool::connect({.directory = daemon_.directory()});
      if (pool.ok()) return 2;
      const std::string said = pool.status().to_string();
      return contains(said, "descriptor") || contains(said, "open files") ? 0 : (std::puts(said.c_str()), 1);
    });
    EXPECT_EQ(exit_code_of(child), 0) << "with " << spare << " to spare";
  }
  expect_nobody_died();
}

// ---- memory ----

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kAddressesAreSpent = true;  // by the sanitizer
#else
constexpr bool kAddressesAreSpent = false;
#endif

/// It may map so much more than it has mapped. Returns the old limit.
rlim_t leave_addresses(pid_t pid, rlim_t bytes) {
  std::ifstream statm("/proc/" + std::to_string(pid) + "/statm");
  rlim_t pages = 0;
  statm >> pages;
  return soft_limit(pid, RLIMIT_AS, pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE)) + bytes);
}

TEST_F(HostileTest, TheDaemonHasNoRoomForAMessage) {
  if (kAddressesAreSpent) GTEST_SKIP() << "RLIMIT_AS is the sanitizer's";
  constexpr std::size_t kHuge = 300 << 20;
  RawClient hostile(daemon_.directory());
  hostile.attach();
  wire::Request request = hostile.request(2);
  request.inputs[0] = wire::to_wire({DType::kFloat32, Shape{kHuge / 4}, nullptr});
  request.inputs[0].location = static_cast<std::uint8_t>(wire::Location::kFrame);
  Bytes head;
  wire::encode_request(request, head);
  const Bytes tensor(kHuge);
  const std::span<const std::byte> frames[] = {head, tensor};
  const rlim_t before = leave_addresses(daemon_.pid(), 64 << 20);
  ASSERT_TRUE(hostile.try_send(wire::Frames(frames)));
  // It is cut off, as the end of what it sent does not come.
  EXPECT_TRUE(eventually([&] { return !hostile.try_send(wire::Frames(frames).first(1)); }));
  wait_for_honest();
  EXPECT_TRUE(Pool::connect({.directory = daemon_.directory()}).ok());
  soft_limit(daemon_.pid(), RLIMIT_AS, before);
  expect_nobody_died();
}

TEST_F(HostileTest, WorkersHaveNoRoomForAnArena) {
  if (kAddressesAreSpent) GTEST_SKIP() << "RLIMIT_AS is the sanitizer's";
  std::vector<rlim_t> before;
  for (const pid_t worker : workers_) before.push_back(leave_addresses(worker, 64 << 20));
  Pool large = daemon_.connect({.input_arena_bytes = 256 << 20});
  const Status refused = large.predict("echo", {{"data", counting({4})}}).status();
  EXPECT_FALSE(refused.ok());
  EXPECT_TRUE(contains(refused.message(), "Cannot allocate memory") && contains(refused.message(), "268435456"))
      << refused.to_string();
  EXPECT_TRUE(daemon_.connect().predict("echo", {{"data", counting({4})}}).ok());
  wait_for_honest();
  for (std::size_t i = 0; i < workers_.size(); ++i) soft_limit(workers_[i], RLIMIT_AS, before[i]);
  expect_nobody_died();
}

TEST_F(HostileTest, AZygoteHasNoMemoryForWorkers) {
  if (kAddressesAreSpent) GTEST_SKIP() << "RLIMIT_AS is the sanitizer's";
  const rlim_t before = leave_addresses(zygote_, 0);
  ::kill(workers_[0], SIGKILL);
  EXPECT_TRUE(eventually([&] { return contains(daemon_.log(), "Cannot allocate memory") || !is_alive(zygote_); }));
  wait_for_honest();
  if (is_alive(zygote_)) soft_limit(zygote_, RLIMIT_AS, before);
  EXPECT_TRUE(daemon_.wait_until_ready(30s));
}

TEST_F(HostileTest, AClientHasNoRoomForItsArenas) {
  if (kAddressesAreSpent) GTEST_SKIP() << "RLIMIT_AS is the sanitizer's";
  const pid_t child = in_child([&] {
    leave_addresses(::getpid(), 32 << 20);
    const auto pool = Pool::connect({.directory = daemon_.directory(), .input_arena_bytes = 256 << 20});
    const std::string said = pool.status().to_string();
    return contains(said, "Cannot allocate memory") && contains(said, "268435456") ? 0 : (std::puts(said.c_str()), 1);
  });
  EXPECT_EQ(exit_code_of(child), 0);
  expect_nobody_died();
}

// ---- disk ----

/// A file system of a few pages and files, for this thread and its children only.
class TinyDisk {
 public:
  TinyDisk() {
    if (!::mkdtemp(path_.data())) return;
    if (::unshare(CLONE_NEWNS) != 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return;
    is_mounted_ = ::mount("shoal-test", path_.c_str(), "tmpfs", 0, "size=128k,nr_inodes=40") == 0;
  }
  ~TinyDisk() {
    if (is_mounted_) ::umount2(path_.c_str(), MNT_DETACH);
    ::rmdir(path_.c_str());
  }
  TinyDisk(const TinyDisk&) = delete;
  TinyDisk& operator=(const TinyDisk&) = delete;
  bool is_mounted() const { return is_mounted_; }
  const std::string& path() const { return path_; }
  /// Until neither a byte nor a file more goes on it.
  void fill() {
    const UniqueFd file(::open((path_ + "/bytes").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    const Bytes page(4096);
    while (::write(file.get(), page.data(), page.size()) > 0) {
    }
    EXPECT_EQ(errno, ENOSPC);
    while (::mknod((path_ + "/file" + std::to_string(files_)).c_str(), S_IFREG | 0600, 0) == 0) ++files_;
    EXPECT_EQ(errno, ENOSPC);
  }
  void empty() {
    ::unlink((path_ + "/bytes").c_str());
    for (; files_ > 0; --files_) ::unlink((path_ + "/file" + std::to_string(files_ - 1)).c_str());
  }

 private:
  std::string path_ = "/tmp/shoal-disk-XXXXXX";
  bool is_mounted_ = false;
  int files_ = 0;
};

// Its log and its sockets lie there.
TEST(FullDisk, WhoIsInIsServedAndWhoIsNotHearsWhy) {
  TinyDisk disk;
  if (!disk.is_mounted()) GTEST_SKIP() << "no right to mount here: " << std::strerror(errno);
  DaemonFixture daemon({.models = {"echo=builtin:identity,workers=2"}, .parent = disk.path()});
  const auto workers = daemon.workers();
  Pool pool = daemon.connect();
  const auto ask = [&] { return pool.predict("echo", {{"data", counting({4})}}).status().to_string(); };
  EXPECT_EQ(ask(), "OK");
  disk.fill();
  const Status late = Pool::connect({.directory = daemon.directory()}).status();
  EXPECT_TRUE(contains(late.message(), daemon.directory()) && contains(late.message(), "No space left on device"))
      << late.to_string();
  ::kill(workers.at(0), SIGKILL);  // its successor's sockets find the place of its own, or wait for one
  for (const auto until = Clock::now() + 1s; Clock::now() < until;) ASSERT_EQ(ask(), "OK");
  EXPECT_TRUE(is_alive(daemon.pid()));
  disk.empty();
  EXPECT_TRUE(daemon.wait_until_ready());
  EXPECT_EQ(daemon.workers().size(), 2u);
  EXPECT_TRUE(daemon.connect().predict("echo", {{"data", counting({4})}}).ok());
}

}  // namespace
}  // namespace shoal::test
