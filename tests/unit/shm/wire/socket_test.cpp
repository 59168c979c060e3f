#include "shm/wire/socket.hpp"

#include <gtest/gtest.h>
#include <malloc.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <thread>
#include <vector>

#include "shm/base/clock.hpp"
#include "tests/support/scratch_directory.hpp"
#include "tests/support/unix_socket.hpp"
#include "tests/support/zmtp.hpp"

namespace {
thread_local int interruptions = 0;  // 0 = none; else one more than polls that might have been interrupted
}

// libzmq's calls come here, too.
extern "C" int poll(pollfd* fds, nfds_t count, int timeout_ms) {
  if (interruptions > 0 && timeout_ms == 0 && ++interruptions % 2 == 0) {
    errno = EINTR;
    return -1;
  }
  const timespec timeout{timeout_ms / 1000, timeout_ms % 1000 * 1'000'000L};
  return ::ppoll(fds, count, timeout_ms < 0 ? nullptr : &timeout, nullptr);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kMayReplaceMalloc = false;  // the sanitizer's is there already
#else
constexpr bool kMayReplaceMalloc = true;

namespace {
thread_local int allocations_until_failure = 0;  // 0 = none fails
}

// libzmq's calls come here, too. Whoever calls free() gets the C library's, which knows what this returns.
extern "C" void* __libc_malloc(std::size_t size);
extern "C" void* malloc(std::size_t size) {
  if (allocations_until_failure == 0 || --allocations_until_failure > 0) return __libc_malloc(size);
  errno = ENOMEM;
  return nullptr;
}
#endif

namespace shoal::wire {
namespace {

/// While alive the nth allocation of this thread fails.
class FailingAllocation {
 public:
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  explicit FailingAllocation(int) {}
  static bool has_failed() { return false; }
#else
  explicit FailingAllocation(int nth) { allocations_until_failure = nth; }
  ~FailingAllocation() { allocations_until_failure = 0; }
  FailingAllocation(const FailingAllocation&) = delete;
  FailingAllocation& operator=(const FailingAllocation&) = delete;
  static bool has_failed() { return allocations_until_failure == 0; }
#endif
};

/// While alive every other poll() of this thread that would not wait is interrupted by a signal.
class Interruptions {
 public:
  Interruptions() { interruptions = 1; }
  ~Interruptions() { interruptions = 0; }
  Interruptions(const Interruptions&) = delete;
  Interruptions& operator=(const Interruptions&) = delete;
  static int count() { return interruptions / 2; }
};

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text.data(), text.size())); }
std::string text_of(std::span<const std::byte> bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

class SocketTest : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return scratch_.path(name); }

  template <typename Receive>
  bool within_deadline(const Socket& socket, Receive receive) {
    const std::uint64_t end = monotonic_now_ns() + 2'000'000'000;
    while (monotonic_now_ns() < end) {
      if (receive()) return true;
      Waitable items[] = {{.socket = &socket}};
      wait(items, std::chrono::milliseconds(10));
    }
    return false;
  }
  bool receive(Dealer& dealer) {
    return within_deadline(dealer, [&] { return dealer.receive(message_).value(); });
  }
  bool receive(PeerId& peer) {
    return within_deadline(router_, [&] { return router_.receive(peer, message_).value(); });
  }

  const test::ScratchDirectory scratch_;
  const std::string large_ = std::string(1'000'000, 'x');
  const std::array<std::span<const std::byte>, 3> large_message_ = {bytes_of("head"), bytes_of(large_), bytes_of(large_)};
  MessageContext context_;
  Router router_ = Router::create(context_).value();
  Message message_;
};

