// A pool whose model runs partly on a device with memory of its own and an asynchronous queue (tests/support/fake_backend.hpp).
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>

#include "tests/crash/load.hpp"
#include "tests/support/checkpoint.hpp"
#include "tests/support/pool_fixture.hpp"
#include "tests/support/scratch_directory.hpp"

namespace shoal::test {
namespace {

using namespace std::chrono_literals;

Tensor tensor_of(float first) { return counting({1, 4}, first); }

/// What the model computes of the tensor's element `i`.
float answer_for(float first, int i) {
  return std::max((first + static_cast<float>(i)) * 3 + static_cast<float>(i + 1), 0.F) - 5;
}

class Device : public testing::Test {
 protected:
  /// On the CPU, on the device (two nodes), on the CPU.
  DaemonSettings settings(const std::string& keys, const std::string& fake) {
    write_checkpoint(models_.path(), "m",
                     {{"_mul_scalar", "times3", {{"scalar", "3"}}, {}},
                      {"broadcast_add", "add", {}, {{"bias", {1, 2, 3, 4}}}},
                      {"Activation", "relu", {{"act_type", "relu"}}, {}},
                      {"_minus_scalar", "minus5", {{"scalar", "5"}}, {}}},
                     "[-1, 4]");
    return {.models = {"m=" + models_.path() + ",device=fake,timeout_ms=0,tuning_ms=0" + keys},
            .worker = "shoal-worker-fake",
            .environment = {"SHOAL_FAKE=" + fake}};
  }

