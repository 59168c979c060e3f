#include "shm/wire/control.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <cstring>
#include <filesystem>
#include <random>

#include "shm/segment/segment.hpp"

namespace shoal::wire {
namespace {

std::size_t open_descriptors() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

class ControlTest : public testing::Test {
 protected:
  ControlPair pair_ = make_control_pair().value();
  int ours() const { return pair_.ours.get(); }
  int theirs() const { return pair_.theirs.get(); }
};

TEST_F(ControlTest, AMessageArrivesWithItsDescriptors) {
  ControlMessage message{.kind = ControlKind::kFork, .id = 7, .a = 2, .b = 3, .text = "/dir"};
  message.fds.push_back(create_memfd("test", 4096).value());
  message.fds.push_back(create_memfd("test", 8192).value());
  ASSERT_TRUE(send_control(ours(), message).ok());
  const auto received = receive_control(theirs());
  ASSERT_TRUE(received.ok() && received->has_value());
  EXPECT_EQ((*received)->kind, ControlKind::kFork);
  EXPECT_EQ((*received)->id, 7u);
  EXPECT_EQ((*received)->a, 2u);
  EXPECT_EQ((*received)->b, 3u);
  EXPECT_EQ((*received)->text, "/dir");
  ASSERT_EQ((*received)->fds.size(), 2u);
  EXPECT_EQ(Segment::map((*received)->fds[1], Segment::Access::kReadOnly).value().size_bytes(), 8192u);
  EXPECT_EQ(::fcntl((*received)->fds[0].get(), F_GETFD), FD_CLOEXEC);
}

TEST_F(ControlTest, NothingWaitsWhenNothingWasSent) {
  const auto received = receive_control(theirs());
  ASSERT_TRUE(received.ok());
  EXPECT_FALSE(received->has_value());
}

TEST_F(ControlTest, EndOfFileSaysThatThePeerIsGone) {
  pair_.ours.reset();
  EXPECT_EQ(receive_control(theirs()).status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(send_control(theirs(), {.kind = ControlKind::kCancelRun}).code(), StatusCode::kUnavailable);
}

TEST_F(ControlTest, WhatWasSentBeforeTheEndIsStillRead) {
  ASSERT_TRUE(send_control(ours(), {.kind = ControlKind::kReady, .text = "last words"}).ok());
  pair_.ours.reset();
  EXPECT_EQ((**receive_control(theirs())).text, "last words");
  EXPECT_EQ(receive_control(theirs()).status().code(), StatusCode::kUnavailable);
}

TEST_F(ControlTest, AFullSocketIsSaidAndNeverWaitedFor) {
  Status sent;
  const ControlMessage message{.kind = ControlKind::kReady, .text = std::string(10'000, 'x')};
  for (int i = 0; i < 10'000 && sent.ok(); ++i) sent = send_control(ours(), message);
  EXPECT_EQ(sent.code(), StatusCode::kOverloaded);
}

TEST_F(ControlTest, TooMuchTextOrTooManyDescriptorsAreRefusedBeforeSending) {
  EXPECT_EQ(send_control(ours(), {.kind = ControlKind::kReady, .text = std::string(kMaxControlText + 1, 'x')}).code(),
            StatusCode::kInvalidArgument);
  ControlMessage many{.kind = ControlKind::kReady};
  for (std::size_t i = 0; i <= kMaxControlFds; ++i) many.fds.push_back(duplicate_fd(0).value());
  EXPECT_EQ(send_control(ours(), many).code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(send_control(ours(), {.kind = ControlKind::kReady, .text = std::string(kMaxControlText, 'x')}).ok());
  EXPECT_EQ((**receive_control(theirs())).text.size(), kMaxControlText);
}

TEST_F(ControlTest, GarbageIsRefusedAndTheSocketGoesOn) {
  std::mt19937 random(3);
  for (int round = 0; round < 500; ++round) {
    std::vector<unsigned char> bytes(1 + random() % 200);
    for (auto& byte : bytes) byte = static_cast<unsigned char>(random());
    ASSERT_GT(::send(ours(), bytes.data(), bytes.size(), MSG_DONTWAIT), 0);
    EXPECT_EQ(receive_control(theirs()).status().code(), StatusCode::kInvalidArgument);
  }
  ASSERT_TRUE(send_control(ours(), {.kind = ControlKind::kCancelRun}).ok());
  EXPECT_EQ((**receive_control(theirs())).kind, ControlKind::kCancelRun);
}

// Descriptors that come with a message that is refused must not stay open.
TEST_F(ControlTest, DescriptorsOfRefusedMessagesAreClosed) {
  const std::size_t before = open_descriptors();
  for (const int sent_count : {1, 4, 9}) {
    char garbage[] = "garbage";
    iovec part{garbage, sizeof garbage};
    alignas(cmsghdr) char control[CMSG_SPACE(9 * sizeof(int))] = {};
    msghdr packet{};
    packet.msg_iov = &part;
    packet.msg_iovlen = 1;
    packet.msg_control = control;
    packet.msg_controllen = CMSG_SPACE(static_cast<std::size_t>(sent_count) * sizeof(int));
    cmsghdr* header = CMSG_FIRSTHDR(&packet);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(static_cast<std::size_t>(sent_count) * sizeof(int));
    std::vector<int> fds(static_cast<std::size_t>(sent_count), 0);
    std::memcpy(CMSG_DATA(header), fds.data(), fds.size() * sizeof(int));
    ASSERT_GT(::sendmsg(ours(), &packet, 0), 0);
    EXPECT_EQ(receive_control(theirs()).status().code(), StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(open_descriptors(), before);
}

TEST_F(ControlTest, MessagesOfAPeerThatClosedWithoutReadingAreReceived) {
  ASSERT_TRUE(send_control(ours(), {.kind = ControlKind::kAttach}).ok());
  ASSERT_TRUE(send_control(theirs(), {.kind = ControlKind::kRefused, .text = "no"}).ok());
  pair_.theirs.reset();
  const auto received = receive_control(ours());
  ASSERT_TRUE(received.ok() && received->has_value()) << received.status().to_string();
  EXPECT_EQ((*received)->text, "no");
  EXPECT_EQ(receive_control(ours()).status().code(), StatusCode::kUnavailable);
}

TEST_F(ControlTest, AMessageWhoseDescriptorsWereLostIsReturnedOnRequest) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "UndefinedBehaviorSanitizer looks at objects through a pipe, for which there are no descriptors";
#endif
  ControlMessage message{.kind = ControlKind::kFork, .id = 7, .text = "/dir"};
  message.fds.push_back(create_memfd("test", 4096).value());
  ASSERT_TRUE(send_control(ours(), message).ok());
  ASSERT_TRUE(send_control(ours(), message).ok());
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{0, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  bool lost = false;
  const auto told = receive_control(theirs(), false, &lost), refused = receive_control(theirs());
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_TRUE(told.ok() && told->has_value());
  EXPECT_TRUE(lost);
  EXPECT_EQ((*told)->id, 7u);
  EXPECT_TRUE((*told)->fds.empty());
  EXPECT_EQ(refused.status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace shoal::wire