TEST_F(SocketTest, PeersAreKnownByTheNamesTheRouterGaveThem) {
  Dealer first = Dealer::bind(context_, path("a")).value(), second = Dealer::bind(context_, path("b")).value();
  ASSERT_TRUE(router_.connect(path("a"), 0).ok());
  ASSERT_TRUE(router_.connect(path("b"), 0xfedcba9876543210).ok());
  ASSERT_TRUE(router_.send(0xfedcba9876543210, bytes_of("to b")).ok());
  ASSERT_TRUE(router_.send(0, bytes_of("to a")).ok());
  ASSERT_TRUE(receive(first));
  EXPECT_EQ(text_of(message_[0]), "to a");
  ASSERT_TRUE(receive(second));
  EXPECT_EQ(text_of(message_[0]), "to b");
  ASSERT_TRUE(second.send(bytes_of("from b")).ok());
  PeerId peer = 5;
  ASSERT_TRUE(receive(peer));
  EXPECT_EQ(peer, 0xfedcba9876543210);
  EXPECT_EQ(message_.size(), 1u);
  EXPECT_EQ(text_of(message_[0]), "from b");
}

TEST_F(SocketTest, FramesAreForwardedWithoutTheirFirst) {
  Dealer dealer = Dealer::bind(context_, path("a")).value();
  ASSERT_TRUE(router_.connect(path("a"), 1).ok());
  const std::string large(1'000'000, 'x');
  const std::span<const std::byte> frames[] = {bytes_of("head"), bytes_of(""), bytes_of(large)};
  ASSERT_TRUE(router_.send(1, Frames(frames)).ok());
  ASSERT_TRUE(receive(dealer));
  ASSERT_EQ(message_.size(), 3u);
  EXPECT_EQ(message_.size_bytes(), 4u + large.size());
  ASSERT_TRUE(dealer.send(Frames(frames)).ok());
  PeerId peer = 0;
  ASSERT_TRUE(receive(peer));
  const Message kept = std::move(message_);
  for (int round = 0; round < 2; ++round) {  // a request that is run again is sent again
    const std::span<const std::byte> head = bytes_of("new head");
    ASSERT_TRUE(router_.send(1, Frames(&head, 1), &kept, 1).ok());
    ASSERT_TRUE(receive(dealer));
    ASSERT_EQ(message_.size(), 3u);
    EXPECT_EQ(text_of(message_[0]), "new head");
    EXPECT_EQ(text_of(message_[2]), large);
  }
}

TEST_F(SocketTest, APeerThatWasNeverNamedOrIsGoneCannotBeSentTo) {
  EXPECT_EQ(router_.send(9, bytes_of("x")).code(), StatusCode::kUnavailable);
  Dealer dealer = Dealer::bind(context_, path("a")).value();
  ASSERT_TRUE(router_.connect(path("a"), 1).ok());
  ASSERT_TRUE(router_.send(1, bytes_of("x")).ok());
  ASSERT_TRUE(receive(dealer));
  router_.disconnect(path("a"), 1);
  router_.disconnect(path("a"), 1);
  ASSERT_TRUE(within_deadline(router_, [&] { return !router_.send(1, bytes_of("x")).ok(); }));
}

