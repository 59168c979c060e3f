// How a model is loaded, its workers are forked and replaced, what waits when something is short, and how all of it ends.
#include "supervisor/process/model_processes.hpp"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "shm/base/errors.hpp"
#include "tests/support/no_descriptors.hpp"
#include "tests/unit/supervisor/process/model_processes_fixture.hpp"

namespace shoal::supervisor {
namespace {

TEST_F(ModelProcessesTest, AModelIsLoadedAndItsWorkersAreForked) {
  options_.workers = 2;
  options_.lanes = 3;
  make();
  const Puppet zygote = start();
  EXPECT_EQ(processes_->state(), ModelState::kLoading);
  zygote.say(with_fd({.kind = ControlKind::kLoaded, .text = "loaded"}, sealed_weights(8192)));
  ASSERT_TRUE(pump_until([&] { return processes_->state() == ModelState::kReady; }));
  EXPECT_EQ(events_.loaded, (std::vector<std::string>{"loaded"}));
  EXPECT_EQ(processes_->packed_bytes(), 8192u);

  const Fork first = make_ready(zygote), second = make_ready(zygote);
  EXPECT_EQ(first.lanes, 3u);
  EXPECT_NE(first.incarnation, second.incarnation);
  EXPECT_EQ(processes_->ready_workers(), 2);
  EXPECT_EQ(processes_->find_worker(first.incarnation)->pid, first.pid);
  EXPECT_EQ(processes_->find_worker(first.incarnation)->lane_paths.size(), 3u);
  EXPECT_TRUE(zygote.hears_nothing());
}

TEST_F(ModelProcessesTest, ReadyMayComeBeforeForked) {
  const Puppet zygote = start_loaded();
  Fork worker = zygote.hear_fork();
  worker.say_ready();
  pump();
  EXPECT_EQ(processes_->ready_workers(), 0);
  zygote.fork(worker);
  zygote.say_forked(worker);
  EXPECT_TRUE(pump_until([&] { return processes_->ready_workers() == 1; }));
}

TEST_F(ModelProcessesTest, AFailedLoadIsAFailedModelWithItsReason) {
  const Puppet zygote = start();
  zygote.say({.kind = ControlKind::kLoadFailed, .a = static_cast<std::uint64_t>(StatusCode::kDataLoss), .text = "torn file"});
  ASSERT_TRUE(pump_until([&] { return processes_->state() == ModelState::kFailed; }));
  EXPECT_NE(events_.failure.find("torn file"), std::string::npos) << events_.failure;
  zygote.kill();
  ASSERT_TRUE(listen_until([&] { return processes_->all_gone(); }));
  EXPECT_EQ(next_ns(), std::nullopt) << "it is started again";
}

TEST_F(ModelProcessesTest, AFailureIsBelievedWithACodeOfOursAndItsTextIsCut) {
  for (const std::uint64_t code : {std::uint64_t{0}, std::uint64_t{65536}}) {
    make();
    const Puppet zygote = start();
    zygote.say({.kind = ControlKind::kLoadFailed, .a = code, .text = "torn file"});
    expect_ended(zygote, "LOAD_FAILED with the status code");
  }
  make();
  events_ = {};
  const Puppet zygote = start();
  zygote.say({.kind = ControlKind::kLoadFailed, .a = 1, .text = std::string(60'000, 'x')});
  ASSERT_TRUE(pump_until([&] { return processes_->state() == ModelState::kFailed; }));
  EXPECT_LT(events_.failure.size(), 5000u);
}

TEST_F(ModelProcessesTest, AVersionThatItsOwnerRefusesHasFailed) {
  events_.refusal = failed_precondition("another version");
  const Puppet zygote = start();
  zygote.say({.kind = ControlKind::kLoaded, .text = "loaded"});
  ASSERT_TRUE(pump_until([&] { return processes_->state() == ModelState::kFailed; }));
  EXPECT_NE(events_.failure.find("another version"), std::string::npos) << events_.failure;
}

TEST_F(ModelProcessesTest, PackedWeightsMustBeSealedAndAllThere) {
  UniqueFd sparse(::memfd_create("sparse", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(sparse.get(), off_t{1} << 40), 0);
  ASSERT_TRUE(seal(sparse, Seals::kReadOnly).ok());
  std::pair<std::string, UniqueFd> descriptors[] = {{"of which 0 are allocated", std::move(sparse)},
                                                    {"without F_SEAL", create_memfd("open", 4096).value()},
                                                    {"not a memfd", std::move(wire::make_control_pair().value().ours)}};
  for (auto& [why, fd] : descriptors) {
    make();
    events_ = {};
    const Puppet zygote = start();
    zygote.say(with_fd({.kind = ControlKind::kLoaded, .text = "loaded"}, std::move(fd)));
    ASSERT_TRUE(pump_until([&] { return processes_->state() != ModelState::kLoading; }));
    EXPECT_EQ(processes_->state(), ModelState::kFailed) << why;
    EXPECT_NE(events_.failure.find(why), std::string::npos) << events_.failure;
    EXPECT_EQ(processes_->packed_bytes(), 0u);
  }
}

TEST_F(ModelProcessesTest, FailedStartsWaitTwiceAsLongEachTimeAndFiveFailTheModel) {
  Puppet zygote = start();
  for (int failures = 1; failures < ModelProcesses::kFailedStartsForFailure; ++failures) {
    zygote.kill();
    ASSERT_TRUE(listen_until([&] { return processes_->zygote_pid() == -1; }));
    ASSERT_TRUE(next_ns());
    const std::uint64_t delay_ns = *next_ns() - clock_.now_ns();
    EXPECT_LE(delay_ns, Backoff::kFirstNs << (failures - 1));
    EXPECT_GT(delay_ns, (Backoff::kFirstNs << (failures - 1)) / 4);
    EXPECT_FALSE(processes_->makes_no_progress());
    run_at(*next_ns());
    zygote = accept();
  }
  zygote.kill();
  ASSERT_TRUE(listen_until([&] { return processes_->state() == ModelState::kFailed; }));
  EXPECT_NE(events_.failure.find("killed by signal 9 (5 times in a row)"), std::string::npos) << events_.failure;
  EXPECT_TRUE(processes_->makes_no_progress());
}

TEST_F(ModelProcessesTest, FailuresOfAZygoteAreOverWhenTheNextOneHasLoaded) {
  const Puppet first = start_loaded();
  const Fork worker = make_ready(first);
  first.kill();
  for (int failures = 0; failures < ModelProcesses::kFailedStartsForFailure; ++failures) start_again().kill();
  const Puppet last = start_again();
  EXPECT_TRUE(processes_->makes_no_progress());
  last.say({.kind = ControlKind::kLoaded, .text = "loaded"});
  EXPECT_TRUE(pump_until([&] { return !processes_->makes_no_progress(); })) << "who scales the model need not be refused";
  EXPECT_FALSE(is_dead(worker.pidfd));
}

// The files of a model that was served may come back: their disk was away.
TEST_F(ModelProcessesTest, AModelThatHasLostItsWorkersWaitsUntilItCanBeLoaded) {
  const Puppet first = start_loaded();
  const Fork worker = make_ready(first);
  kill_after_an_answer(worker);
  first.kill();
  for (int failures = 0; failures <= ModelProcesses::kFailedStartsForFailure; ++failures) start_again().kill();
  const Puppet last = start_again();
  EXPECT_EQ(processes_->state(), ModelState::kReady);
  last.say({.kind = ControlKind::kLoaded, .text = "loaded"});
  ASSERT_TRUE(pump_until([&] { return !last.hears_nothing(); }));
  make_ready(last);
}

TEST_F(ModelProcessesTest, AZygoteIsReplacedWhileItsWorkersGoOn) {
  const Puppet zygote = start();
  zygote.say(with_fd({.kind = ControlKind::kLoaded, .text = "loaded"}, sealed_weights(4096)));
  ASSERT_TRUE(pump_until([&] { return processes_->state() == ModelState::kReady; }));
  const Fork worker = make_ready(zygote);
  zygote.kill();
  ASSERT_TRUE(pump_until([&] { return processes_->zygote_pid() != zygote.pid(); }));
  const Puppet second = accept();
  const ControlMessage load = second.hear();
  EXPECT_EQ(load.kind, ControlKind::kLoad);
  ASSERT_EQ(load.fds.size(), 1u) << "it gets the weights of the first";
  EXPECT_EQ(check_sealed(load.fds[0], Seals::kReadOnly).value(), 4096u);
  EXPECT_EQ(processes_->ready_workers(), 1);
  EXPECT_FALSE(is_dead(worker.pidfd));

  // Orphaned workers are watched as before, and the second zygote replaces them.
  second.say({.kind = ControlKind::kLoaded, .text = "loaded"});
  events_.answered.insert(worker.incarnation);
  ::kill(worker.pid, SIGKILL);
  ASSERT_TRUE(pump_until([&] { return events_.died.contains(worker.incarnation) && !second.hears_nothing(); }));
  const Fork next = make_ready(second);
  EXPECT_GT(next.incarnation, worker.incarnation);
}

TEST_F(ModelProcessesTest, SurplusWorkersLeaveTheYoungestFirst) {
  options_.workers = 2;
  make();
  const Puppet zygote = start_loaded();
  const Fork first = make_ready(zygote), second = make_ready(zygote);
  processes_->set_workers(1);
  EXPECT_EQ(events_.leaving, (std::vector<std::uint64_t>{second.incarnation}));
  EXPECT_FALSE(second.is_told_to_go()) << "it may hold requests";
  processes_->let_go(second.incarnation);
  EXPECT_TRUE(second.is_told_to_go());
  ::kill(second.pid, SIGKILL);
  ASSERT_TRUE(pump_until([&] { return events_.died.contains(second.incarnation); }));
  EXPECT_TRUE(zygote.hears_nothing()) << "nobody replaces it";
  EXPECT_EQ(processes_->ready_workers(), 1);
}

// It answers nothing more, and may yet take a while to die.
TEST_F(ModelProcessesTest, AWorkerThatWasKilledIsNotReadyAndNoOtherIsDismissedForIt) {
  options_.workers = 2;
  make();
  const Puppet zygote = start_loaded();
  const Fork first = make_ready(zygote), second = make_ready(zygote);
  processes_->kill_worker(first.incarnation, "it is kept for the test");
  EXPECT_EQ(processes_->ready_workers(), 1);
  EXPECT_EQ(processes_->probe(first.incarnation).code(), StatusCode::kNotFound);
  processes_->set_workers(1);
  EXPECT_TRUE(events_.leaving.empty()) << "the one that is left serves";
}

TEST_F(ModelProcessesTest, AWorkerThatDiesIsReplacedAtOnceIfItHasAnswered) {
  const Puppet zygote = start_loaded();
  const Fork worker = make_ready(zygote);
  kill_after_an_answer(worker);
  EXPECT_GT(make_ready(zygote).incarnation, worker.incarnation);
}

// fork() fails for lack of memory or process ids. Other processes may end.
TEST_F(ModelProcessesTest, FailedForksAreTriedAgainAndFailNoModel) {
  const Puppet zygote = start_loaded();
  for (int failures = 1; failures <= ModelProcesses::kFailedStartsForFailure; ++failures) {
    EXPECT_FALSE(processes_->makes_no_progress());
    const Fork fork = zygote.hear_fork();
    zygote.say({.kind = ControlKind::kForkFailed, .id = fork.incarnation, .text = "no memory"});
    ASSERT_TRUE(listen_until([&] { return !processes_->find_worker(fork.incarnation); }));
    ASSERT_EQ(processes_->state(), ModelState::kReady) << events_.failure;
    EXPECT_EQ(processes_->reason(), "no memory");
    EXPECT_EQ(births_.unborn.size(), static_cast<std::size_t>(failures)) << "it may have forked, and left sockets";
    EXPECT_TRUE(zygote.hears_nothing()) << "it waits";
    EXPECT_EQ(processes_->makes_no_progress(), failures == ModelProcesses::kFailedStartsForFailure);
    ASSERT_TRUE(pump_until([&] { return !zygote.hears_nothing(); })) << "it is tried again";
  }
  make_ready(zygote);
  EXPECT_FALSE(processes_->makes_no_progress());
}

// A worker tells of a lack of threads before it dies. Its death may be noticed before that is read.
TEST_F(ModelProcessesTest, WorkersThatLackThreadsAreForkedAgainAndFailNoModel) {
  const Puppet zygote = start_loaded();
  const auto fail = [&](StatusCode code, bool is_read_first) {
    const Fork worker = zygote.fork_worker();
    const auto say = [&] {
      worker.say({.kind = ControlKind::kWorkerFailed, .a = static_cast<std::uint64_t>(code), .text = "no threads"});
    };
    if (is_read_first) say();
    ASSERT_TRUE(
        pump_until([&] { return is_forked(worker.incarnation) && (!is_read_first || processes_->reason() == "no threads"); }));
    if (!is_read_first) say();
    ::kill(worker.pid, SIGKILL);
    pollfd end{.fd = worker.pidfd.get(), .events = POLLIN, .revents = 0};
    ASSERT_EQ(::poll(&end, 1, 10'000), 1);
    ASSERT_TRUE(listen_until([&] { return events_.died.contains(worker.incarnation); }));
    if (processes_->state() != ModelState::kReady) return;
    EXPECT_TRUE(zygote.hears_nothing()) << "it waits";
    ASSERT_TRUE(next_ns());
    run_at(*next_ns());
  };
  constexpr int kTries = ModelProcesses::kFailedStartsForFailure;
  for (int failures = 1; failures <= 2 * kTries; ++failures) {
    fail(StatusCode::kUnavailable, failures % 2 == 0);
    ASSERT_EQ(processes_->state(), ModelState::kReady) << events_.failure;
    EXPECT_EQ(processes_->reason(), "no threads");
    EXPECT_TRUE(processes_->lacks_resources());
    EXPECT_EQ(processes_->makes_no_progress(), failures >= kTries) << failures;
  }
  for (int failures = 1; failures <= kTries; ++failures) {
    EXPECT_EQ(processes_->state(), ModelState::kReady) << "only those in a row count";
    fail(StatusCode::kInternal, true);
    EXPECT_FALSE(processes_->lacks_resources());
  }
  EXPECT_EQ(processes_->state(), ModelState::kFailed);
}

TEST_F(ModelProcessesTest, AFirstLoadWaitsUntilThereAreDescriptors) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "UndefinedBehaviorSanitizer needs descriptors";
#endif
  {
    const test::NoDescriptors none;
    processes_->start();
    for (int tries = 1; tries <= 7; ++tries) {
      ASSERT_EQ(processes_->state(), ModelState::kLoading) << events_.failure;
      EXPECT_NE(processes_->reason().find("Too many open files"), std::string::npos) << processes_->reason();
      ASSERT_TRUE(next_ns());
      EXPECT_GT(*next_ns(), clock_.now_ns()) << "it waits";
      if (tries < 7) run_at(*next_ns());
    }
    EXPECT_TRUE(processes_->makes_no_progress()) << "who asked for the model need not wait";
  }
  run_at(*next_ns());
  const Puppet zygote = accept();
  EXPECT_EQ(zygote.hear().text, "what to load");
  zygote.say({.kind = ControlKind::kLoaded, .text = "loaded"});
  ASSERT_TRUE(pump_until([&] { return processes_->state() == ModelState::kReady; }));
  make_ready(zygote);
  EXPECT_FALSE(processes_->makes_no_progress());
}

TEST_F(ModelProcessesTest, LoadedWeightsWaitUntilThereAreDescriptors) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "UndefinedBehaviorSanitizer needs descriptors";
#endif
  const Puppet zygote = start();
  zygote.say(with_fd({.kind = ControlKind::kLoaded, .text = "loaded"}, sealed_weights(8192)));
  {
    const test::NoDescriptors none;
    loop_.run_ready();
    EXPECT_NE(processes_->state(), ModelState::kFailed) << events_.failure;
  }
  ASSERT_TRUE(pump_until([&] { return processes_->zygote_pid() != zygote.pid() && processes_->zygote_pid() != -1; }));
  const Puppet second = accept();
  EXPECT_EQ(second.hear().text, "what to load");
  second.say(with_fd({.kind = ControlKind::kLoaded, .text = "loaded"}, sealed_weights(8192)));
  ASSERT_TRUE(pump_until([&] { return processes_->state() == ModelState::kReady; }));
  EXPECT_EQ(processes_->packed_bytes(), 8192u);
}

TEST_F(ModelProcessesTest, AZygoteMayReportTheEndOfAWorkerForWhichThereWereNoDescriptors) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "UndefinedBehaviorSanitizer needs descriptors";
#endif
  const Puppet zygote = start_loaded();
  const Fork worker = zygote.fork_worker();
  {
    const test::NoDescriptors none;
    loop_.run_ready();
  }
  EXPECT_EQ(processes_->find_worker(worker.incarnation), nullptr);
  ::kill(worker.pid, SIGKILL);  // the end of its control socket would end it
  zygote.say({.kind = ControlKind::kExited,
              .id = worker.incarnation,
              .a = static_cast<std::uint64_t>(worker.pid),
              .b = static_cast<std::uint64_t>(zygote.reap(worker.pid))});
  ASSERT_TRUE(pump_until([&] { return !zygote.hears_nothing(); })) << "it is told to fork again";
  const Fork next = make_ready(zygote);
  EXPECT_EQ(processes_->ready_workers(), 1);
  EXPECT_EQ(processes_->zygote_pid(), zygote.pid());
}

TEST_F(ModelProcessesTest, AProgramThatIsMissingFailsTheModelAtOnce) {
  options_.worker_file = directory_.path("nowhere");
  make();
  processes_->start();
  EXPECT_EQ(processes_->state(), ModelState::kFailed);
  EXPECT_NE(events_.failure.find("nowhere"), std::string::npos) << events_.failure;
}

TEST_F(ModelProcessesTest, ALoadThatIsTooLongFailsTheModelAtOnce) {
  options_.load_text = std::string(wire::kMaxControlText + 1, 'x');
  make();
  processes_->start();
  EXPECT_EQ(processes_->state(), ModelState::kFailed);
  EXPECT_NE(events_.failure.find("at most 61440"), std::string::npos) << events_.failure;
  EXPECT_FALSE(next_ns()) << "nothing is tried again";
}

// The page is the worker's to write: it is no evidence of a request that the worker was never sent.
TEST_F(ModelProcessesTest, WhatAStatusPageClaimsDoesNotSpareAWorkerTheBackOff) {
  const Puppet zygote = start_loaded();
  Fork worker = zygote.hear_fork();
  zygote.fork(worker);
  auto page = Segment::map(worker.page, Segment::Access::kReadWrite).value();
  wire::StatusPage(page.mutable_bytes(), 1).lanes[0].running_request.store(7);
  ::kill(worker.pid, SIGKILL);
  zygote.say_forked(worker);
  ASSERT_TRUE(listen_until([&] { return events_.died.contains(worker.incarnation); }));
  EXPECT_TRUE(zygote.hears_nothing()) << "the next fork must wait";
  EXPECT_GT(next_ns().value_or(0), clock_.now_ns());
}

TEST_F(ModelProcessesTest, StopTellsEverybodyToGoAndReplacesNobody) {
  options_.workers = 2;
  make();
  const Puppet zygote = start_loaded();
  const Fork worker = make_ready(zygote), unborn = zygote.hear_fork();
  processes_->stop();
  EXPECT_TRUE(worker.is_told_to_go());
  EXPECT_TRUE(unborn.is_told_to_go());
  EXPECT_FALSE(processes_->all_gone());
  ::kill(worker.pid, SIGKILL);
  zygote.kill();
  EXPECT_TRUE(pump_until([&] { return processes_->all_gone(); }));
  EXPECT_EQ(next_ns(), std::nullopt);
  EXPECT_TRUE(events_.failure.empty());
}

TEST_F(ModelProcessesTest, KillAllEndsThoseThatDoNotGo) {
  const Puppet zygote = start_loaded();
  const Fork worker = make_ready(zygote);
  processes_->stop();
  processes_->kill_all();
  EXPECT_TRUE(pump_until([&] { return processes_->all_gone(); }));
  EXPECT_TRUE(is_dead(worker.pidfd) && zygote.is_dead());
}

}  // namespace
}  // namespace shoal::supervisor
