// How long zygotes and workers may take, and what ends with a zygote that takes longer. Time in which the daemon stood still does
// not count.
#include <dirent.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cstddef>
#include <memory>
#include <thread>
#include <vector>

#include "tests/unit/supervisor/process/model_processes_fixture.hpp"

namespace shoal::supervisor {
namespace {

TEST_F(ModelProcessesTest, AZygoteThatLeavesACommandUnansweredIsKilled) {
  const Puppet zygote = start_loaded();
  const Fork fork = zygote.hear_fork();
  run_at(clock_.now_ns() + ModelProcesses::kCommandLimitNs + kSecondNs);
  EXPECT_TRUE(listen_until([&] { return zygote.is_dead() && processes_->zygote_pid() == -1; }));
  EXPECT_TRUE(fork.is_told_to_go()) << "who may have been forked";
  EXPECT_EQ(births_.unborn.size(), 1u);
}

TEST_F(ModelProcessesTest, AFirstLoadThatTakesTooLongFailsTheModel) {
  options_.load_limit_ns = 5 * kSecondNs;
  make();
  const Puppet zygote = start();
  run_at(clock_.now_ns() + 6 * kSecondNs);
  EXPECT_EQ(processes_->state(), ModelState::kFailed);
  EXPECT_NE(events_.failure.find("load_timeout_s"), std::string::npos) << events_.failure;
  EXPECT_TRUE(listen_until([&] { return zygote.is_dead() && processes_->all_gone(); }));
}

// The puppet reads nothing after its orders have ended, so it does not see the end of its socket.
TEST_F(ModelProcessesTest, AZygoteThatDoesNotEndWhenItIsToldToIsKilled) {
  for (const bool fails : {true, false}) {
    make();
    const Puppet zygote = start_loaded();
    const Fork worker = make_ready(zygote);  // a FORK without an answer would have a limit of its own
    fails ? processes_->fail("a worker died of its probe") : processes_->stop();
    run_at(clock_.now_ns() + ModelProcesses::kEndLimitNs - kSecondNs / 2);
    EXPECT_FALSE(zygote.is_dead()) << "it has its time";
    run_at(clock_.now_ns() + kSecondNs);
    EXPECT_TRUE(listen_until([&] { return zygote.is_dead(); })) << fails;
    processes_->kill_all();  // a worker that was told to end has no limit here
    EXPECT_TRUE(listen_until([&] { return processes_->all_gone(); })) << fails;
    EXPECT_EQ(next_ns(), std::nullopt);
  }
}

TEST_F(ModelProcessesTest, AWorkerThatIsNotReadyInTimeIsKilled) {
  const Puppet zygote = start_loaded();
  const Fork worker = zygote.fork_worker();
  ASSERT_TRUE(pump_until([&] { return is_forked(worker.incarnation); }));
  run_at(clock_.now_ns() + ModelProcesses::kWorkerStartLimitNs + kSecondNs);
  ASSERT_TRUE(listen_until([&] { return events_.died.contains(worker.incarnation); }));
  EXPECT_EQ(events_.died[worker.incarnation], "not ready in time");
}

// ---- children that a zygote did not report ----

TEST_F(ModelProcessesTest, HiddenChildrenEndWithTheirZygoteAndItsWorkersGoOn) {
  const Puppet zygote = start_loaded();
  const Fork worker = make_ready(zygote);
  Fork hidden;
  zygote.fork(hidden);
  pump();
  EXPECT_FALSE(is_dead(hidden.pidfd)) << "its zygote lives";
  zygote.kill();
  EXPECT_TRUE(pump_until([&] { return is_dead(hidden.pidfd); }));
  const Puppet next = accept();
  EXPECT_EQ(next.hear().text, "what to load");
  EXPECT_FALSE(is_dead(worker.pidfd));
  EXPECT_TRUE(events_.died.empty());
}

/// From now on the calling thread cannot list a directory. Returns whether the kernel does that.
bool forbid_listing() {
  sock_filter filter[] = {
      {BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(seccomp_data, nr)},
      {BPF_JMP | BPF_JEQ | BPF_K, 0, 1, SYS_getdents64},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | EPERM},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW},
  };
  const sock_fprog program{std::size(filter), filter};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

// Other users decide how many processes there are.
TEST_F(ModelProcessesTest, TheLoopListsNoProcessesWhenAZygoteDies) {
  const Puppet zygote = start_loaded();
  const Fork worker = make_ready(zygote);
  Fork hidden;
  zygote.fork(hidden);
  zygote.kill();
  bool is_forbidden = false;
  std::thread([&] {
    is_forbidden = forbid_listing();
    if (!is_forbidden) return;
    const std::unique_ptr<DIR, int (*)(DIR*)> processes(::opendir("/proc"), ::closedir);
    EXPECT_TRUE(processes && !::readdir(processes.get()));
    EXPECT_TRUE(listen_until([&] { return processes_->zygote_pid() == -1 && is_dead(hidden.pidfd); }));
  }).join();
  if (!is_forbidden) GTEST_SKIP() << "this kernel has no filters of system calls";
  EXPECT_FALSE(is_dead(worker.pidfd));
}

TEST_F(ModelProcessesTest, HiddenChildrenEndAlthoughTheZygoteOfAnotherModelEndsInTheSameTurn) {
  const Puppet zygote = start_loaded();
  ModelProcesses other(options_, clock_, loop_, timers_, events_, log_, births_, stuck_);
  other.start();
  const Puppet others = accept();
  Fork hidden, others_hidden;
  zygote.fork(hidden);
  others.fork(others_hidden);
  zygote.kill();
  others.kill();
  EXPECT_TRUE(listen_until([&] { return processes_->zygote_pid() == -1 && other.zygote_pid() == -1; }));
  EXPECT_TRUE(listen_until([&] { return is_dead(hidden.pidfd) && is_dead(others_hidden.pidfd); }));
}

TEST_F(ModelProcessesTest, HiddenChildrenOfAZygoteThatIsLeftAloneEndToo) {
  options_.workers = 2;
  make();
  const Puppet zygote = start_loaded();
  const Fork worker = make_ready(zygote), unanswered = zygote.hear_fork();
  Fork hidden;
  zygote.fork(hidden);
  run_at(clock_.now_ns() + ModelProcesses::kCommandLimitNs + kSecondNs);
  run_at(clock_.now_ns() + ModelProcesses::kZygoteDeathLimitNs + 1);
  EXPECT_EQ(stuck_.count(), 1u);
  EXPECT_TRUE(listen_until([&] { return is_dead(hidden.pidfd); }));
  EXPECT_FALSE(is_dead(worker.pidfd));
}

TEST_F(ModelProcessesTest, KillAllEndsHiddenChildrenToo) {
  const Puppet zygote = start_loaded();
  Fork hidden;
  zygote.fork(hidden);
  processes_.reset();
  EXPECT_TRUE(listen_until([&] { return is_dead(hidden.pidfd); }));
}

// ---- a zygote that was killed and does not die: the loop, which would see its death, does not run ----

TEST_F(ModelProcessesTest, AZygoteThatDoesNotDieIsLeftAloneAndReapedLater) {
  const Puppet zygote = start();
  processes_->stop();
  processes_->kill_all();
  ASSERT_TRUE(next_ns());
  const std::uint64_t limit_ns = *next_ns();
  processes_->kill_all();
  EXPECT_EQ(next_ns(), limit_ns) << "the first SIGKILL counts";
  run_at(limit_ns - 1);
  EXPECT_FALSE(processes_->all_gone());
  run_at(limit_ns);
  EXPECT_TRUE(processes_->all_gone());
  EXPECT_EQ(next_ns(), std::nullopt);
  EXPECT_EQ(stuck_.count(), 1u);
  processes_.reset();  // the version is freed
  EXPECT_TRUE(listen_until([&] { return stuck_.count() == 0; })) << "nobody hears of its death";
  EXPECT_TRUE(reap_children([](pid_t) { return false; }, [](pid_t, UniqueFd pidfd) { reap(pidfd); }));
  EXPECT_EQ(::kill(zygote.pid(), 0), -1) << "it is watched";
}

TEST_F(ModelProcessesTest, AZygoteThatDoesNotDieIsReplacedAndItsWorkersGoOn) {
  options_.workers = 2;
  make();
  const Puppet zygote = start_loaded();
  const Fork worker = make_ready(zygote), unborn = zygote.hear_fork();
  run_at(clock_.now_ns() + ModelProcesses::kCommandLimitNs + kSecondNs);
  run_at(clock_.now_ns() + ModelProcesses::kZygoteDeathLimitNs + 1);
  EXPECT_EQ(stuck_.count(), 1u);
  EXPECT_EQ(births_.unborn.size(), 1u) << "it may have forked the other worker";
  run_at(clock_.now_ns());
  const Puppet next = accept();
  EXPECT_EQ(next.hear().text, "what to load");
  next.say({.kind = ControlKind::kLoaded, .text = "loaded"});
  ASSERT_TRUE(pump_until([&] { return !next.hears_nothing(); })) << processes_->reason();
  const Fork second = next.fork_worker();
  second.say_ready();
  EXPECT_TRUE(pump_until([&] { return processes_->ready_workers() == 2; })) << processes_->reason();
  EXPECT_TRUE(events_.died.empty());
}

TEST_F(ModelProcessesTest, WhenTooManyZygotesDoNotDieAModelWaitsForItsOwn) {
  std::vector<std::unique_ptr<ModelProcesses>> models;
  const auto add = [&] {
    models.push_back(std::make_unique<ModelProcesses>(options_, clock_, loop_, timers_, events_, log_, births_, stuck_));
    models.back()->start();
    models.back()->stop();
    models.back()->kill_all();
  };
  for (std::size_t i = 0; i <= StuckZygotes::kMost; ++i) add();
  clock_.ahead_ns += ModelProcesses::kZygoteDeathLimitNs + 1;
  for (int turn = 0; turn < 3; ++turn) timers_.run_due(clock_.now_ns());
  EXPECT_EQ(stuck_.count(), StuckZygotes::kMost);
  EXPECT_TRUE(models[StuckZygotes::kMost - 1]->all_gone());
  EXPECT_FALSE(models.back()->all_gone());
  EXPECT_GT(next_ns(), clock_.now_ns() + ModelProcesses::kNoRoomRetryNs / 2) << "it turns and turns";
  EXPECT_TRUE(listen_until([&] { return stuck_.count() == 0 && models.back()->all_gone(); }));
}

// ---- a worker that was killed and does not die ----

TEST_F(ModelProcessesTest, AWorkerThatDoesNotDieIsReplacedAndItsDeathIsToldLater) {
  const Puppet zygote = start_loaded();
  const Fork worker = make_ready(zygote);
  processes_->kill_worker(worker.incarnation, "it is not wanted");
  ASSERT_TRUE(next_ns());
  const std::uint64_t limit_ns = *next_ns();
  processes_->kill_worker(worker.incarnation, "once more");
  EXPECT_EQ(next_ns(), limit_ns) << "the first SIGKILL counts";
  run_at(limit_ns - 1);
  EXPECT_TRUE(zygote.hears_nothing());
  run_at(limit_ns);
  const Fork second = zygote.fork_worker();
  EXPECT_TRUE(events_.died.empty()) << "its requests may not run again yet";
  second.say_ready();
  EXPECT_TRUE(pump_until([&] { return is_ready(second.incarnation) && events_.died.contains(worker.incarnation); }));
  EXPECT_TRUE(zygote.hears_nothing()) << "its end counts as a second one";
}

TEST_F(ModelProcessesTest, AnAbortedWorkerThatDoesNotDieIsReplaced) {
  const Puppet zygote = start_loaded();
  const Fork worker = make_ready(zygote);
  processes_->abort_worker(worker.incarnation, 0, "it hangs", EndReason::kHung);
  run_at(*next_ns());
  EXPECT_TRUE(zygote.hears_nothing());
  run_at(*next_ns());
  EXPECT_EQ(zygote.hear_fork().incarnation, worker.incarnation + 1);
}

TEST_F(ModelProcessesTest, WhenTooManyWorkersDoNotDieNoOtherIsLeftAlone) {
  options_.workers = static_cast<int>(ModelProcesses::kMostStuckWorkers) + 1;
  make();
  const Puppet zygote = start_loaded();
  std::vector<Fork> workers;
  for (int i = 0; i < options_.workers; ++i) workers.push_back(make_ready(zygote));
  for (const Fork& worker : workers) processes_->kill_worker(worker.incarnation, "it is not wanted");
  clock_.ahead_ns += ModelProcesses::kWorkerDeathLimitNs + 1;
  for (int turn = 0; turn < 3; ++turn) timers_.run_due(clock_.now_ns());
  EXPECT_GT(next_ns(), clock_.now_ns() + ModelProcesses::kNoRoomRetryNs / 2) << "it turns and turns";
  for (int i = 0; i < static_cast<int>(ModelProcesses::kMostStuckWorkers); ++i) zygote.hear_fork();
  EXPECT_TRUE(zygote.hears_nothing());
}

// ---- the daemon stood still ----

TEST_F(ModelProcessesTest, TimeInWhichTheDaemonDidNotRunCountsForNoLoad) {
  const Puppet zygote = start();
  const std::uint64_t limit_ns = *next_ns();
  timers_.postpone(60 * kSecondNs);
  EXPECT_EQ(next_ns(), limit_ns + 60 * kSecondNs);
  run_at(limit_ns + 59 * kSecondNs);
  EXPECT_EQ(processes_->state(), ModelState::kLoading);
  EXPECT_FALSE(zygote.is_dead());
}

TEST_F(ModelProcessesTest, TimeInWhichTheDaemonDidNotRunEndsNoZygoteAndNoWorker) {
  options_.workers = 3;
  make();
  const Puppet zygote = start_loaded();
  const Fork starting = zygote.fork_worker(), aborted = zygote.fork_worker(), unanswered = zygote.hear_fork();
  ASSERT_TRUE(listen_until([&] { return is_forked(starting.incarnation) && is_forked(aborted.incarnation); }));
  processes_->abort_worker(aborted.incarnation, 0, "it hangs", EndReason::kHung);
  const std::uint64_t limit_ns = *next_ns();
  timers_.postpone(60 * kSecondNs);
  EXPECT_EQ(next_ns(), limit_ns + 60 * kSecondNs);
  run_at(limit_ns + 59 * kSecondNs);
  EXPECT_EQ(next_ns(), limit_ns + 60 * kSecondNs) << "something was done";
  EXPECT_FALSE(zygote.is_dead());
  EXPECT_FALSE(is_dead(starting.pidfd));
}

}  // namespace
}  // namespace shoal::supervisor
