// What a zygote may not do.
#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <functional>
#include <string>
#include <utility>

#include "tests/support/child_process.hpp"
#include "tests/unit/supervisor/process/model_processes_fixture.hpp"

namespace shoal::supervisor {
namespace {

/// A process that is nobody's worker, and must live through whatever a zygote says of it.
class Stranger {
 public:
  Stranger() : pid_(test::start_child([] { return ::pause(); })), pidfd_(pidfd_of(pid_)) {}
  ~Stranger() {
    EXPECT_FALSE(is_dead(pidfd_)) << "a stranger was killed";
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
  UniqueFd pidfd_;
};

TEST_F(ModelProcessesTest, ADescriptorThatIsNoPidfdOfAWorkerEndsTheZygote) {
  const Stranger stranger;
  const auto none = [] { return UniqueFd(); };
  const auto thread_of = [](pid_t pid) { return pidfd_of(pid, O_EXCL); };  // PIDFD_THREAD, since Linux 6.9
  struct Forgery {
    std::string name;
    std::function<UniqueFd(const Puppet&)> descriptor;
    std::function<pid_t(const Puppet&)> claimed;
  };
  const auto self = [](const Puppet&) { return ::getpid(); };
  const auto its_pid = [](const Puppet& zygote) { return zygote.pid(); };
  const auto strange = [&](const Puppet&) { return stranger.pid(); };
  const Forgery forgeries[] = {
      {"a memfd", [](auto&) { return create_memfd("forged", 4096).value(); }, strange},
      {"a socket", [](auto&) { return std::move(wire::make_control_pair().value().ours); }, strange},
      {"an eventfd", [](auto&) { return UniqueFd(::eventfd(1, EFD_CLOEXEC)); }, strange},
      {"an epoll", [](auto&) { return UniqueFd(::epoll_create1(EPOLL_CLOEXEC)); }, strange},
      {"a file", [](auto&) { return UniqueFd(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC)); }, strange},
      {"a directory of /proc", [&](auto&) { return UniqueFd(::open(format("/proc/{}", stranger.pid()).c_str(), O_RDONLY)); },
       strange},
      {"an O_PATH descriptor", [](auto&) { return UniqueFd(::open("/dev/null", O_PATH | O_CLOEXEC)); }, strange},
      {"nothing", [&](auto&) { return none(); }, strange},
      {"the supervisor's pidfd", [](auto&) { return pidfd_of(::getpid()); }, self},
      {"a stranger's pidfd", [&](auto&) { return pidfd_of(stranger.pid()); }, strange},
      {"its own pidfd", [](const Puppet& zygote) { return pidfd_of(zygote.pid()); }, its_pid},
      {"a thread's pidfd", [&](auto&) { return thread_of(stranger.pid()); }, strange},
  };
  for (const Forgery& forgery : forgeries) {
    make();
    events_ = {};
    const Puppet zygote = start_loaded();
    const Fork fork = zygote.hear_fork();
    ControlMessage message{
        .kind = ControlKind::kForked, .id = fork.incarnation, .a = static_cast<std::uint64_t>(forgery.claimed(zygote))};
    if (UniqueFd descriptor = forgery.descriptor(zygote)) message.fds.push_back(std::move(descriptor));
    zygote.say(message);
    SCOPED_TRACE(forgery.name);
    expect_ended(zygote, format("FORKED for worker {}", fork.incarnation));
    EXPECT_TRUE(events_.died.empty());
  }
}

TEST_F(ModelProcessesTest, APidfdOfAnotherProcessThanTheMessageNamesEndsTheZygote) {
  const Stranger stranger;
  const Puppet zygote = start_loaded();
  Fork fork = zygote.hear_fork();
  zygote.fork(fork);
  zygote.say(with_fd({.kind = ControlKind::kForked, .id = fork.incarnation, .a = static_cast<std::uint64_t>(stranger.pid())},
                     duplicate_fd(fork.pidfd.get()).value()));
  expect_ended(zygote, "a pidfd of process");
}

TEST_F(ModelProcessesTest, OneProcessIsOneWorker) {
  options_.workers = 2;
  make();
  const Puppet zygote = start_loaded();
  Fork first = zygote.fork_worker(), second = zygote.hear_fork();
  second.pid = first.pid;
  second.pidfd = duplicate_fd(first.pidfd.get()).value();
  zygote.say_forked(second);
  EXPECT_TRUE(listen_until([&] { return zygote.is_dead() && processes_->zygote_pid() == -1; }));
  EXPECT_NE(processes_->reason().find("is another worker"), std::string::npos) << processes_->reason();
  EXPECT_TRUE(is_forked(first.incarnation)) << "that one goes on";
}

TEST_F(ModelProcessesTest, AWorkerThatDiesBeforeItsForkIsReportedIsADeath) {
  const Puppet zygote = start_loaded();
  Fork fork = zygote.hear_fork();
  zygote.fork(fork);
  ::kill(fork.pid, SIGKILL);
  const int status = zygote.reap(fork.pid);
  zygote.say_forked(fork);
  zygote.say({.kind = ControlKind::kExited,
              .id = fork.incarnation,
              .a = static_cast<std::uint64_t>(fork.pid),
              .b = static_cast<std::uint64_t>(status)});
  ASSERT_TRUE(listen_until([&] { return events_.reaped.contains(fork.incarnation); }));
  EXPECT_TRUE(events_.died.contains(fork.incarnation));
  EXPECT_EQ(events_.reaped[fork.incarnation], status);
  EXPECT_NE(processes_->zygote_pid(), -1);
  EXPECT_GT(next_ns().value_or(0), clock_.now_ns()) << "the next fork waits";
}

bool is_child_of(pid_t pid, pid_t parent) {
  std::ifstream status(format("/proc/{}/status", pid));
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("PPid:")) return std::stoi(line.substr(5)) == parent;
  }
  return false;
}

