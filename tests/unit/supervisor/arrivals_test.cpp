// Connections that wait until they may attach.
#include "supervisor/plane/arrivals.hpp"

#include <fcntl.h>
#include <grp.h>
#include <linux/sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <algorithm>
#include <vector>

#include "tests/support/lingering.hpp"
#include "tests/unit/supervisor/clients_fixture.hpp"

namespace shoal::supervisor {
namespace {

constexpr uid_t kAlice = 64321;

/// So few descriptors that a test can give the Closer more than it may hold.
class FewDescriptors {
 protected:
  FewDescriptors() {
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
    const rlimit few{std::min<rlim_t>(4096, before_.rlim_max), before_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  }
  ~FewDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

class ArrivalsTest : FewDescriptors, public ClientsTest {
 protected:
  /// As if the directory were shared with them.
  void open_to_others() const {
    ASSERT_EQ(::chmod(scratch_.path().c_str(), 0711), 0);
    ASSERT_EQ(::chmod(directory_.attach_path().c_str(), 0666), 0);
  }
  UniqueFd connect_as(uid_t user) const {
    EXPECT_EQ(::seteuid(user), 0);
    UniqueFd connection = connect();
    EXPECT_EQ(::seteuid(0), 0);
    return connection;
  }
  template <typename Condition>
  static bool wait_until(Condition condition) {
    for (int i = 0; i < 2'000 && !condition(); ++i) ::poll(nullptr, 0, 5);
    return condition();
  }
  /// Lets some of those in who wait.
  void serve_in_ms(std::uint64_t ms) {
    timers_.postpone(ms * 1'000'000);  // the limits of those who have been let in
    timers_.run_due(monotonic_now_ns() + ms * 1'000'000);
    serve();
  }
};

TEST_F(ArrivalsTest, WhoWaitsIsNotRefusedForDescriptorsThatOthersHaveSent) {
  clients_.limit_connections(0, 1);  // after a pause two
  const UniqueFd first = connect(), second = connect(), waits = connect();
  serve();
  ASSERT_EQ(clients_.count(), 2u);
  std::vector<test::Lingering> stuck(Closer::kMostThreadsPerSender);
  std::vector<UniqueFd> sent;
  for (test::Lingering& one : stuck) sent.push_back(std::move(one.holder));
  while (sent.size() <= loop_.closer().most()) sent.emplace_back(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  loop_.close_sent(sent, kAlice);
  ASSERT_TRUE(loop_.closer().is_full());
  serve_in_ms(1500);
  EXPECT_EQ(clients_.count(), 2u);
  EXPECT_FALSE(pollfd_is_readable(waits.get())) << receive(waits).text;
  for (test::Lingering& one : stuck) one.other_end.reset();
  EXPECT_TRUE(wait_until([&] { return !loop_.closer().is_full(); }));
  serve_in_ms(1700);
  EXPECT_EQ(clients_.count(), 3u);
}

// The kernel tells its user, although there are more groups than are asked for.
TEST_F(ArrivalsTest, WhatAUserInTooManyGroupsHasSentIsNotChargedToOurChildren) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can act as another user";
  open_to_others();
  std::vector<gid_t> own(static_cast<std::size_t>(::getgroups(0, nullptr)));
  ASSERT_GE(::getgroups(static_cast<int>(own.size()), own.data()), 0);
  const std::vector<gid_t> many(2000, 7);
  EXPECT_EQ(::setgroups(many.size(), many.data()), 0);
  std::vector<UniqueFd> connections;
  while (connections.size() < 7) connections.push_back(connect_as(kAlice));
  EXPECT_EQ(::setgroups(own.size(), own.data()), 0);  // it wakes all threads, so nothing may linger before
  const auto send = [](const UniqueFd& connection, std::vector<UniqueFd> fds) {
    wire::ControlMessage message{.kind = wire::ControlKind::kAttach};
    message.fds = std::move(fds);
    EXPECT_TRUE(wire::send_control(connection.get(), message).ok());
  };
  std::vector<test::Lingering> stuck(Closer::kMostThreadsPerSender);
  for (test::Lingering& one : stuck) {
    std::vector<UniqueFd> fds;
    fds.push_back(std::move(one.holder));
    send(connections[0], std::move(fds));
  }
  for (const UniqueFd& connection : connections) {
    for (int packets = 0; packets < 15; ++packets) {
      std::vector<UniqueFd> fds;
      while (fds.size() < wire::kMaxControlFds) fds.emplace_back(::open("/dev/null", O_RDONLY | O_CLOEXEC));
      send(connection, std::move(fds));
    }
  }
  serve();
  expect_refused(connections[0], StatusCode::kPermissionDenied, "2000 groups");
  EXPECT_TRUE(wait_until([&] { return loop_.closer().is_late(kAlice); }));
  EXPECT_FALSE(loop_.closer().is_late(Closer::kChild));
  for (test::Lingering& one : stuck) one.other_end.reset();
}

TEST_F(ArrivalsTest, AUserOfWhomNoneWaitsMayWaitBesideManyUsers) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can act as other users";
  open_to_others();
  AccessRules rules;
  for (uid_t user = kAlice; user < kAlice + 7; ++user) rules.roles[static_cast<std::size_t>(Role::kUser)].users.push_back(user);
  clients_.set_access(rules);
  clients_.limit_connections(18, 1);
  const UniqueFd first = connect(), second = connect();
  serve();
  ASSERT_EQ(clients_.count(), 2u) << "16 places are left";
  std::vector<UniqueFd> waiting;
  const auto waits = [&](uid_t user) {
    waiting.push_back(connect_as(user));
    serve();
    return !pollfd_is_readable(waiting.back().get());
  };
  const auto count_of = [&](uid_t user) {
    int count = 0;
    while (waits(user)) ++count;
    return count;
  };
  EXPECT_EQ(count_of(kAlice), 8) << "half of the places";
  expect_refused(waiting.back(), StatusCode::kOverloaded, "8 connections of user 64321 wait");
  EXPECT_EQ(count_of(kAlice + 1), 4) << "half of what is left";
  for (uid_t user = kAlice + 2; user < kAlice + 6; ++user) EXPECT_EQ(count_of(user), 1) << "the last quarter";
  EXPECT_EQ(count_of(kAlice + 6), 0) << "all places";
  expect_refused(waiting.back(), StatusCode::kOverloaded, "0 connections of user 64327 wait until they may attach, beside 16");
}

/// A process with that number. -1 if this one may not choose it.
pid_t start_child_with(pid_t pid) {
  clone_args args{};
  args.exit_signal = SIGCHLD;
  args.set_tid = reinterpret_cast<std::uintptr_t>(&pid);
  args.set_tid_size = 1;
  const long child = ::syscall(SYS_clone3, &args, sizeof args);
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::pause();
    ::_exit(0);
  }
  return static_cast<pid_t>(child);
}

TEST_F(ArrivalsTest, AConnectionWhoseProcessHasEndedMeanwhileIsNotTakenForOneOfTheNextProcessOfThatNumber) {
  clients_.limit_connections(0, 1);
  const UniqueFd first = connect(), second = connect();
  serve();
  UniqueFd connection;
  pid_t next = -1;
  {
    OtherProcess process(directory_.attach_path());
    serve();
    connection = std::move(process.connection);
    next = process.pid();
  }
  if (start_child_with(next) != next) GTEST_SKIP() << "this process may not choose the number of a process";
  serve_in_ms(1500);
  EXPECT_EQ(clients_.count(), 2u);
  expect_refused(connection, StatusCode::kUnavailable, "is gone");
  ::kill(next, SIGKILL);
  ::waitpid(next, nullptr, 0);
}

}  // namespace
}  // namespace shoal::supervisor
