// Peers that are gone, die, hang up or are cut off, and what that does to others.
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <thread>

#include "tests/support/unix_socket.hpp"
#include "tests/support/zmtp.hpp"
#include "tests/unit/shm/wire/socket_fixture.hpp"

namespace shoal::wire {
namespace {

TEST_F(SocketTest, APeerThatWasNeverNamedOrIsGoneCannotBeSentTo) {
  EXPECT_EQ(send(9, bytes_of("x")).code(), StatusCode::kUnavailable);
  Dealer dealer = Dealer::bind(context_, path("a")).value();
  ASSERT_TRUE(router_.connect(path("a"), 1, false).ok());
  ASSERT_TRUE(send(1, bytes_of("x")).ok());
  ASSERT_TRUE(receive(dealer));
  router_.disconnect(path("a"), 1);
  router_.disconnect(path("a"), 1);
  ASSERT_TRUE(within_deadline(router_, [&] { return !send(1, bytes_of("x")).ok(); }));
}

// libzmq would follow the link, and wait where it leads.
TEST_F(SocketTest, APeerBehindALinkIsNotConnected) {
  const Dealer dealer = Dealer::bind(context_, path("peer")).value();
  ASSERT_EQ(::symlink(path("peer").c_str(), path("link").c_str()), 0);
  EXPECT_EQ(router_.connect(path("link"), 1, false).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(router_.connect(path("nothing"), 2, false).code(), StatusCode::kNotFound);
  EXPECT_TRUE(router_.connect(path("peer"), 3, false).ok());
}

TEST_F(SocketTest, AMessageForADeadPeerIsNotKeptForTheNextOneAtItsPath) {
  {
    Dealer dealer = Dealer::bind(context_, path("a")).value();
    ASSERT_TRUE(router_.connect(path("a"), 1, false).ok());
    ASSERT_TRUE(send(1, bytes_of("first")).ok());
    ASSERT_TRUE(receive(dealer));
  }
  std::filesystem::remove(path("a"));
  (void)send(1, bytes_of("for the dead")).ok();
  Dealer next = Dealer::bind(context_, path("a")).value();
  ASSERT_TRUE(router_.connect(path("a"), 2, false).ok());
  ASSERT_TRUE(send(2, bytes_of("for the living")).ok());
  ASSERT_TRUE(receive(next));
  EXPECT_EQ(text_of(message_[0]), "for the living");
}

// wait() receives half of a message, and libzmq 4.3.4 may forget the other half when it notices by itself that the peer is gone.
TEST_F(SocketTest, AMessageIsWholeWhenAPeerDiesBetweenWaitingAndReceiving) {
  auto dying = std::make_unique<Dealer>(Dealer::bind(context_, path("a")).value());
  Dealer living = Dealer::bind(context_, path("b")).value();
  ASSERT_TRUE(router_.connect(path("a"), 1, false).ok() && router_.connect(path("b"), 2, false).ok());
  ASSERT_TRUE(send(1, bytes_of("x")).ok() && send(2, bytes_of("x")).ok());
  ASSERT_TRUE(receive(*dying) && receive(living));
  const std::span<const std::byte> frames[] = {bytes_of("head"), bytes_of("tail")};
  ASSERT_TRUE(dying->send(Frames(frames)).ok());
  Waitable items[] = {{.socket = &router_}};
  ASSERT_TRUE(wait(items, std::chrono::seconds(2)));
  dying.reset();
  ASSERT_TRUE(living.send(Frames(frames)).ok());
  const std::uint64_t end = monotonic_now_ns() + 200'000'000;
  while (monotonic_now_ns() < end) {
    ASSERT_TRUE(send(2, bytes_of("x")).ok());  // any call is an occasion to notice
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
    ASSERT_TRUE(router_.connect(path("rude"), peer, false).ok());
    ASSERT_TRUE(send(peer, bytes_of("x")).ok());
    ASSERT_TRUE(receive(rude));
    ASSERT_TRUE(rude.send(bytes_of(overlong)).ok());
    ASSERT_TRUE(within_deadline(router_, [&] { return !send(peer, bytes_of("x")).ok(); })) << "it is cut off";
    Dealer other = Dealer::bind(context_, path("other")).value();
    ASSERT_TRUE(router_.connect(path("other"), peer + 1, false).ok());
    ASSERT_TRUE(send(peer + 1, bytes_of("x")).ok());
    ASSERT_TRUE(receive(other));
    EXPECT_TRUE(router_.disconnect(path("rude"), peer)) << "it was cut off";
    for (int round = 0; round < 3; ++round) {
      PeerId from = 0;
      ASSERT_TRUE(other.send(bytes_of("y")).ok()) << peer;
      ASSERT_TRUE(receive(from)) << peer;
      EXPECT_EQ(from, peer + 1);
      ASSERT_TRUE(send(peer + 1, bytes_of("x")).ok()) << peer;
      ASSERT_TRUE(receive(other)) << peer;
    }
    EXPECT_FALSE(router_.disconnect(path("other"), peer + 1));
    std::filesystem::remove(path("rude"));
    std::filesystem::remove(path("other"));
  }
}

TEST_F(SocketTest, APeerThatDiesWasNotCutOff) {
  const std::string part = test::zmtp::long_frame(test::zmtp::kMore, std::string(1000, 'x')).substr(0, 500);
  for (PeerId peer = 1; peer < 5; ++peer) {
    const UniqueFd listener = test::bound_socket(path("dies"), SOCK_STREAM);
    ASSERT_TRUE(router_.connect(path("dies"), peer, false).ok());
    test::zmtp::Connection dies(UniqueFd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC)));
    if (peer > 1) dies.shake_hands("DEALER");
    if (peer > 2) dies.send(part);
    if (peer > 3) (void)send(peer, bytes_of("x"));
    dies.hang_up();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_FALSE(router_.disconnect(path("dies"), peer)) << peer;
    std::filesystem::remove(path("dies"));
  }
  EXPECT_FALSE(router_.disconnect(path("never came"), 77));
}

/// Whether a message that is much longer fills the connection: the peer has got only its beginning.
bool is_in_the_middle(const test::zmtp::Connection& peer) {
  int waiting = 0;
  return ::ioctl(peer.fd(), FIONREAD, &waiting) == 0 && waiting > 50'000;
}

// libzmq 4.3.4 aborts the process when a peer that is being dropped hangs up in the middle of a message.
TEST_F(SocketTest, APeerMayHangUpInTheMiddleOfAMessageWhileItIsDisconnected) {
  const UniqueFd listener = test::bound_socket(path("rude"), SOCK_STREAM);
  ASSERT_TRUE(router_.connect(path("rude"), 1, false).ok());
  test::zmtp::Connection rude(UniqueFd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC)));
  rude.shake_hands("DEALER");
  ASSERT_TRUE(send(1, Frames(large_message_)).ok());
  ASSERT_TRUE(within_deadline(router_, [&] { return is_in_the_middle(rude); }));
  const std::uint64_t let_go_ns = monotonic_now_ns();
  router_.disconnect(path("rude"), 1);
  std::this_thread::sleep_for(std::chrono::milliseconds(2));  // until ZeroMQ's thread has heard of that, which nothing shows
  if (monotonic_now_ns() > let_go_ns + 30'000'000) GTEST_SKIP() << "the machine is too busy: the peer has 50 ms";
  rude.hang_up();
  Dealer next = Dealer::bind(context_, path("next")).value();
  ASSERT_TRUE(router_.connect(path("next"), 2, false).ok());
  ASSERT_TRUE(send(2, bytes_of("x")).ok());
  ASSERT_TRUE(receive(next));
}

TEST_F(SocketTest, ADealerMayCloseInTheMiddleOfAMessageWhileItsPeerHangsUp) {
  for (int round = 0; round < 300; ++round) {
    const std::string name = "dealer" + std::to_string(round);
    auto dealer = std::make_unique<Dealer>(Dealer::bind(context_, path(name)).value());
    test::zmtp::Connection rude(test::connected_socket(path(name), SOCK_STREAM));
    rude.shake_hands("ROUTER");
    ASSERT_TRUE(within_deadline(*dealer, [&] { return dealer->send(Frames(large_message_)).ok(); }));
    ASSERT_TRUE(within_deadline(*dealer, [&] { return is_in_the_middle(rude); }));
    dealer.reset();  // which goes on in ZeroMQ's threads
    for (const std::uint64_t until_ns = monotonic_now_ns() + static_cast<std::uint64_t>(round) * 500;
         monotonic_now_ns() < until_ns;) {
    }
    rude.hang_up();
  }
}

}  // namespace
}  // namespace shoal::wire
