// No part of a message is sent, lost or taken for another one when memory is short or a signal interrupts libzmq.
#include <poll.h>

#include <cstring>
#include <new>
#include <string>
#include <vector>

#include "tests/unit/shm/wire/socket_faults.hpp"
#include "tests/unit/shm/wire/socket_fixture.hpp"

namespace shoal::wire {
namespace {

TEST_F(SocketTest, ABundleThatCannotBeSentIsReported) {
  if (!kMayReplaceMalloc) GTEST_SKIP() << "the sanitizer has its own malloc";
  Dealer dealer = Dealer::bind(context_, path("a")).value();
  ASSERT_TRUE(router_.connect(path("a"), 1, true).ok());
  const std::string body(100, 'b');
  ASSERT_TRUE(send(1, bytes_of("so that there is room for the reports")).ok());
  ASSERT_TRUE(router_.push(1, bytes_of(body)).ok() && router_.push(1, bytes_of(body)).ok());
  std::vector<Outbox::Lost> lost;
  {
    const FailingAllocation failing(1);
    const auto reported = router_.flush();
    ASSERT_TRUE(FailingAllocation::has_failed());
    lost.assign(reported.begin(), reported.end());
  }
  ASSERT_EQ(lost.size(), 1u);
  EXPECT_EQ(lost[0].peer, 1u);
  EXPECT_EQ(lost[0].why.code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(router_.flush().empty()) << "once";
}

// A message that is half sent would be completed by the next one, even by one for another peer.
TEST_F(SocketTest, AMessageThatGetsNoMemoryIsNotSentAtAll) {
  if (!kMayReplaceMalloc) GTEST_SKIP() << "the sanitizer has its own malloc";
  Dealer first = Dealer::bind(context_, path("a")).value(), second = Dealer::bind(context_, path("b")).value();
  ASSERT_TRUE(router_.connect(path("a"), 1, false).ok() && router_.connect(path("b"), 2, false).ok());
  ASSERT_TRUE(send(1, Frames(large_message_)).ok());
  ASSERT_TRUE(receive(first));
  const std::string body(100, 'b'), note(50, 'n');
  const std::array<std::span<const std::byte>, 3> frames = {bytes_of(note), bytes_of(body), bytes_of(large_)};
  int failures = 0;
  for (int nth = 1;; ++nth) {
    Status sent;
    bool has_failed = false;
    {
      const FailingAllocation failing(nth);
      sent = send(1, Frames(frames));
      has_failed = FailingAllocation::has_failed();
    }
    if (!has_failed) {
      EXPECT_TRUE(sent.ok()) << sent.to_string();
      break;
    }
    ++failures;
    EXPECT_EQ(sent.code(), StatusCode::kFailedPrecondition) << "allocation " << nth;
    ASSERT_TRUE(send(2, Frames(large_message_)).ok());
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
  ASSERT_TRUE(router_.connect(path("a"), 1, false).ok());
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

// Also one of which there was memory for some frames only, or that is in a bundle.
TEST_F(SocketTest, AMessageForWhichThereIsNoMemoryIsReceivedLater) {
  if (!kMayReplaceMalloc) GTEST_SKIP() << "the sanitizer has its own malloc";
  const std::string body(100, 'b'), note(50, 'n');
  int failures = 0;
  for (PeerId nth = 1;; ++nth) {
    const std::string at = path("a" + std::to_string(nth));
    Dealer dealer = Dealer::bind(context_, at).value();
    ASSERT_TRUE(router_.connect(at, nth, true).ok());
    const std::array<std::span<const std::byte>, 4> frames = {bytes_of(note), bytes_of(body), bytes_of(large_), bytes_of("end")};
    ASSERT_TRUE(send(nth, Frames(frames)).ok());
    ASSERT_TRUE(router_.push(nth, bytes_of(note)).ok() && router_.push(nth, bytes_of(body)).ok());
    ASSERT_TRUE(router_.flush().empty());
    ASSERT_TRUE(within_deadline(dealer, [&] { return dealer.is_readable(); }));
    ::poll(nullptr, 0, 10);  // until the bundle is there, too
    Parcel received[3];
    int count = 0, thrown = 0;
    bool is_readable = true;
    {
      const FailingAllocation failing(static_cast<int>(nth));
      while (count < 3 && is_readable) {
        try {
          is_readable = dealer.receive(received[count]).value();
          count += is_readable;
        } catch (const std::bad_alloc&) {
          ++thrown;
          is_readable = dealer.is_readable();
        }
      }
    }
    SCOPED_TRACE("allocation " + std::to_string(nth) + " failed");
    ASSERT_EQ(count, 3);
    ASSERT_EQ(received[0].size(), 4u);
    EXPECT_EQ(text_of(received[0][0]) + text_of(received[0][1]) + text_of(received[0][3]), note + body + "end");
    EXPECT_EQ(text_of(received[1][0]), note);
    EXPECT_EQ(text_of(received[2][0]), body);
    failures += thrown;
    if (thrown == 0) break;
  }
  EXPECT_GE(failures, 5);
}

// libzmq looks for its commands from time to time, and there a signal interrupts it.
TEST_F(SocketTest, SignalsLoseNoMessage) {
  constexpr int kMessages = 2000;
  Dealer dealer = Dealer::bind(context_, path("a")).value();
  ASSERT_TRUE(router_.connect(path("a"), 1, false).ok());
  ASSERT_TRUE(send(1, bytes_of("x")).ok());
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
  ASSERT_TRUE(router_.connect(path("a"), 1, false).ok());
  const std::vector<std::span<const std::byte>> frames(257, bytes_of("x"));
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(within_deadline(dealer, [&] { return dealer.send(Frames(frames)).ok(); }));
    ASSERT_TRUE(within_deadline(router_, [&] { return router_.is_readable(); }));
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

}  // namespace
}  // namespace shoal::wire