  const ScratchDirectory models_;
};

void ask(Pool& pool, int thread, int request) {
  const float first = static_cast<float>(thread * 10'000 + request - 50);
  const auto outputs = pool.predict("m", {{"data", tensor_of(first)}});
  ASSERT_TRUE(outputs.ok()) << outputs.status().to_string();
  for (int at = 0; at < 4; ++at)
    ASSERT_EQ(outputs->front().tensor.values<float>()[static_cast<std::size_t>(at)], answer_for(first, at)) << first;
}

TEST_F(Device, AnswersAreRightAndTheStatusSaysThatALaneWaitsForIt) {
  DaemonFixture daemon(settings(",workers=2", "latency_us=20000"));
  Load load(daemon, 4, ask);
  const auto waits = [&] {
    const nlohmann::json model = daemon.model("m");
    return std::ranges::any_of(model["workers"],
                               [](const auto& worker) { return worker["lanes"][0]["waits_for_device"] == true; });
  };
  EXPECT_TRUE(eventually(waits));
  EXPECT_TRUE(eventually([&] { return load.answers() > 20; }));
  load.stop();
  EXPECT_EQ(daemon.model("m")["counts"]["worker_deaths"], 0u);
  EXPECT_EQ(daemon.model("m")["workers"][0]["lanes"][0]["fallbacks"], 0u);
}

TEST_F(Device, WorkersThatAreKilledWhileTheirQueueIsBusyLoseNothing) {
  DaemonFixture daemon(settings(",workers=3", "latency_us=3000"));
  Load load(daemon, 6, ask);
  for (int kills = 0; kills < 15; ++kills) {
    const std::uint64_t before = load.answers();
    ASSERT_TRUE(eventually([&] { return load.answers() > before + 5 && !daemon.workers("m").empty(); })) << daemon.log();
    const auto workers = daemon.workers("m");
    if (!workers.empty()) ::kill(workers[static_cast<std::size_t>(kills) % workers.size()], kills % 3 == 2 ? SIGABRT : SIGKILL);
  }
  ASSERT_TRUE(daemon.wait_until_ready());
  load.stop();
  const nlohmann::json counts = daemon.model("m")["counts"];
  EXPECT_EQ(counts["ok"], load.answers());
  EXPECT_GE(counts["worker_deaths"], 10u);
  EXPECT_GE(counts["rerun"], 1u);
  EXPECT_EQ(counts["poison"], 0u);
}

TEST_F(Device, WorkersThatAbortInTheThreadOfTheirQueueLoseNothing) {
  // One worker: what was part of its crash runs alone on the next one, whose own crash is 40 runs away. A second worker
  // might be one run before its crash, and its death with a suspect alone in it is POISON, rightly.
  DaemonFixture daemon(settings(",workers=1", "latency_us=500,abort_after=40"));
  Load load(daemon, 4, ask);
  ASSERT_TRUE(eventually([&] { return load.answers() > 250; }, 60s)) << load.answers() << '\n' << daemon.log();
  load.stop();
  const nlohmann::json counts = daemon.model("m")["counts"];
  EXPECT_EQ(counts["ok"], load.answers());
  EXPECT_GE(counts["worker_deaths"], 5u);
  EXPECT_GE(counts["rerun"], 5u);
  EXPECT_EQ(counts["poison"], 0u);
}

TEST_F(Device, ALaneThatWaitsLongIsNotHungButItsRunLimitHolds) {
  DaemonFixture daemon(settings(",run_limit_ms=3000", "latency_us=400000"));  // 0.4 s without a step and without processor time
  Pool pool = daemon.connect();
  const auto outputs = pool.predict("m", {{"data", tensor_of(7)}});
  ASSERT_TRUE(outputs.ok()) << outputs.status().to_string();
  EXPECT_EQ(outputs->front().tensor.values<float>()[0], answer_for(7, 0));
  EXPECT_EQ(daemon.model("m")["counts"]["worker_deaths"], 0u) << daemon.log();

  DaemonFixture impatient(settings(",run_limit_ms=600", "latency_us=2000000"));
  Pool other = impatient.connect();
  const auto late = other.predict("m", {{"data", tensor_of(7)}});
  EXPECT_EQ(late.status().code(), StatusCode::kPoison) << late.status().to_string();
  EXPECT_NE(late.status().message().find("no step within the run limit of 600 ms"), std::string::npos) << late.status().message();
  EXPECT_NE(late.status().message().find("fake device"), std::string::npos) << late.status().message();
}

TEST_F(Device, ACancelledRequestEndsWhileItWaits) {
  DaemonFixture daemon(settings("", "latency_us=100000"));
  Pool pool = daemon.connect();
  Prediction first = pool.submit("m", {{"data", tensor_of(1)}});
  ASSERT_TRUE(eventually([&] {
    first.wait_for(1ms);  // the client sends it
    return daemon.model("m")["workers"][0]["lanes"][0]["waits_for_device"] == true;
  }));
  first.cancel();
  EXPECT_EQ(first.get().status().code(), StatusCode::kCancelled) << first.get().status().to_string();
  const auto next = pool.predict("m", {{"data", tensor_of(2)}});
  ASSERT_TRUE(next.ok()) << next.status().to_string();
  EXPECT_EQ(next->front().tensor.values<float>()[0], answer_for(2, 0));
}

TEST_F(Device, ARefusalAtLoadOrStartOrRunIsAnErrorIfSoConfigured) {
  for (const char* refuse : {"prepare", "open", "activate"}) {
    SCOPED_TRACE(refuse);
    DaemonSettings wanted = settings(",fallback=error", std::string("refuse=") + refuse);
    wanted.wait_until_ready = false;
    DaemonFixture daemon(wanted);
    EXPECT_TRUE(daemon.logs("fake: ")) << daemon.log();
    const auto outputs = daemon.connect().predict("m", {{"data", tensor_of(1)}});
    EXPECT_FALSE(outputs.ok());
    EXPECT_NE(outputs.status().message().find("fake: "), std::string::npos) << outputs.status().to_string();
  }
  DaemonFixture daemon(settings(",fallback=error", "refuse=run"));
  const auto outputs = daemon.connect().predict("m", {{"data", tensor_of(1)}});
  EXPECT_FALSE(outputs.ok());
  EXPECT_NE(outputs.status().message().find("fake: 2 nodes"), std::string::npos) << outputs.status().to_string();
  EXPECT_EQ(daemon.model("m")["counts"]["worker_deaths"], 0u);
}

TEST_F(Device, ARefusalMakesTheCpuDoItAndIsToldIfSoConfigured) {
  for (const char* refuse : {"prepare", "open", "activate", "run"}) {
    SCOPED_TRACE(refuse);
    DaemonFixture daemon(settings("", std::string("refuse=") + refuse));
    Pool pool = daemon.connect();
    for (int i = 0; i < 5; ++i) {
      const auto outputs = pool.predict("m", {{"data", tensor_of(static_cast<float>(i))}});
      ASSERT_TRUE(outputs.ok()) << outputs.status().to_string();
      EXPECT_EQ(outputs->front().tensor.values<float>()[1], answer_for(static_cast<float>(i), 1));
    }
    EXPECT_TRUE(daemon.logs("fake: ")) << daemon.log();
    const bool is_at_load = std::string_view(refuse) == "prepare";
    EXPECT_EQ(daemon.model("m")["workers"][0]["lanes"][0]["fallbacks"] > 0, !is_at_load);
  }
}

}  // namespace
}  // namespace shoal::test
