#include "supervisor/process/watchdog.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <ctime>
#include <future>
#include <thread>

#include "shm/wire/status_page.hpp"

namespace shoal::supervisor {
namespace {

constexpr std::uint64_t kMs = 1'000'000;
constexpr LaneLimits kLimits{.quiet_ns = 250 * kMs, .run_ns = 1'000 * kMs};

/// A lane that is looked at every 50 ms.
class LaneWatchTest : public testing::Test {
 protected:
  /// The first verdict that is not kFine within `looks`, each after `change` was applied; kFine when there is none.
  template <typename Change>
  LaneVerdict watch(int looks, Change change) {
    for (looks_ = 1; looks_ <= looks; ++looks_) {
      sample_.now_ns += 50 * kMs;
      change(sample_);
      if (const LaneVerdict verdict = watch_.judge(sample_, kLimits); verdict != LaneVerdict::kFine) return verdict;
    }
    return LaneVerdict::kFine;
  }

  LaneWatch watch_;
  LaneSample sample_{.now_ns = 1'000 * kMs, .request = 7, .steps = 3, .cpu_ns = 5 * kMs};
  int looks_ = 0;
};

TEST_F(LaneWatchTest, OneThatNeitherStepsNorComputesIsHungAfterTheLimit) {
  EXPECT_EQ(watch(100, [](LaneSample&) {}), LaneVerdict::kHung);
  EXPECT_EQ(looks_, 6);  // the first look only begins it
}

TEST_F(LaneWatchTest, OneThatWaitsForADeviceIsNotHungButHasItsRunLimit) {
  EXPECT_EQ(watch(19, [](LaneSample& lane) { lane.waits_for_device = true; }), LaneVerdict::kFine);
  EXPECT_EQ(watch(100, [](LaneSample& lane) { lane.waits_for_device = true; }), LaneVerdict::kOverRunLimit);
}

TEST_F(LaneWatchTest, AStepBeginsTheTimeAnew) {
  EXPECT_EQ(watch(100, [&](LaneSample& lane) { lane.steps += looks_ == 5; }), LaneVerdict::kHung);
  EXPECT_EQ(looks_, 10);
}

TEST_F(LaneWatchTest, TimeInWhichAThreadItMayWaitForWasStarvedDoesNotCount) {
  EXPECT_EQ(watch(8, [](LaneSample& lane) { lane.starved_ns = 50 * kMs; }), LaneVerdict::kFine);
  EXPECT_EQ(watch(100, [&](LaneSample& lane) { lane.starved_ns = looks_ % 2 == 0 ? ~std::uint64_t{0} : 0; }), LaneVerdict::kHung);
  EXPECT_EQ(looks_, 9) << "five of them counted";
}

TEST(LongestWait, IsOfTheThreadThatWaitedLongest) {
  const std::vector<ThreadTimes> before{{.thread = 1, .state = 'S', .cpu_ns = 10, .wait_ns = 100},
                                        {.thread = 2, .state = 'S', .cpu_ns = 20, .wait_ns = 200}};
  std::vector<ThreadTimes> now = before;
  EXPECT_EQ(longest_wait_ns(before, now), 0u);
  now.push_back({.thread = 3, .state = 'R', .cpu_ns = 1, .wait_ns = 1'000});
  EXPECT_EQ(longest_wait_ns(before, now), 0u) << "one that is new";
  now[0].wait_ns = 130;
  now[1].wait_ns = 270;
  EXPECT_EQ(longest_wait_ns(before, now), 70u);
  now[0].state = 'R';
  now[0].cpu_ns = 11;
  EXPECT_EQ(longest_wait_ns(before, now), 70u) << "it runs";
  now[0].cpu_ns = 10;
  EXPECT_EQ(longest_wait_ns(before, now), ~std::uint64_t{0}) << "it waits all the time";
}

TEST(LongestWait, OfManyThreadsTakesLittleTime) {
  std::vector<ThreadTimes> before;
  for (pid_t thread = 1; thread <= 200'000; ++thread) before.push_back({.thread = thread, .state = 'S'});
  std::vector<ThreadTimes> now(before.begin() + 1, before.end());
  now.back().wait_ns = 7;
  const auto cpu_ns = [] {
    timespec used{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return static_cast<std::uint64_t>(used.tv_sec) * 1'000 * kMs + static_cast<std::uint64_t>(used.tv_nsec);
  };
  const std::uint64_t begin_ns = cpu_ns();
  EXPECT_EQ(longest_wait_ns(before, now), 7u);
  EXPECT_LT(cpu_ns() - begin_ns, 500 * kMs) << "one step per thread takes about a millisecond";
}

TEST_F(LaneWatchTest, AnotherRequestBeginsTheTimeAnew) {
  EXPECT_EQ(watch(200, [&](LaneSample& lane) { lane.request += looks_ % 5 == 0; }), LaneVerdict::kFine);
}

TEST_F(LaneWatchTest, WhatItBeginsToRunBeginsTheTimeAnew) {
  const auto computes = [](LaneSample& lane) { lane.cpu_ns += 50 * kMs; };
  EXPECT_EQ(watch(15, computes), LaneVerdict::kFine);
  sample_.running = 7;  // its program is compiled
  EXPECT_EQ(watch(100, computes), LaneVerdict::kOverRunLimit);
  EXPECT_EQ(looks_, 21);
}

TEST_F(LaneWatchTest, OneThatWaitsForAProcessorIsNeverHungAndItsTimeDoesNotCount) {
  EXPECT_EQ(watch(10'000, [](LaneSample& lane) { lane.is_runnable = true; }), LaneVerdict::kFine);
}

TEST_F(LaneWatchTest, AStarvedOneThatGetsOnePerCentOfAProcessorMayComputeForItsWholeRunLimit) {
  // 0.5 ms each 50 ms, the rest in the run queue: 1 s of computing takes 100 s. The kernel counts the wait when it is over.
  EXPECT_EQ(watch(1'900,
                  [](LaneSample& lane) {
                    lane.is_runnable = true;
                    lane.cpu_ns += kMs / 2;
                    lane.wait_ns += 49'500'000;
                  }),
            LaneVerdict::kFine);
  EXPECT_EQ(watch(200,
                  [](LaneSample& lane) {
                    lane.cpu_ns += kMs / 2;
                    lane.wait_ns += 49'500'000;
                  }),
            LaneVerdict::kOverRunLimit);
}

TEST_F(LaneWatchTest, OneThatComputesWithoutAStepIsOverItsRunLimitAndNotHung) {
  EXPECT_EQ(watch(100,
                  [](LaneSample& lane) {
                    lane.is_runnable = true;
                    lane.cpu_ns += 50 * kMs;
                  }),
            LaneVerdict::kOverRunLimit);
  EXPECT_EQ(looks_, 21);
}

TEST_F(LaneWatchTest, OneThatWakesUpNowAndThenWithoutAStepIsEndedByTheRunLimit) {
  EXPECT_EQ(watch(100, [](LaneSample& lane) { lane.cpu_ns += 1'000; }), LaneVerdict::kOverRunLimit);
}

TEST_F(LaneWatchTest, AStoppedProcessIsSeenAtOnce) {
  EXPECT_EQ(watch(1, [](LaneSample& lane) { lane.is_stopped = true; }), LaneVerdict::kStopped);
}

TEST_F(LaneWatchTest, TimeInWhichNobodyLookedDoesNotCount) {
  EXPECT_EQ(watch(1, [](LaneSample& lane) { lane.now_ns += 3'600'000 * kMs; }), LaneVerdict::kFine);
  EXPECT_EQ(watch(1, [](LaneSample& lane) { lane.now_ns += 3'600'000 * kMs; }), LaneVerdict::kFine);
}

TEST(SampleLane, CountsTheLaneAndItsHelpersAndNobodyElse) {
  const std::vector<ThreadTimes> threads = {{.thread = 100, .state = 'S', .cpu_ns = 1},
                                            {.thread = 101, .state = 'R', .cpu_ns = 10, .is_message_io = true},
                                            {.thread = 102, .state = 'S', .cpu_ns = 100, .wait_ns = 1},
                                            {.thread = 103, .state = 'R', .cpu_ns = 1'000},  // another lane
                                            {.thread = 104, .state = 'S', .cpu_ns = 10'000, .wait_ns = 2}};
  const std::uint64_t lanes[] = {102, 103};
  const LaneSample sample = sample_lane(threads, lanes, 0, LaneStage::kRunning);
  EXPECT_EQ(sample.cpu_ns, 10'101u);
  EXPECT_EQ(sample.wait_ns, 3u);
  EXPECT_FALSE(sample.is_runnable);
  EXPECT_TRUE(sample_lane(threads, lanes, 1, LaneStage::kRunning).is_runnable);
  // Not begun: its message may be with the thread that waits for a processor.
  EXPECT_TRUE(sample_lane(threads, lanes, 0, LaneStage::kReceiving).is_runnable);
}

TEST(SampleLane, AReplyThatWaitsForAProcessorIsMovementOfALaneWhoseProgramWasCompiled) {
  std::vector<ThreadTimes> threads = {{.thread = 101, .state = 'R', .cpu_ns = 10, .is_message_io = true},
                                      {.thread = 102, .state = 'S', .cpu_ns = 100}};
  const std::uint64_t lanes[] = {102};
  EXPECT_TRUE(sample_lane(threads, lanes, 0, LaneStage::kCompiling).is_runnable);
  EXPECT_EQ(sample_lane(threads, lanes, 0, LaneStage::kCompiling).cpu_ns, 100u) << "what it sends for others is none";
  threads[0].state = 'S';
  EXPECT_FALSE(sample_lane(threads, lanes, 0, LaneStage::kCompiling).is_runnable);
}

TEST(SampleLane, CountsTheControlThreadUntilTheRequestIsThere) {
  const std::vector<ThreadTimes> threads = {{.thread = 100, .state = 'R', .cpu_ns = 7, .is_control = true},
                                            {.thread = 101, .state = 'S', .cpu_ns = 10, .is_compiler = true},
                                            {.thread = 102, .state = 'S', .cpu_ns = 100}};
  const std::uint64_t lanes[] = {102};
  EXPECT_EQ(sample_lane(threads, lanes, 0, LaneStage::kReceiving).cpu_ns, 117u);
  for (const LaneStage stage : {LaneStage::kCompiling, LaneStage::kRunning}) {
    EXPECT_EQ(sample_lane(threads, lanes, 0, stage).cpu_ns, 110u) << "clients that come are no movement of the lane";
    EXPECT_FALSE(sample_lane(threads, lanes, 0, stage).is_runnable);
  }
}

TEST(SampleLane, DoesNotBelieveAThreadThatIsNotTheProcesss) {
  const std::vector<ThreadTimes> threads = {{.thread = 100, .state = 'T', .cpu_ns = 1},
                                            {.thread = 102, .state = 'T', .cpu_ns = 5}};
  const std::uint64_t lanes[] = {1};
  const LaneSample sample = sample_lane(threads, lanes, 0, LaneStage::kRunning);
  EXPECT_EQ(sample.cpu_ns, 6u);
  EXPECT_TRUE(sample.is_stopped);
}

constexpr std::size_t kManyThreads = 1'000;

std::vector<ThreadTimes> threads_of(pid_t process) { return read_threads(process, kManyThreads).value(); }

/// A child that computes, or is stopped.
TEST(ReadThreads, SeesWhatAThreadUsesAndWhetherItIsStopped) {
  const pid_t child = ::fork();
  if (child == 0) {
    for (volatile unsigned spin = 0;;) spin = spin + 1;
  }
  const auto sees = [&](auto condition) {
    for (int i = 0; i < 2'000; ++i) {
      const auto threads = threads_of(child);
      if (threads.size() == 1 && threads[0].thread == child && condition(threads[0])) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return false;
  };
  EXPECT_TRUE(sees([](const ThreadTimes& times) { return times.state == 'R' && times.cpu_ns > 5 * kMs; }));
  ::kill(child, SIGSTOP);
  EXPECT_TRUE(sees([](const ThreadTimes& times) { return times.state == 'T'; }));
  const std::uint64_t used_ns = threads_of(child).at(0).cpu_ns;
  EXPECT_EQ(threads_of(child).at(0).cpu_ns, used_ns);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(threads_of(child).empty());
}

// A hostile worker starts as many threads as the kernel lets it.
TEST(ReadThreads, StopsAtTheMostThatAreAllowed) {
  const std::size_t before = threads_of(::getpid()).size();
  constexpr std::size_t kMore = 40;
  std::atomic<bool> is_over{false};
  std::vector<std::jthread> more;
  for (std::size_t i = 0; i < kMore; ++i) more.emplace_back([&] { is_over.wait(false); });
  const auto all = read_threads(::getpid(), before + kMore);
  EXPECT_TRUE(all && all->size() == before + kMore);
  EXPECT_TRUE(all && std::ranges::is_sorted(*all, {}, &ThreadTimes::thread));
  EXPECT_FALSE(read_threads(::getpid(), before + kMore - 1)) << "it has more threads than that";
  is_over = true;
  is_over.notify_all();
}

TEST(ReadThreads, TakesTheThreadThatUnmapsForOneOfControl) {
  std::promise<pid_t> named;
  std::promise<void> is_over;
  std::jthread unmapper([&] {
    ::prctl(PR_SET_NAME, wire::kUnmapperThread);
    named.set_value(::gettid());
    is_over.get_future().wait();
  });
  const pid_t thread = named.get_future().get();
  for (const ThreadTimes& times : threads_of(::getpid()))
    EXPECT_EQ(times.is_control, times.thread == thread || times.thread == ::getpid());
  is_over.set_value();
}

TEST(ReadThreads, AllowsWhatAWorkerNeeds) {
  EXPECT_GE(most_threads_of_worker(1, 1), 6u) << "control, unmapping, two of ZeroMQ, a lane, the compiler";
  EXPECT_GE(most_threads_of_worker(16, 8), 4u + 17 * 8) << "each lane and the compiler have 8";
  EXPECT_LT(most_threads_of_worker(16, 8), 1'000u);
}

TEST(ReadThreads, SurvivesThreadsThatComeAndGo) {
  std::atomic<bool> is_over{false};
  std::thread busy([&] {
    while (!is_over) std::thread([] {}).join();
  });
  for (int i = 0; i < 500; ++i) EXPECT_GE(threads_of(::getpid()).size(), 1u);
  is_over = true;
  busy.join();
}

}  // namespace
}  // namespace shoal::supervisor