// libzmq would follow the link, and wait where it leads.
TEST_F(SocketTest, APeerBehindALinkIsNotConnected) {
  const Dealer dealer = Dealer::bind(context_, path("peer")).value();
  ASSERT_EQ(::symlink(path("peer").c_str(), path("link").c_str()), 0);
  EXPECT_EQ(router_.connect(path("link"), 1).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(router_.connect(path("nothing"), 2).code(), StatusCode::kNotFound);
  EXPECT_TRUE(router_.connect(path("peer"), 3).ok());
}

TEST_F(SocketTest, AMessageForADeadPeerIsNotKeptForTheNextOneAtItsPath) {
  {
    Dealer dealer = Dealer::bind(context_, path("a")).value();
    ASSERT_TRUE(router_.connect(path("a"), 1).ok());
    ASSERT_TRUE(router_.send(1, bytes_of("first")).ok());
    ASSERT_TRUE(receive(dealer));
  }
  std::filesystem::remove(path("a"));
  (void)router_.send(1, bytes_of("for the dead")).ok();
  Dealer next = Dealer::bind(context_, path("a")).value();
  ASSERT_TRUE(router_.connect(path("a"), 2).ok());
  ASSERT_TRUE(router_.send(2, bytes_of("for the living")).ok());
  ASSERT_TRUE(receive(next));
  EXPECT_EQ(text_of(message_[0]), "for the living");
}

// wait() receives half of a message, and libzmq 4.3.4 may forget the other half when it notices by itself that the peer is gone.
TEST_F(SocketTest, AMessageIsWholeWhenAPeerDiesBetweenWaitingAndReceiving) {
  auto dying = std::make_unique<Dealer>(Dealer::bind(context_, path("a")).value());
  Dealer living = Dealer::bind(context_, path("b")).value();
  ASSERT_TRUE(router_.connect(path("a"), 1).ok() && router_.connect(path("b"), 2).ok());
  ASSERT_TRUE(router_.send(1, bytes_of("x")).ok() && router_.send(2, bytes_of("x")).ok());
  ASSERT_TRUE(receive(*dying) && receive(living));
  const std::span<const std::byte> frames[] = {bytes_of("head"), bytes_of("tail")};
  ASSERT_TRUE(dying->send(Frames(frames)).ok());
  Waitable items[] = {{.socket = &router_}};
  ASSERT_TRUE(wait(items, std::chrono::seconds(2)));
  dying.reset();
  ASSERT_TRUE(living.send(Frames(frames)).ok());
  const std::uint64_t end = monotonic_now_ns() + 200'000'000;
  while (monotonic_now_ns() < end) {
    ASSERT_TRUE(router_.send(2, bytes_of("x")).ok());  // any call is an occasion to notice
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  for (const PeerId sender : {1, 2}) {
    PeerId peer = 0;
    ASSERT_TRUE(receive(peer));
    EXPECT_EQ(peer, sender);
    ASSERT_EQ(message_.size(), 2u);
    EXPECT_EQ(text_of(message_[0]) + text_of(message_[1]), "headtail");
  }
}

// libzmq forgets a peer that it cuts off, but not where it was: the next one may stand there.
TEST_F(SocketTest, DisconnectingAPeerThatWasCutOffLeavesTheNextOneAlone) {
  router_.limit_frames(1000);
  const std::string overlong(5000, 'x');
  for (PeerId peer = 1; peer < 400; peer += 2) {
    Dealer rude = Dealer::bind(context_, path("rude")).value();
    ASSERT_TRUE(router_.connect(path("rude"), peer).ok());
    ASSERT_TRUE(router_.send(peer, bytes_of("x")).ok());
    ASSERT_TRUE(receive(rude));
    ASSERT_TRUE(rude.send(bytes_of(overlong)).ok());
    ASSERT_TRUE(within_deadline(router_, [&] { return !router_.send(peer, bytes_of("x")).ok(); })) << "it is cut off";
    Dealer other = Dealer::bind(context_, path("other")).value();
    ASSERT_TRUE(router_.connect(path("other"), peer + 1).ok());
    ASSERT_TRUE(router_.send(peer + 1, bytes_of("x")).ok());
    ASSERT_TRUE(receive(other));
    router_.disconnect(path("rude"), peer);
    for (int round = 0; round < 3; ++round) {
      PeerId from = 0;
      ASSERT_TRUE(other.send(bytes_of("y")).ok()) << peer;
      ASSERT_TRUE(receive(from)) << peer;
      EXPECT_EQ(from, peer + 1);
      ASSERT_TRUE(router_.send(peer + 1, bytes_of("x")).ok()) << peer;
      ASSERT_TRUE(receive(other)) << peer;
    }
    router_.disconnect(path("other"), peer + 1);
    std::filesystem::remove(path("rude"));
    std::filesystem::remove(path("other"));
  }
}

// libzmq 4.3.4 aborts the process when a peer that is being dropped hangs up in the middle of a message.
TEST_F(SocketTest, APeerMayHangUpInTheMiddleOfAMessageWhileItIsDisconnected) {
  const UniqueFd listener = test::bound_socket(path("rude"), SOCK_STREAM);
  ASSERT_TRUE(router_.connect(path("rude"), 1).ok());
  test::zmtp::Connection rude(UniqueFd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC)));
  rude.shake_hands("DEALER");
  ASSERT_TRUE(router_.send(1, Frames(large_message_)).ok());
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // until its first frame fills the connection
  const std::uint64_t let_go_ns = monotonic_now_ns();
  router_.disconnect(path("rude"), 1);
  std::this_thread::sleep_for(std::chrono::milliseconds(2));  // until ZeroMQ's thread has heard of that
  if (monotonic_now_ns() > let_go_ns + 30'000'000) GTEST_SKIP() << "the machine is too busy: the peer has 50 ms";
  rude.hang_up();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  Dealer next = Dealer::bind(context_, path("next")).value();
  ASSERT_TRUE(router_.connect(path("next"), 2).ok());
  ASSERT_TRUE(router_.send(2, bytes_of("x")).ok());
  ASSERT_TRUE(receive(next));
}

