#include "supervisor/process/closer.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <vector>

#include "shm/segment/segment.hpp"
#include "shm/wire/control.hpp"

namespace shoal::supervisor {
namespace {

/// A pipe shows when the last descriptor of its writing end is closed.
struct Pipe {
  UniqueFd reading, writing;
  Pipe() {
    int fds[2] = {-1, -1};
    EXPECT_EQ(::pipe2(fds, O_CLOEXEC), 0);
    reading.reset(fds[0]);
    writing.reset(fds[1]);
  }
  bool ends() const {
    pollfd end{reading.get(), POLLIN, 0};
    return ::poll(&end, 1, 10'000) == 1 && (end.revents & POLLHUP) != 0;
  }
};

TEST(Closer, ClosesWhatItIsGiven) {
  Closer closer;
  Pipe pipe;
  closer.close(std::move(pipe.writing));
  EXPECT_TRUE(pipe.ends());
}

TEST(Closer, ClosesManyMoreThanItHasThreads) {
  Closer closer;
  std::vector<Pipe> pipes(200);
  for (Pipe& pipe : pipes) closer.close(std::move(pipe.writing));
  for (const Pipe& pipe : pipes) EXPECT_TRUE(pipe.ends());
}

TEST(Closer, ClosesAlsoWhatWaitsWhenItEnds) {
  std::vector<Pipe> pipes(20);
  {
    Closer closer;
    for (Pipe& pipe : pipes) closer.close(std::move(pipe.writing));
  }
  for (const Pipe& pipe : pipes) EXPECT_TRUE(pipe.ends());
}

TEST(Closer, HangsUpAtOnceAndClosesWhatNobodyRead) {
  Closer closer;
  wire::ControlPair pair = wire::make_control_pair().value();
  Pipe pipe;
  {
    wire::ControlMessage message{.kind = wire::ControlKind::kAttach};
    message.fds.push_back(std::move(pipe.writing));
    ASSERT_EQ(::send(pair.theirs.get(), "", 0, MSG_NOSIGNAL), 0);  // an empty packet is not the end
    ASSERT_TRUE(wire::send_control(pair.theirs.get(), message).ok());
  }
  closer.hang_up(std::move(pair.ours));
  EXPECT_EQ(wire::receive_control(pair.theirs.get()).status().code(), StatusCode::kUnavailable);
  EXPECT_TRUE(pipe.ends());
}

// What a peer wrote before is drained, so no descriptor that it sent decides how long the close takes.
TEST(Closer, DrainTakesTheDescriptorsOfAllPackets) {
  wire::ControlPair pair = wire::make_control_pair().value();
  for (const std::size_t count : {1u, 0u, 3u}) {
    wire::ControlMessage message{.kind = wire::ControlKind::kAttach};
    for (std::size_t i = 0; i < count; ++i) message.fds.push_back(duplicate_fd(0).value());
    ASSERT_TRUE(wire::send_control(pair.theirs.get(), message).ok());
    ASSERT_EQ(::send(pair.theirs.get(), "", 0, MSG_NOSIGNAL), 0);
  }
  ASSERT_EQ(::shutdown(pair.ours.get(), SHUT_RDWR), 0);
  EXPECT_EQ(wire::drain_fds(pair.ours.get()).size(), 4u);
}

}  // namespace
}  // namespace shoal::supervisor
