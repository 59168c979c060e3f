#include "supervisor/process/closer.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <vector>

#include "shm/segment/segment.hpp"
#include "shm/wire/control.hpp"
#include "supervisor/process/spawn.hpp"
#include "tests/support/child_process.hpp"
#include "tests/support/lingering.hpp"

namespace shoal::supervisor {
namespace {

using test::Lingering;

constexpr uid_t kUser = 1001, kOther = 1002;

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
  closer.close_sent(std::move(pipe.writing), kUser);
  EXPECT_TRUE(pipe.ends());
}

TEST(Closer, ClosesManyMoreThanItHasThreads) {
  Closer closer;
  std::vector<Pipe> pipes(200);
  for (Pipe& pipe : pipes) closer.close_sent(std::move(pipe.writing), kUser);
  for (const Pipe& pipe : pipes) EXPECT_TRUE(pipe.ends());
}

TEST(Closer, ClosesAlsoWhatWaitsWhenItEnds) {
  std::vector<Pipe> pipes(20);
  {
    Closer closer;
    for (Pipe& pipe : pipes) closer.close_sent(std::move(pipe.writing), kUser);
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
  closer.hang_up(std::move(pair.ours), kUser);
  EXPECT_EQ(wire::receive_control(pair.theirs.get()).status().code(), StatusCode::kUnavailable);
  EXPECT_TRUE(pipe.ends());
}

TEST(Closer, ClosesOurOwnWhileADescriptorOfAStrangerIsStuck) {
  Closer closer;
  std::vector<Lingering> lingering(Closer::kMostThreadsPerSender);
  Pipe stranger, own;
  for (Lingering& one : lingering) closer.close_sent(std::move(one.holder), kUser);
  closer.close_sent(std::move(stranger.writing), kUser);
  closer.close_own(std::move(own.writing));
  EXPECT_TRUE(own.ends());
  pollfd waits{stranger.reading.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&waits, 1, 0), 0) << "nothing is stuck";
  for (Lingering& one : lingering) one.other_end.reset();
  EXPECT_TRUE(stranger.ends());
}

TEST(Closer, ClosesWhatOneUserSentWhileManyDescriptorsOfAnotherAreStuck) {
  Closer closer;
  std::vector<Lingering> lingering(2 * Closer::kMostThreads);
  for (Lingering& one : lingering) closer.close_sent(std::move(one.holder), kUser);
  std::vector<Pipe> pipes(100);
  for (Pipe& pipe : pipes) closer.close_sent(std::move(pipe.writing), kOther);
  for (const Pipe& pipe : pipes) EXPECT_TRUE(pipe.ends());
}

// While nothing new comes.
TEST(Closer, ClosesWhatABurstLeftBehindAStuckDescriptor) {
  Closer closer;
  Lingering lingering;
  std::vector<Pipe> pipes(2 * Closer::kMostQueuedPerThread);
  closer.close_sent(std::move(lingering.holder), kUser);
  for (Pipe& pipe : pipes) closer.close_sent(std::move(pipe.writing), kUser);
  for (const Pipe& pipe : pipes) EXPECT_TRUE(pipe.ends());
}

TEST(Closer, IsReapingChildrenUntilTheyAreReaped) {
  Closer closer;
  std::vector<pid_t> children;
  for (int i = 0; i < 100; ++i) children.push_back(test::start_child([] { return 0; }));
  siginfo_t ended{};
  for (const pid_t pid : children) ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(pid), &ended, WEXITED | WNOWAIT), 0);
  Lingering keeps_the_thread_busy;
  closer.reap_child(1, std::move(keeps_the_thread_busy.holder));  // the first in any case: the smallest goes first
  for (const pid_t pid : children) {
    EXPECT_FALSE(closer.is_reaping(pid));
    closer.reap_child(pid, open_pidfd(pid));
    EXPECT_TRUE(closer.is_reaping(pid));
  }
  keeps_the_thread_busy.other_end.reset();
  for (const pid_t pid : children) {
    for (int i = 0; i < 2'000 && closer.is_reaping(pid); ++i) ::poll(nullptr, 0, 5);
    EXPECT_FALSE(closer.is_reaping(pid));
    EXPECT_EQ(::kill(pid, 0), -1) << "it is not reaped";
  }
}

bool is_alive(const UniqueFd& pidfd) {
  pollfd death{pidfd.get(), POLLIN, 0};
  return ::poll(&death, 1, 0) == 0;
}

/// A process that leads a group, and others in it.
struct Group {
  std::vector<pid_t> pids;
  std::vector<UniqueFd> pidfds;
  explicit Group(std::size_t size) {
    for (std::size_t i = 0; i < size; ++i) {
      pids.push_back(test::start_child([] { return ::pause(); }));
      pidfds.push_back(open_pidfd(pids.back()));
      EXPECT_EQ(::setpgid(pids.back(), pids.front()), 0);
    }
  }
  ~Group() {
    for (const UniqueFd& pidfd : pidfds) send_signal(pidfd, SIGKILL);
    for (const pid_t pid : pids) ::waitpid(pid, nullptr, 0);
  }
};