TEST_F(SocketTest, ADealerMayCloseInTheMiddleOfAMessageWhileItsPeerHangsUp) {
  for (int round = 0; round < 300; ++round) {
    const std::string name = "dealer" + std::to_string(round);
    auto dealer = std::make_unique<Dealer>(Dealer::bind(context_, path(name)).value());
    test::zmtp::Connection rude(test::connected_socket(path(name), SOCK_STREAM));
    rude.shake_hands("ROUTER");
    ASSERT_TRUE(within_deadline(*dealer, [&] { return dealer->send(Frames(large_message_)).ok(); }));
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    dealer.reset();  // which goes on in ZeroMQ's threads
    for (const std::uint64_t until_ns = monotonic_now_ns() + static_cast<std::uint64_t>(round) * 500;
         monotonic_now_ns() < until_ns;) {
    }
    rude.hang_up();
  }
}

// A message that is half sent would be completed by the next one, even by one for another peer.
TEST_F(SocketTest, AMessageThatGetsNoMemoryIsNotSentAtAll) {
  if (!kMayReplaceMalloc) GTEST_SKIP() << "the sanitizer has its own malloc";
  Dealer first = Dealer::bind(context_, path("a")).value(), second = Dealer::bind(context_, path("b")).value();
  ASSERT_TRUE(router_.connect(path("a"), 1).ok() && router_.connect(path("b"), 2).ok());
  ASSERT_TRUE(router_.send(1, Frames(large_message_)).ok());
  ASSERT_TRUE(receive(first));
  const std::string body(100, 'b'), note(50, 'n');
  const std::array<std::span<const std::byte>, 3> frames = {bytes_of(note), bytes_of(body), bytes_of(large_)};
  int failures = 0;
  for (int nth = 1;; ++nth) {
    Status sent;
    bool has_failed = false;
    {
      const FailingAllocation failing(nth);
      sent = router_.send(1, Frames(frames));
      has_failed = FailingAllocation::has_failed();
    }
    if (!has_failed) {
      EXPECT_TRUE(sent.ok()) << sent.to_string();
      break;
    }
    ++failures;
    EXPECT_EQ(sent.code(), StatusCode::kFailedPrecondition) << "allocation " << nth;
    ASSERT_TRUE(router_.send(2, Frames(large_message_)).ok());
    ASSERT_TRUE(receive(second)) << "after a failure of allocation " << nth;
    ASSERT_EQ(message_.size(), 3u);
    EXPECT_EQ(text_of(message_[0]), "head");
  }
  EXPECT_GE(failures, 3) << "each frame needs memory";
  ASSERT_TRUE(receive(first));
  ASSERT_EQ(message_.size(), 3u);
  EXPECT_EQ(text_of(message_[0]), note);
  EXPECT_EQ(text_of(message_[1]), body);
  EXPECT_FALSE(first.receive(message_).value()) << "nothing of the others was sent";
}

