// The kill test: many clients, random workers killed all the time, every answer exactly once and right.
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <cstdlib>
#include <random>
#include <thread>

#include "tests/support/checkpoint.hpp"
#include "tests/support/pool_fixture.hpp"

namespace shoal::test {
namespace {

constexpr int kClientThreads = 20;

struct KillPlan {
  int model_ms;  ///< processor time of one request
  std::chrono::milliseconds kill_every;
};

std::chrono::seconds duration() { return std::getenv("SHOAL_TEST_LONG") ? std::chrono::seconds(120) : std::chrono::seconds(10); }

class KillTest : public testing::TestWithParam<KillPlan> {};

TEST_P(KillTest, EveryRequestIsAnsweredOnceAndRight) {
  char name[] = "/tmp/shoal-models-XXXXXX";
  const std::filesystem::path models = ::mkdtemp(name);
  write_checkpoint(models, "m",
                   {{"_fault_spin", "spin0", {{"scalar", std::to_string(GetParam().model_ms)}}, {}},
                    {"_mul_scalar", "times3", {{"scalar", "3"}}, {}}},
                   "[-1, 16]");
  DaemonFixture daemon({.models = {"spin=" + models.string() + ",workers=4,timeout_ms=0"}, .worker = "shoal-worker-faulty"});
  Pool pool = daemon.connect();
  ASSERT_TRUE(eventually([&] { return daemon.workers("spin").size() == 4; }));

  std::atomic<bool> is_over{false};
  std::atomic<std::uint64_t> answers{0}, wrong{0}, errors{0}, rerun{0};
  std::vector<std::thread> clients;
  for (int thread = 0; thread < kClientThreads; ++thread) {
    clients.emplace_back([&, thread] {
      for (int i = 0; !is_over; ++i) {
        Tensor tensor = Tensor::create(DType::kFloat32, Shape{1, 16}).value();
        for (std::size_t k = 0; k < 16; ++k)
          tensor.values<float>()[k] = static_cast<float>(thread * 1'000'003 + i * 16 + static_cast<int>(k)) * 0.1f;
        const Prediction prediction = pool.submit("spin", {{"data", tensor}});
        const Outcome& outcome = prediction.outcome();
        ++answers;
        if (outcome.attempts > 1) ++rerun;
        if (!outcome.outputs.ok()) {
          ++errors;
          ADD_FAILURE() << outcome.outputs.status().to_string();
          continue;
        }
        const auto out = outcome.outputs->front().tensor.values<float>();
        for (std::size_t k = 0; k < 16; ++k) {
          if (out[k] != tensor.values<float>()[k] * 3.0f) ++wrong;
        }
      }
    });
  }

  std::mt19937 random(42);
  std::uint64_t kills = 0;
  const auto end = std::chrono::steady_clock::now() + duration();
  for (auto next = std::chrono::steady_clock::now() + GetParam().kill_every; next < end; next += GetParam().kill_every) {
    std::this_thread::sleep_until(next);
    const auto workers = daemon.workers("spin");
    if (!workers.empty() && ::kill(workers[random() % workers.size()], SIGKILL) == 0) ++kills;
  }
  is_over = true;
  for (std::thread& client : clients) client.join();
  ASSERT_TRUE(eventually([&] { return daemon.model("spin")["counts"]["worker_deaths"] >= kills; }));
  const nlohmann::json counts = daemon.model("spin")["counts"];

  const std::uint64_t hits = counts["kills_while_running_and_rerun"];
  std::printf(
      "model %d ms: %llu answers, %llu kills, %llu of them while a request ran that was then run again (%.0f %%), %llu answers "
      "after a re-run, %llu errors, %llu wrong\n",
      GetParam().model_ms, static_cast<unsigned long long>(answers), static_cast<unsigned long long>(kills),
      static_cast<unsigned long long>(hits), kills ? 100.0 * static_cast<double>(hits) / static_cast<double>(kills) : 0.0,
      static_cast<unsigned long long>(rerun), static_cast<unsigned long long>(errors), static_cast<unsigned long long>(wrong));
  EXPECT_EQ(errors, 0u);
  EXPECT_EQ(wrong, 0u);
  EXPECT_EQ(counts["poison"], 0u);
  EXPECT_EQ(counts["admitted"], answers.load());
  EXPECT_EQ(counts["ok"], answers.load());
  EXPECT_GE(static_cast<double>(hits), 0.6 * static_cast<double>(kills));
  std::filesystem::remove_all(models);
}

INSTANTIATE_TEST_SUITE_P(, KillTest,
                         testing::Values(KillPlan{5, std::chrono::milliseconds(100)}, KillPlan{200, std::chrono::seconds(1)}),
                         [](const auto& plan) { return "ModelOf" + std::to_string(plan.param.model_ms) + "Ms"; });

}  // namespace
}  // namespace shoal::test