TEST(Closer, EndsAGroupButItsLeaderAndWhoIsSpared) {
  Closer closer;
  const Group group(4), other(2);
  std::size_t count = 0;
  closer.end_group(group.pids[0], {group.pids[1]}, [&](std::size_t killed) {
    EXPECT_TRUE(closer.ends_groups()) << "somebody may be reaped before";
    count = killed;
  });
  closer.finish_groups();
  EXPECT_FALSE(closer.ends_groups());
  EXPECT_EQ(count, 2u);
  for (const std::size_t killed : {2, 3}) {
    pollfd death{group.pidfds[killed].get(), POLLIN, 0};
    EXPECT_EQ(::poll(&death, 1, 10'000), 1);
  }
  for (const UniqueFd* left : {&group.pidfds[0], &group.pidfds[1], &other.pidfds[0], &other.pidfds[1]})
    EXPECT_TRUE(is_alive(*left));
}

TEST(Closer, EndsTheGroupOfADeadLeaderUntilTheLeaderIsReaped) {
  for (const bool is_reaped : {false, true}) {
    Closer closer;
    const Group group(2);
    ::kill(group.pids[0], SIGKILL);
    pollfd death{group.pidfds[0].get(), POLLIN, 0};
    ASSERT_EQ(::poll(&death, 1, 10'000), 1);
    if (is_reaped) reap(group.pidfds[0]);
    std::size_t count = 99;
    closer.end_group(group.pids[0], {}, [&](std::size_t killed) { count = killed; });
    closer.finish_groups();
    EXPECT_EQ(count, is_reaped ? 0u : 1u);
    EXPECT_TRUE(!is_reaped || is_alive(group.pidfds[1])) << "the group's number may be another's";
  }
}

// All threads of that user are stuck.
TEST(Closer, IsLateUntilWhatWaitsIsClosed) {
  Closer closer;
  std::vector<Lingering> lingering(Closer::kMostThreadsPerSender);
  for (Lingering& one : lingering) closer.close_sent(std::move(one.holder), kUser);
  EXPECT_FALSE(closer.is_late(kUser));
  std::vector<Pipe> pipes(Closer::kMostSent);
  for (Pipe& pipe : pipes) closer.close_sent(std::move(pipe.writing), kUser);
  EXPECT_TRUE(closer.is_late(kUser));
  EXPECT_FALSE(closer.is_late(kOther)) << "another user";
  EXPECT_FALSE(closer.is_full());

  wire::ControlPair full = wire::make_control_pair().value(), empty = wire::make_control_pair().value();
  Pipe in_socket;
  wire::ControlMessage message{.kind = wire::ControlKind::kAttach};
  message.fds.push_back(std::move(in_socket.writing));
  ASSERT_TRUE(wire::send_control(full.theirs.get(), message).ok());
  message.fds.clear();
  closer.hang_up(std::move(full.ours), kUser);
  closer.hang_up(std::move(empty.ours), kUser);
  pollfd waits{in_socket.reading.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&waits, 1, 100), 0) << "it stays where it is";

  for (Lingering& one : lingering) one.other_end.reset();
  for (const Pipe& pipe : pipes) EXPECT_TRUE(pipe.ends());
  EXPECT_TRUE(in_socket.ends());
  for (int i = 0; i < 1'000 && closer.is_late(kUser); ++i) ::poll(nullptr, 0, 5);
  EXPECT_FALSE(closer.is_late(kUser));
}

// Whoever connects again and again, and says something each time, must not fill our table of descriptors.
TEST(Closer, ClosesSocketsWithoutDescriptorsAtOnceThoughTheUserIsLate) {
  constexpr std::size_t kThreads = Closer::kMostThreadsPerSender, kSockets = 50;
  Closer closer(kThreads + Closer::kMostSent + kSockets / 2);
  std::vector<Lingering> lingering(kThreads);
  for (Lingering& one : lingering) closer.close_sent(std::move(one.holder), kUser);
  std::vector<Pipe> pipes(Closer::kMostSent);
  for (Pipe& pipe : pipes) closer.close_sent(std::move(pipe.writing), kUser);
  ASSERT_TRUE(closer.is_late(kUser));
  for (std::size_t i = 0; i < kSockets; ++i) {
    wire::ControlPair pair = wire::make_control_pair().value();
    for (int message = 0; message < 3; ++message)
      ASSERT_TRUE(wire::send_control(pair.theirs.get(), {.kind = wire::ControlKind::kAttach}).ok());
    const int fd = pair.ours.get();
    closer.hang_up(std::move(pair.ours), kUser);
    for (int tries = 0; tries < 1'000 && ::fcntl(fd, F_GETFD) != -1; ++tries) ::poll(nullptr, 0, 5);
    ASSERT_EQ(::fcntl(fd, F_GETFD), -1) << "socket " << i << " waits";
  }
  EXPECT_FALSE(closer.is_full());
}

TEST(Closer, ClosesForAUserWhileManyOthersKeepAllThreadsBusy) {
  Closer closer;
  std::vector<Lingering> lingering(2 * Closer::kMostThreadsForSent);
  for (std::size_t i = 0; i < lingering.size(); ++i)
    closer.close_sent(std::move(lingering[i].holder), static_cast<uid_t>(5000 + i % Closer::kMostThreadsForSent));
  Pipe pipe;
  closer.close_sent(std::move(pipe.writing), kOther);
  EXPECT_TRUE(pipe.ends());
}

// Its peer has ended and left a message of ours unread, which the kernel reports before it gives what waits.
TEST(Closer, LeavesASocketOfADeadPeerAloneWhileTheUserIsLate) {
  Closer closer;
  std::vector<Lingering> lingering(Closer::kMostThreadsPerSender);
  for (Lingering& one : lingering) closer.close_sent(std::move(one.holder), kUser);
  std::vector<Pipe> pipes(Closer::kMostSent);
  for (Pipe& pipe : pipes) closer.close_sent(std::move(pipe.writing), kUser);
  ASSERT_TRUE(closer.is_late(kUser));
  wire::ControlPair pair = wire::make_control_pair().value();
  Pipe in_socket;
  wire::ControlMessage message{.kind = wire::ControlKind::kAttach};
  message.fds.push_back(std::move(in_socket.writing));
  ASSERT_TRUE(wire::send_control(pair.theirs.get(), message).ok());
  message.fds.clear();
  ASSERT_TRUE(wire::send_control(pair.ours.get(), {.kind = wire::ControlKind::kPath}).ok());
  pair.theirs.reset();
  closer.hang_up(std::move(pair.ours), kUser);
  pollfd waits{in_socket.reading.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&waits, 1, 100), 0) << "a thread of our own closes it";
  for (Lingering& one : lingering) one.other_end.reset();
  EXPECT_TRUE(in_socket.ends());
}

// All threads but one are stuck, and then that one is, in the only descriptor of one of two sockets.
TEST(Closer, TakesNothingOutOfASocketWhileWhatWasInAnotherIsNotClosed) {
  constexpr std::size_t kThreads = Closer::kMostThreadsPerSender;
  Closer closer(kThreads + Closer::kMostSent + 1);
  std::vector<Lingering> lingering(kThreads + 2);
  for (std::size_t i = 0; i < kThreads; ++i) closer.close_sent(std::move(lingering[i].holder), kUser);
  std::vector<Pipe> pipes(Closer::kMostSent);
  for (Pipe& pipe : pipes) closer.close_sent(std::move(pipe.writing), kUser);
  ASSERT_TRUE(closer.is_late(kUser));
  UniqueFd looks[2];
  for (std::size_t i = 0; i < 2; ++i) {
    wire::ControlPair pair = wire::make_control_pair().value();
    wire::ControlMessage message{.kind = wire::ControlKind::kAttach};
    message.fds.push_back(std::move(lingering[kThreads + i].holder));
    ASSERT_TRUE(wire::send_control(pair.theirs.get(), message).ok());
    looks[i] = duplicate_fd(pair.ours.get()).value();
    closer.hang_up(std::move(pair.ours), kUser);
  }
  const auto in_sockets = [&] { return wire::has_messages(looks[0].get()) + wire::has_messages(looks[1].get()); };
  const auto wait_until = [](const auto& condition) {
    for (int i = 0; i < 2'000 && !condition(); ++i) ::poll(nullptr, 0, 5);
    return condition();
  };
  ASSERT_TRUE(wait_until([&] { return closer.is_full(); })) << "both sockets wait, too";
  lingering[0].other_end.reset();
  ASSERT_TRUE(wait_until([&] { return in_sockets() < 2; }));
  ::poll(nullptr, 0, 100);
  EXPECT_EQ(in_sockets(), 1);
  for (Lingering& one : lingering) one.other_end.reset();
  EXPECT_TRUE(wait_until([&] { return in_sockets() == 0; }));
}

TEST(Closer, IsFullWhenAllUsersTogetherAreLate) {
  constexpr std::size_t kMost = 20;
  Closer closer(kMost);
  std::vector<Lingering> lingering(kMost + 1);
  const auto send = [&](std::size_t i) { closer.close_sent(std::move(lingering[i].holder), i % 2 == 0 ? kUser : kOther); };
  for (std::size_t i = 0; i < kMost; ++i) send(i);
  EXPECT_FALSE(closer.is_full());
  send(kMost);
  EXPECT_TRUE(closer.is_full());
}

TEST(Closer, TakesManyDescriptorsOutOfOneSocket) {
  Closer closer;
  wire::ControlPair pair = wire::make_control_pair().value();
  std::vector<Pipe> pipes(400);
  for (std::size_t i = 0; i < pipes.size(); i += 10) {
    wire::ControlMessage message{.kind = wire::ControlKind::kAttach};
    for (std::size_t k = 0; k < 2; ++k) message.fds.push_back(std::move(pipes[i + k].writing));
    ASSERT_TRUE(wire::send_control(pair.theirs.get(), message).ok());
    for (std::size_t k = 2; k < 10; ++k) pipes[i + k].writing.reset();
  }
  closer.hang_up(std::move(pair.ours), kUser);
  for (const Pipe& pipe : pipes) EXPECT_TRUE(pipe.ends());
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
