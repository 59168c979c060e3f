// What peers make this process keep is limited and counted.
#include <malloc.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/no_descriptors.hpp"
#include "tests/support/scratch_directory.hpp"
#include "tests/support/unix_socket.hpp"
#include "tests/support/zmtp.hpp"
#include "tests/unit/shm/wire/socket_faults.hpp"
#include "tests/unit/shm/wire/socket_fixture.hpp"

namespace shoal::wire {
namespace {

TEST(MessageContext, WithoutDescriptorsGivesNoSockets) {
  const test::ScratchDirectory scratch;
  std::optional<MessageContext> context;
  {
    const test::NoDescriptors none;
    context.emplace();
  }
  EXPECT_EQ(context->handle(), nullptr);
  EXPECT_EQ(Router::create(*context).status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(Dealer::bind(*context, scratch.path("dealer")).status().code(), StatusCode::kUnavailable);
}

TEST_F(SocketTest, WithoutDescriptorsThereIsNoOtherSocket) {
  const test::NoDescriptors none;
  const Status why = Router::create(context_).status();
  EXPECT_EQ(why.code(), StatusCode::kUnavailable) << why.message();
}

// Messages of ours have far fewer frames. Whoever sends more must not make a receiver keep room for them.
TEST_F(SocketTest, FramesBeyondTheLimitAreDropped) {
  Dealer dealer = Dealer::bind(context_, path("a")).value();
  ASSERT_TRUE(router_.connect(path("a"), 1, false).ok());
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
  ASSERT_TRUE(router_.connect(path("mute"), 1, false).ok());
  test::zmtp::Connection mute(UniqueFd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC)));
  mute.shake_hands("DEALER");
  const std::string text(200, 'x');
  const std::span<const std::byte> frame = bytes_of(text);
  for (int i = 0; i < kMessages; ++i) ASSERT_TRUE(send(1, Frames(&frame, 1), {}, &unsent).ok());
  const auto in_the_connection = std::uint64_t{1} << 20;  // at most, whatever the kernel's buffers are
  const std::uint64_t sent = kMessages * (text.size() + kFrameOverhead);
  EXPECT_GE(unsent.bytes() + in_the_connection, sent);
  EXPECT_GE(all->load() + in_the_connection + Unsent::kCountedTogether, sent);
  EXPECT_GE(group->load() + in_the_connection + Unsent::kCountedTogether, sent);
  const auto is_all_sent = [&] {
    mute.read_everything(20);
    PeerId peer = 0;
    (void)router_.receive(peer, message_);  // ends what libzmq has to do in this thread
    return unsent.bytes() <= Unsent::kCountedTogether && all->load() == 0;
  };
  EXPECT_TRUE(within_deadline(router_, is_all_sent)) << unsent.bytes() << " and " << all->load() << " bytes";
  for (int i = 0; i < kMessages; ++i) ASSERT_TRUE(send(1, Frames(&frame, 1), {}, &unsent).ok());
  mute.hang_up();
  router_.disconnect(path("mute"), 1);
  EXPECT_TRUE(within_deadline(router_, [&] { return all->load() == 0; })) << "what is lost does not wait any more";
  EXPECT_EQ(group->load(), 0u);
}

// What waits in libzmq is known to nobody else.
TEST_F(SocketTest, APeerThatSendsTooMuchIsNotRead) {
  const UniqueFd listener = test::bound_socket(path("eager"), SOCK_STREAM);
  ASSERT_TRUE(router_.connect(path("eager"), 1, false).ok());
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
    EXPECT_TRUE(router.connect(path, name, false).ok());
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
  ASSERT_TRUE(router_.connect(path("silent"), 3, false).ok());
  Unsent unsent;
  ASSERT_TRUE(send(3, {}, message_.payload, &unsent).ok());
  EXPECT_GE(unsent.bytes(), held / kFrames * (kFrames - 1));

  std::string at_once;
  for (int i = 1; i < kFrames; ++i) at_once += test::zmtp::frame(test::zmtp::kMore, text);
  fast.send(at_once + test::zmtp::frame(0, text));
  ASSERT_TRUE(receive(peer));
  EXPECT_EQ(message_.size(), std::size_t{kFrames});
  EXPECT_LE(message_.memory_bytes(), kFrames * (text.size() + kFrameOverhead) + 2 * kReceiveBuffer) << "they share one";
}

}  // namespace
}  // namespace shoal::wire