TEST_F(SocketTest, ADealersMessageThatGetsNoMemoryIsNotSentAtAll) {
  if (!kMayReplaceMalloc) GTEST_SKIP() << "the sanitizer has its own malloc";
  Dealer dealer = Dealer::bind(context_, path("a")).value();
  ASSERT_TRUE(router_.connect(path("a"), 1).ok());
  ASSERT_TRUE(within_deadline(dealer, [&] { return dealer.send(bytes_of("x")).ok(); }));
  PeerId peer = 0;
  ASSERT_TRUE(receive(peer));
  {
    const FailingAllocation failing(1);  // "head" lies in the frame itself
    EXPECT_EQ(dealer.send(Frames(large_message_)).code(), StatusCode::kFailedPrecondition);
    ASSERT_TRUE(FailingAllocation::has_failed());
  }
  ASSERT_TRUE(dealer.send(bytes_of("next")).ok());
  ASSERT_TRUE(receive(peer));
  ASSERT_EQ(message_.size(), 1u);
  EXPECT_EQ(text_of(message_[0]), "next");
}

// libzmq looks for its commands from time to time, and there a signal interrupts it.
TEST_F(SocketTest, SignalsLoseNoMessage) {
  constexpr int kMessages = 2000;
  Dealer dealer = Dealer::bind(context_, path("a")).value();
  ASSERT_TRUE(router_.connect(path("a"), 1).ok());
  ASSERT_TRUE(router_.send(1, bytes_of("x")).ok());
  ASSERT_TRUE(receive(dealer));
  const std::string body(60, 'b');
  const Interruptions interruptions;
  for (int i = 0; i < kMessages; ++i) {
    const std::span<const std::byte> number = std::as_bytes(std::span(&i, 1));
    // libzmq may be interrupted at every hundredth frame. With the sender's name each message has 7 frames, so it is another one
    // of them each time.
    const std::array<std::span<const std::byte>, 6> frames = {number, bytes_of(body), number, number, number, number};
    ASSERT_TRUE(dealer.send(Frames(frames)).ok()) << "message " << i;
    PeerId peer = 0;
    ASSERT_TRUE(receive(peer)) << "message " << i;
    ASSERT_EQ(peer, 1u);
    ASSERT_EQ(message_.size(), 6u) << "message " << i;
    for (const std::size_t frame : {0, 2, 3, 4, 5}) {
      int got = -1;
      ASSERT_EQ(message_[frame].size(), sizeof got) << "message " << i;
      std::memcpy(&got, message_[frame].data(), sizeof got);
      ASSERT_EQ(got, i);
    }
  }
  EXPECT_GT(Interruptions::count(), kMessages / 50) << "libzmq was interrupted";
}

// libzmq looks for its commands after 100 frames, so here a signal interrupts it in the middle of each message.
TEST_F(SocketTest, ASignalBetweenTwoFramesLosesNothing) {
  Dealer dealer = Dealer::bind(context_, path("a")).value();
  ASSERT_TRUE(router_.connect(path("a"), 1).ok());
  const std::vector<std::span<const std::byte>> frames(257, bytes_of("x"));
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(within_deadline(dealer, [&] { return dealer.send(Frames(frames)).ok(); }));
    Waitable items[] = {{.socket = &router_}};
    ASSERT_TRUE(wait(items, std::chrono::seconds(2)));
    PeerId peer = 0;
    {
      const Interruptions interruptions;
      ASSERT_TRUE(router_.receive(peer, message_).value()) << "message " << i;
      ASSERT_GT(Interruptions::count(), 0) << "message " << i << " was not interrupted";
    }
    ASSERT_EQ(message_.size(), frames.size()) << "message " << i;
    EXPECT_EQ(peer, 1u);
    ASSERT_FALSE(router_.receive(peer, message_).value()) << "a part of message " << i << " came as a message";
  }
}

