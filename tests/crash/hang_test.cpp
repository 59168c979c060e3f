// Workers that stand still: stopped from outside, hung, or over their run limit. Slow workers must not be ended.
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "tests/crash/load.hpp"
#include "tests/support/checkpoint.hpp"
#include "tests/support/pool_fixture.hpp"
#include "tests/support/scratch_directory.hpp"

namespace shoal::test {
namespace {

using Clock = std::chrono::steady_clock;
constexpr float kTrigger = 666;
constexpr std::int64_t kNewRows = 3;  // the program for this many rows is compiled when such a request first comes

Tensor tensor_of(float first, std::int64_t rows = 1) { return counting({rows, 4}, first); }

/// A model of one faulty operator, then a multiplication by 3.
class Hang : public testing::Test {
 protected:
  DaemonSettings settings(const std::string& op, const std::string& scalar, const std::string& keys) {
    write_checkpoint(models_.path(), "m",
                     {{op, "op0", {{"scalar", scalar}}, {}}, {"_mul_scalar", "times3", {{"scalar", "3"}}, {}}}, "[-1, 4]");
    return {.models = {"m=" + models_.path() + ",timeout_ms=0,tuning_ms=0" + keys}, .worker = "shoal-worker-faulty"};
  }

  const ScratchDirectory models_;
};

void ask(Pool& pool, int thread, int request) {
  const float first = static_cast<float>(thread * 100'000 + request);
  const auto outputs = pool.predict("m", {{"data", tensor_of(first)}});
  ASSERT_TRUE(outputs.ok()) << outputs.status().to_string();
  EXPECT_EQ(outputs->front().tensor.values<float>()[1], (first + 1) * 3);
}

TEST_F(Hang, AStoppedWorkerIsNoticedWithinASecondAndWhatItHeldRunsAgain) {
  DaemonFixture daemon(settings("_fault_spin", "5", ",workers=3"));
  Load load(daemon, 6, ask);
  ASSERT_TRUE(eventually([&] { return load.answers() > 50; }));
  const pid_t victim = daemon.workers("m").at(1);
  stop_process(victim);
  const auto stopped = Clock::now();
  ASSERT_TRUE(eventually([&] { return !is_alive(victim); })) << daemon.log();
  const auto took = Clock::now() - stopped;
  std::printf("a stopped worker was gone after %.0f ms\n", std::chrono::duration<double, std::milli>(took).count());
  EXPECT_LT(took, std::chrono::seconds(1));
  ASSERT_TRUE(eventually([&] { return daemon.workers("m").size() == 3; }));
  load.stop();
  const nlohmann::json counts = daemon.model("m")["counts"];
  EXPECT_EQ(counts["worker_deaths"], 1u);
  EXPECT_EQ(counts["poison"], 0u);
  EXPECT_EQ(counts["ok"], load.answers());
  EXPECT_GE(counts["rerun"], 1u);
}

TEST_F(Hang, AWorkerThatGoesOnSoonAnswersAndDisturbsNobody) {
  DaemonFixture daemon(settings("_fault_spin", "5", ",workers=2"));
  Load load(daemon, 4, ask);
  ASSERT_TRUE(eventually([&] { return load.answers() > 50; }));
  const pid_t victim = daemon.workers("m").at(0);
  for (int i = 0; i < 5; ++i) {
    ::kill(victim, SIGSTOP);
    std::this_thread::sleep_for(std::chrono::milliseconds(60));
    ::kill(victim, SIGCONT);
    const std::uint64_t before = load.answers();
    ASSERT_TRUE(eventually([&] { return load.answers() > before + 10; }));
  }
  load.stop();
  const nlohmann::json counts = daemon.model("m")["counts"];
  EXPECT_EQ(counts["worker_deaths"], 0u) << daemon.log();
  EXPECT_EQ(counts["ok"], load.answers());
}

TEST_F(Hang, ARequestThatHangsItsLaneIsPoisonAndTheRecordNamesTheOperator) {
  DaemonFixture daemon(settings("_fault_hang", "666", ",workers=2,contexts=2"));
  Pool pool = daemon.connect();
  const Prediction guilty = pool.submit("m", {{"data", tensor_of(kTrigger)}});
  std::vector<Prediction> others;
  for (int i = 0; i < 20; ++i) others.push_back(pool.submit("m", {{"data", tensor_of(static_cast<float>(i))}}));
  const Status status = guilty.get().status();
  EXPECT_EQ(status.code(), StatusCode::kPoison) << status.to_string();
  EXPECT_NE(status.message().find("no step and no processor time"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("_fault_hang 'op0'"), std::string::npos) << status.message();
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(others[i].get().ok()) << others[i].get().status().to_string();
    EXPECT_EQ(others[i].get()->front().tensor.values<float>()[0], static_cast<float>(i) * 3);
  }
  EXPECT_EQ(daemon.model("m")["counts"]["worker_deaths"], 2u);
}

TEST_F(Hang, AWorkerThatIsStoppedWhileItOnlyCompilesIsNoticedWithinASecond) {
  DaemonFixture daemon(settings("_fault_compile_spin", "3", ""));
  Pool pool = daemon.connect();
  const Prediction prediction = pool.submit("m", {{"data", tensor_of(1, kNewRows)}});
  pid_t victim = -1;
  ASSERT_TRUE(eventually([&] {
    prediction.wait_for(std::chrono::milliseconds(1));
    const nlohmann::json model = daemon.model("m");
    for (const auto& worker : model["workers"]) {
      if (worker["programs"]["compiling"] == 1 && worker["lanes"][0]["parked"] == 1) victim = worker["pid"];
    }
    return victim > 0;
  }));
  // A lane's messages arrive in order: with this answer the daemon has heard that the first request is parked.
  ASSERT_TRUE(pool.predict("m", {{"data", tensor_of(1)}}).ok());
  stop_process(victim);
  const auto stopped = Clock::now();
  ASSERT_TRUE(eventually([&] { return !is_alive(victim); }, std::chrono::seconds(5))) << daemon.log();
  EXPECT_LT(Clock::now() - stopped, std::chrono::seconds(1));
  ASSERT_TRUE(prediction.wait_for(std::chrono::seconds(30)));
  ASSERT_TRUE(prediction.get().ok()) << prediction.get().status().to_string();
  EXPECT_EQ(prediction.get()->front().tensor.values<float>()[1], (1 + 1) * 3);
  EXPECT_EQ(daemon.model("m")["counts"]["worker_deaths"], 1u);
}

TEST_F(Hang, ACompilationThatComputesForLongIsNotEnded) {
  DaemonFixture daemon(settings("_fault_compile_spin", "3", ",run_limit_ms=400"));
  Pool pool = daemon.connect();
  const auto outputs = pool.predict("m", {{"data", tensor_of(1, kNewRows)}});
  EXPECT_TRUE(outputs.ok()) << outputs.status().to_string();
  EXPECT_EQ(daemon.model("m")["counts"]["worker_deaths"], 0u) << daemon.log();
}

TEST_F(Hang, ACompilationThatHangsMakesItsRequestPoison) {
  DaemonFixture daemon(settings("_fault_compile", "3", ",workers=2"));
  Pool pool = daemon.connect();
  const Prediction guilty = pool.submit("m", {{"data", tensor_of(1, kNewRows)}});
  ASSERT_TRUE(guilty.wait_for(std::chrono::seconds(30)));
  const Status status = guilty.get().status();
  EXPECT_EQ(status.code(), StatusCode::kPoison) << status.to_string();
  EXPECT_NE(status.message().find("no step and no processor time"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("the compilation of its program"), std::string::npos) << status.message();
  EXPECT_TRUE(pool.predict("m", {{"data", tensor_of(1)}}).ok());
  EXPECT_EQ(daemon.model("m")["counts"]["worker_deaths"], 2u);
}

TEST_F(Hang, ARequestThatComputesBeyondTheRunLimitIsPoison) {
  DaemonFixture daemon(settings("_fault_spin", "600000", ",run_limit_ms=400"));
  Pool pool = daemon.connect();
  const Prediction guilty = pool.submit("m", {{"data", tensor_of(1)}});
  const Status status = guilty.get().status();
  EXPECT_EQ(status.code(), StatusCode::kPoison) << status.to_string();
  EXPECT_NE(status.message().find("run limit of 400 ms"), std::string::npos) << status.message();
}

TEST_F(Hang, AStarvedWorkerIsNeverEnded) {
  DaemonFixture daemon(settings("_fault_spin", "8", ""));
  Pool pool = daemon.connect();
  const pid_t worker = daemon.workers("m").at(0);
  // All its threads share one processor with a busy thread, which leaves them about 0.3 %.
  cpu_set_t allowed, one;
  ASSERT_EQ(::sched_getaffinity(0, sizeof allowed, &allowed), 0);
  int processor = 0;
  while (!CPU_ISSET(processor, &allowed)) ++processor;
  CPU_ZERO(&one);
  CPU_SET(processor, &one);
  for (const auto& task : std::filesystem::directory_iterator("/proc/" + std::to_string(worker) + "/task")) {
    const pid_t thread = std::stoi(task.path().filename());
    const sched_param none{};
    ASSERT_EQ(::sched_setaffinity(thread, sizeof one, &one), 0);
    ASSERT_EQ(::sched_setscheduler(thread, SCHED_IDLE, &none), 0);
  }
  std::atomic<bool> is_over{false};
  std::thread neighbor([&] {
    ::sched_setaffinity(0, sizeof one, &one);
    while (!is_over) {
    }
  });
  const auto begun = Clock::now();
  const auto outputs = pool.predict("m", {{"data", tensor_of(1)}});
  const auto took = Clock::now() - begun;
  is_over = true;
  neighbor.join();
  std::printf("8 ms of computing took the starved worker %.0f ms\n", std::chrono::duration<double, std::milli>(took).count());
  EXPECT_TRUE(outputs.ok()) << outputs.status().to_string();
  EXPECT_GT(took, std::chrono::milliseconds(600)) << "it was not starved: the test shows nothing";
  EXPECT_EQ(daemon.model("m")["counts"]["worker_deaths"], 0u) << daemon.log();
}

}  // namespace
}  // namespace shoal::test