TEST_F(ModelProcessesTest, AWorkerWhoseZygoteDiedBeforeItsReportWasReadIsStillTaken) {
  const Puppet zygote = start_loaded();
  const Fork worker = zygote.fork_worker();
  zygote.kill();
  for (const std::uint64_t end_ns = monotonic_now_ns() + 10 * kSecondNs; !is_child_of(worker.pid, ::getpid());)
    ASSERT_LT(monotonic_now_ns(), end_ns) << "the orphan came to nobody";
  worker.say_ready();
  ASSERT_TRUE(pump_until([&] { return processes_->ready_workers() == 1; })) << processes_->reason();
  ::kill(worker.pid, SIGKILL);
  EXPECT_TRUE(pump_until([&] { return events_.died.contains(worker.incarnation); }));
}

// The kernel gives away the children of a dying process before its pidfd becomes readable.
TEST_F(ModelProcessesTest, AnOrphanIsTakenBeforeTheDeathOfItsZygoteIsSeen) {
  const Puppet zygote = start_loaded();
  Fork fork = zygote.hear_fork();
  const Stranger orphan;  // a child of this process
  ASSERT_EQ(::setpgid(orphan.pid(), zygote.pid()), 0);
  fork.pid = orphan.pid();
  fork.pidfd = pidfd_of(orphan.pid());
  zygote.say_forked(fork);
  EXPECT_TRUE(pump_until([&] { return is_forked(fork.incarnation); })) << processes_->reason();
}

TEST_F(ModelProcessesTest, AChildOfTheSupervisorIsNoOrphanOfADeadZygote) {
  const Stranger stranger;
  const Puppet zygote = start_loaded();
  Fork fork = zygote.hear_fork();
  fork.pid = stranger.pid();
  fork.pidfd = pidfd_of(stranger.pid());
  zygote.say_forked(fork);
  zygote.kill();
  EXPECT_TRUE(listen_until([&] { return processes_->zygote_pid() == -1; }));
  EXPECT_NE(processes_->reason().find("is no child of zygote"), std::string::npos) << processes_->reason();
  EXPECT_FALSE(is_forked(fork.incarnation));
}

TEST_F(ModelProcessesTest, WhatAZygoteSaysOutOfTurnEndsIt) {
  struct Breach {
    std::string why;
    std::function<ControlMessage(std::uint64_t)> message;  // of the number of the worker that it was told to fork
  };
  const Breach breaches[] = {
      {"LOADED twice", [](auto) { return ControlMessage{.kind = ControlKind::kLoaded, .text = "loaded"}; }},
      {"LOAD_FAILED after LOADED", [](auto) { return ControlMessage{.kind = ControlKind::kLoadFailed, .a = 1}; }},
      {"FORKED for worker", [](auto id) { return ControlMessage{.kind = ControlKind::kForked, .id = id + 1000}; }},
      {"FORK_FAILED for worker", [](auto id) { return ControlMessage{.kind = ControlKind::kForkFailed, .id = id + 1000}; }},
      {"EXITED for worker", [](auto id) { return ControlMessage{.kind = ControlKind::kExited, .id = id}; }},
      {"a message of kind 30", [](auto id) { return ControlMessage{.kind = ControlKind::kReady, .id = id}; }},
      {"a message of kind 999", [](auto) { return ControlMessage{.kind = static_cast<ControlKind>(999)}; }},
  };
  for (const Breach& breach : breaches) {
    make();
    events_ = {};
    const Puppet zygote = start_loaded();
    const Fork fork = zygote.hear_fork();
    zygote.say(breach.message(fork.incarnation));
    SCOPED_TRACE(breach.why);
    expect_ended(zygote, breach.why);
    EXPECT_EQ(events_.loaded.size(), 1u);
    EXPECT_TRUE(events_.reaped.empty());
  }
}