// Messages of ours have far fewer frames. Whoever sends more must not make a receiver keep room for them.
TEST_F(SocketTest, FramesBeyondTheLimitAreDropped) {
  Dealer dealer = Dealer::bind(context_, path("a")).value();
  ASSERT_TRUE(router_.connect(path("a"), 1).ok());
  const std::vector<std::span<const std::byte>> many(10'000, bytes_of("x"));
  ASSERT_TRUE(within_deadline(dealer, [&] { return dealer.send(Frames(many)).ok(); }));
  ASSERT_TRUE(dealer.send(bytes_of("next")).ok());
  PeerId peer = 0;
  ASSERT_TRUE(receive(peer));
  EXPECT_LE(message_.size(), 300u);
  EXPECT_GT(message_.size(), 257u) << "so many frames a request may have";
  ASSERT_TRUE(receive(peer));
  ASSERT_EQ(message_.size(), 1u);
  EXPECT_EQ(text_of(message_[0]), "next");
}

TEST_F(SocketTest, SmallMessagesThatAPeerDoesNotReadAreCounted) {
  constexpr int kMessages = 5000;
  const ByteCount all = make_byte_count(), group = make_byte_count();
  Unsent unsent(all, group);
  const UniqueFd listener = test::bound_socket(path("mute"), SOCK_STREAM);
  ASSERT_TRUE(router_.connect(path("mute"), 1).ok());
  test::zmtp::Connection mute(UniqueFd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC)));
  mute.shake_hands("DEALER");
  const std::string text(200, 'x');
  const std::span<const std::byte> frame = bytes_of(text);
  for (int i = 0; i < kMessages; ++i) ASSERT_TRUE(router_.send(1, Frames(&frame, 1), nullptr, 0, &unsent).ok());
  const auto in_the_connection = std::uint64_t{1} << 20;  // at most, whatever the kernel's buffers are
  const std::uint64_t sent = kMessages * (text.size() + kFrameOverhead);
  EXPECT_GE(unsent.bytes() + in_the_connection, sent);
  EXPECT_GE(all->load() + in_the_connection + Unsent::kCountedTogether, sent);
  EXPECT_GE(group->load() + in_the_connection + Unsent::kCountedTogether, sent);
  const auto is_all_sent = [&] {
    mute.read_everything(20);
    return unsent.bytes() <= Unsent::kCountedTogether && all->load() == 0;
  };
  EXPECT_TRUE(within_deadline(router_, is_all_sent)) << unsent.bytes() << " and " << all->load() << " bytes";
  for (int i = 0; i < kMessages; ++i) ASSERT_TRUE(router_.send(1, Frames(&frame, 1), nullptr, 0, &unsent).ok());
  mute.hang_up();
  router_.disconnect(path("mute"), 1);
  EXPECT_TRUE(within_deadline(router_, [&] { return all->load() == 0; })) << "what is lost does not wait any more";
  EXPECT_EQ(group->load(), 0u);
}

// What waits in libzmq is known to nobody else.
TEST_F(SocketTest, APeerThatSendsTooMuchIsNotRead) {
  const UniqueFd listener = test::bound_socket(path("eager"), SOCK_STREAM);
  ASSERT_TRUE(router_.connect(path("eager"), 1).ok());
  test::zmtp::Connection eager(UniqueFd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC)));
  eager.shake_hands("DEALER");
  const std::string message = test::zmtp::frame(0, std::string(250, 'x'));
  std::string many;
  for (int i = 0; i < 1000; ++i) many += message;
  std::size_t taken = 0;
  std::uint64_t quiet_from_ns = monotonic_now_ns();
  while (monotonic_now_ns() < quiet_from_ns + 300'000'000 && taken < 20 * many.size()) {
    const std::size_t sent = eager.send_some(std::string_view(many).substr(taken % message.size()));
    if (sent > 0) quiet_from_ns = monotonic_now_ns();
    taken += sent;
  }
  EXPECT_LT(taken, 8 * many.size()) << "256 messages, and what fits the connection";
  EXPECT_GT(taken, 256 * message.size());
  PeerId peer = 0;  // and it is read again when there is room
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(receive(peer)) << i;
}

