#include "shm/wire/socket.hpp"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "shm/wire/messages.hpp"
#include "tests/unit/shm/wire/socket_fixture.hpp"

namespace shoal::wire {
namespace {

TEST_F(SocketTest, PeersAreKnownByTheNamesTheRouterGaveThem) {
  Dealer first = Dealer::bind(context_, path("a")).value(), second = Dealer::bind(context_, path("b")).value();
  ASSERT_TRUE(router_.connect(path("a"), 0, false).ok());
  ASSERT_TRUE(router_.connect(path("b"), 0xfedcba9876543210, false).ok());
  ASSERT_TRUE(send(0xfedcba9876543210, bytes_of("to b")).ok());
  ASSERT_TRUE(send(0, bytes_of("to a")).ok());
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
  ASSERT_TRUE(router_.connect(path("a"), 1, false).ok());
  const std::string large(1'000'000, 'x');
  const std::span<const std::byte> frames[] = {bytes_of("head"), bytes_of(""), bytes_of(large)};
  ASSERT_TRUE(send(1, Frames(frames)).ok());
  ASSERT_TRUE(receive(dealer));
  ASSERT_EQ(message_.size(), 3u);
  EXPECT_EQ(message_.size_bytes(), 4u + large.size());
  ASSERT_TRUE(dealer.send(Frames(frames)).ok());
  PeerId peer = 0;
  ASSERT_TRUE(receive(peer));
  const Parcel kept = std::move(message_);
  for (int round = 0; round < 2; ++round) {  // a request that is run again is sent again
    const std::span<const std::byte> head = bytes_of("new head");
    ASSERT_TRUE(send(1, Frames(&head, 1), kept.payload).ok());
    ASSERT_TRUE(receive(dealer));
    ASSERT_EQ(message_.size(), 3u);
    EXPECT_EQ(text_of(message_[0]), "new head");
    EXPECT_EQ(text_of(message_[2]), large);
  }
}

TEST_F(SocketTest, MessagesOfATurnTravelTogetherToAPeerThatTakesBundles) {
  Dealer dealer = Dealer::bind(context_, path("a")).value();
  ASSERT_TRUE(router_.connect(path("a"), 1, true).ok());
  const std::span<const std::byte> frames[] = {bytes_of("with a frame"), bytes_of("frame")};
  std::vector<std::string> expected = {"first", "second", "with a frame", "third", std::string(Bundle::kMostBytes, 'l'), ""};
  for (const std::string& text : expected) {
    const bool has_frame = text == "with a frame";
    ASSERT_TRUE((has_frame ? router_.push(1, Frames(frames), {}) : router_.push(1, bytes_of(text))).ok());
  }
  for (int i = 0; i < 1000; ++i) {  // more than one bundle takes
    expected.push_back("message " + std::to_string(i));
    ASSERT_TRUE(router_.push(1, bytes_of(expected.back())).ok());
  }
  EXPECT_TRUE(router_.flush().empty());
  for (const std::string& text : expected) {
    ASSERT_TRUE(receive(dealer)) << text;
    EXPECT_EQ(text_of(message_[0]), text);
    EXPECT_EQ(message_.size(), text == "with a frame" ? 2u : 1u);
  }
  EXPECT_FALSE(dealer.receive(message_).value());
}

TEST_F(SocketTest, APeerThatTakesNoBundlesGetsEachMessageByItself) {
  Dealer dealer = Dealer::bind(context_, path("a")).value();
  ASSERT_TRUE(router_.connect(path("a"), 1, false).ok());
  ASSERT_TRUE(router_.push(1, bytes_of("first")).ok() && router_.push(1, bytes_of("second")).ok());
  ASSERT_TRUE(receive(dealer)) << "before flush()";
  EXPECT_FALSE(dealer.has_unread());
}

TEST_F(SocketTest, NothingIsSentBeforeTheFlushAndADisconnectFlushes) {
  Dealer dealer = Dealer::bind(context_, path("a")).value();
  ASSERT_TRUE(router_.connect(path("a"), 1, true).ok());
  ASSERT_TRUE(send(1, bytes_of("connected")).ok());
  ASSERT_TRUE(receive(dealer));
  ASSERT_TRUE(router_.push(1, bytes_of("first")).ok() && router_.push(1, bytes_of("second")).ok());
  pollfd fd{dealer.fd(), POLLIN, 0};
  while (dealer.receive(message_).value()) {
  }
  EXPECT_EQ(::poll(&fd, 1, 20), 0);
  router_.disconnect(path("a"), 1);
  ASSERT_TRUE(receive(dealer));
  EXPECT_EQ(text_of(message_[0]), "first");
  ASSERT_TRUE(receive(dealer));
  EXPECT_EQ(text_of(message_[0]), "second");
}

// Whoever waits for the socket would not hear of them: its descriptor says nothing.
TEST_F(SocketTest, TheRestOfABundleIsFoundWithoutWaiting) {
  Dealer dealer = Dealer::bind(context_, path("a")).value();
  ASSERT_TRUE(router_.connect(path("a"), 1, true).ok());
  Bundle bundle;
  bundle.add(bytes_of("first"));
  bundle.add(bytes_of("second"));
  ASSERT_TRUE(within_deadline(dealer, [&] { return dealer.send(bundle.message()).ok(); }));
  PeerId peer = 0;
  ASSERT_TRUE(receive(peer));
  Waitable items[] = {{.socket = &router_}};
  EXPECT_TRUE(wait(items, std::chrono::seconds(2)) && items[0].readable);
  ASSERT_TRUE(router_.receive(peer, message_).value());
  EXPECT_EQ(peer, 1u);
  EXPECT_EQ(text_of(message_[0]), "second");
  EXPECT_FALSE(router_.has_unread());
}

// Otherwise the messages of one client's bundle would all come before those of other clients.
TEST_F(SocketTest, ARouterThatOpensNoBundlesReceivesOneAsOneMessage) {
  Router closed = Router::create(context_, /*opens_bundles=*/false).value();
  Dealer dealer = Dealer::bind(context_, path("a")).value();
  ASSERT_TRUE(closed.connect(path("a"), 1, true).ok());
  Bundle bundle;
  bundle.add(bytes_of("first"));
  bundle.add(bytes_of("second"));
  ASSERT_TRUE(within_deadline(dealer, [&] { return dealer.send(bundle.message()).ok(); }));
  PeerId peer = 0;
  ASSERT_TRUE(within_deadline(closed, [&] { return closed.receive(peer, message_).value(); }));
  EXPECT_EQ(peek_kind(message_.head).value(), Kind::kBundle);
  EXPECT_FALSE(closed.has_unread());
}

// What a message takes is counted by its size, and who keeps it keeps the room of its head, too.
TEST_F(SocketTest, AMessageThatIsReusedDoesNotKeepTheMemoryOfALongHead) {
  Dealer dealer = Dealer::bind(context_, path("a")).value();
  ASSERT_TRUE(router_.connect(path("a"), 1, true).ok());
  for (const std::size_t size : {std::size_t{5}, Parcel::kLongestHead, std::size_t{5}}) {
    ASSERT_TRUE(within_deadline(dealer, [&] { return dealer.send(bytes_of(std::string(size, 'x'))).ok(); }));
    PeerId peer = 0;
    ASSERT_TRUE(receive(peer));
    ASSERT_EQ(message_.head.size(), size);
    EXPECT_LE(message_.head.capacity(), std::max<std::size_t>(size, 4096));
  }
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
  EXPECT_EQ(router_.connect(too_long, 1, false).code(), StatusCode::kInvalidArgument);
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