TEST_F(ModelProcessesTest, BytesThatAreNoMessageEndTheZygote) {
  for (const std::string& bytes : {std::string("x"), std::string(40, '\0'), std::string(64 * 1024, 'A')}) {
    make();
    const Puppet zygote = start_loaded();
    ASSERT_EQ(::send(zygote.control().get(), bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
    expect_ended(zygote, "control message");
  }
}

TEST_F(ModelProcessesTest, TooManyDescriptorsEndTheZygote) {
  const Puppet zygote = start_loaded();
  const int fds[] = {0, 0, 0, 0, 0, 0};
  alignas(cmsghdr) char room[CMSG_SPACE(sizeof fds)] = {};
  char byte = 'x';
  iovec part{&byte, 1};
  msghdr packet{};
  packet.msg_iov = &part;
  packet.msg_iovlen = 1;
  packet.msg_control = room;
  packet.msg_controllen = sizeof room;
  cmsghdr* rights = CMSG_FIRSTHDR(&packet);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof fds);
  std::memcpy(CMSG_DATA(rights), fds, sizeof fds);
  ASSERT_EQ(::sendmsg(zygote.control().get(), &packet, 0), 1);
  expect_ended(zygote, "control message");
}

// Numbers of workers are numbers of all models.
TEST_F(ModelProcessesTest, AZygoteReportsTheEndOfItsOwnWorkersOnlyAndOnce) {
  const Puppet zygote = start_loaded();
  const Fork worker = make_ready(zygote);
  kill_after_an_answer(worker);
  const ControlMessage exited{
      .kind = ControlKind::kExited, .id = worker.incarnation, .a = static_cast<std::uint64_t>(worker.pid), .b = 9};
  zygote.say(exited);
  ASSERT_TRUE(listen_until([&] { return events_.reaped.contains(worker.incarnation); }));
  EXPECT_EQ(events_.reaped[worker.incarnation], 9);
  zygote.say(exited);
  expect_ended(zygote, "EXITED for worker");
}

TEST_F(ModelProcessesTest, AZygoteThatBreaksTheRulesAgainAndAgainFailsItsModel) {
  Puppet zygote = start_loaded();
  for (int breaches = 1; breaches <= ModelProcesses::kFailedStartsForFailure; ++breaches) {
    zygote.say({.kind = static_cast<ControlKind>(999)});
    ASSERT_TRUE(listen_until([&] { return processes_->zygote_pid() == -1; }));
    if (breaches == ModelProcesses::kFailedStartsForFailure) break;
    ASSERT_TRUE(next_ns());
    EXPECT_GT(*next_ns() - clock_.now_ns(), (Backoff::kFirstNs << (breaches - 1)) / 4) << breaches;
    run_at(*next_ns());
    zygote = accept();
    zygote.hear();
    zygote.say({.kind = ControlKind::kLoaded, .text = "loaded"});
    ASSERT_TRUE(listen_until([&] { return !zygote.hears_nothing(); }));
    const Fork worker = zygote.fork_worker();  // a good deed between does not count
    ASSERT_TRUE(listen_until([&] { return is_forked(worker.incarnation); }));
    kill_after_an_answer(worker);
  }
  EXPECT_EQ(processes_->state(), ModelState::kFailed);
  EXPECT_NE(events_.failure.find("broke the protocol"), std::string::npos) << events_.failure;
}

TEST_F(ModelProcessesTest, AZygoteThatFloodsIsEndedAtItsFirstBreach) {
  const Puppet zygote = start();
  for (int i = 0; i < 100; ++i) {
    if (!wire::send_control(zygote.control().get(), {.kind = ControlKind::kForkFailed, .id = 1000}).ok()) break;
  }
  EXPECT_TRUE(listen_until([&] { return zygote.is_dead() && processes_->zygote_pid() == -1; }));
}

}  // namespace
}  // namespace shoal::supervisor