/// A peer that has connected with `router` and sends each frame only when the one before it was read.
class SlowPeer {
 public:
  SlowPeer(Router& router, const std::string& path, PeerId name) {
    const UniqueFd listener = test::bound_socket(path, SOCK_STREAM);
    EXPECT_TRUE(router.connect(path, name).ok());
    UniqueFd socket(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    fd_ = socket.get();
    connection_ = test::zmtp::Connection(std::move(socket));
    connection_.shake_hands("DEALER");
  }
  void send(const std::string& frame) {
    ASSERT_TRUE(connection_.send_all(frame));
    int unread = 1;
    while (unread > 0) ASSERT_EQ(::ioctl(fd_, TIOCOUTQ, &unread), 0);
  }

 private:
  int fd_ = -1;
  test::zmtp::Connection connection_;
};

std::size_t heap_bytes() {
  const struct mallinfo2 info = ::mallinfo2();
  return info.uordblks + info.hblkhd;
}

// A frame of 34 bytes can keep 18 KiB.
TEST_F(SocketTest, SmallFramesCountTheBuffersThatTheyKeep) {
  if (!kMayReplaceMalloc) GTEST_SKIP() << "the sanitizer's malloc does not say what it has handed out";
  constexpr int kFrames = 100;
  SlowPeer slow(router_, path("slow"), 1), fast(router_, path("fast"), 2);
  const std::string text(34, 'x');
  PeerId peer = 0;
  message_.clear();
  const std::size_t before = heap_bytes();
  for (int i = 1; i < kFrames; ++i) ASSERT_NO_FATAL_FAILURE(slow.send(test::zmtp::frame(test::zmtp::kMore, text)));
  slow.send(test::zmtp::frame(0, text));
  ASSERT_TRUE(receive(peer));
  const std::size_t held = heap_bytes() - before;
  EXPECT_GT(held, std::size_t{kFrames} * 10'000) << "libzmq is no longer what memory_bytes() takes it for";
  EXPECT_GE(message_.memory_bytes(), held);
  // The same answer, forwarded to a peer that does not take it, counts as much.
  const UniqueFd silent = test::bound_socket(path("silent"), SOCK_STREAM);  // accepts no connection
  ASSERT_TRUE(router_.connect(path("silent"), 3).ok());
  Unsent unsent;
  ASSERT_TRUE(router_.send(3, {}, &message_, 1, &unsent).ok());
  EXPECT_GE(unsent.bytes(), held / kFrames * (kFrames - 1));

  std::string at_once;
  for (int i = 1; i < kFrames; ++i) at_once += test::zmtp::frame(test::zmtp::kMore, text);
  fast.send(at_once + test::zmtp::frame(0, text));
  ASSERT_TRUE(receive(peer));
  EXPECT_EQ(message_.size(), std::size_t{kFrames});
  EXPECT_LE(message_.memory_bytes(), kFrames * (text.size() + kFrameOverhead) + 2 * kReceiveBuffer) << "they share one";
}

TEST_F(SocketTest, ADealerWithoutPeerSaysSoInsteadOfWaiting) {
  Dealer dealer = Dealer::bind(context_, path("a")).value();
  EXPECT_EQ(dealer.send(bytes_of("x")).code(), StatusCode::kUnavailable);
}

TEST_F(SocketTest, PathsBeyondTheLimitAreRefused) {
  const std::string longest = "/tmp/" + std::string(kMaxSocketPath - 5, 'x'), too_long = longest + "x";
  EXPECT_TRUE(check_socket_path(longest).ok());
  EXPECT_EQ(check_socket_path(too_long).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Dealer::bind(context_, too_long).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(router_.connect(too_long, 1).code(), StatusCode::kInvalidArgument);
}

TEST_F(SocketTest, WaitSeesSocketsAndDescriptors) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  Waitable items[] = {{.socket = &router_}, {.fd = ends[0]}};
  EXPECT_FALSE(wait(items, std::chrono::milliseconds(0)));
  ASSERT_EQ(::write(ends[1], "x", 1), 1);
  EXPECT_TRUE(wait(items, std::chrono::milliseconds(1000)));
  EXPECT_FALSE(items[0].readable);
  EXPECT_TRUE(items[1].readable);
  ::close(ends[0]);
  ::close(ends[1]);
}

}  // namespace
}  // namespace shoal::wire
