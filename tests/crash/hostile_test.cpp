// Zygotes and workers that send anything at any time (tests/support/hostile_worker.cpp), beside a model that must not notice.
//
//   SHOAL_HOSTILE_SEED   the first seed; default 1
//   SHOAL_TEST_LONG=1    ten minutes of seeds; else some seconds
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include "tests/support/child_process.hpp"
#include "tests/support/pool_fixture.hpp"
#include "tests/support/says.hpp"

namespace shoal::test {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr int kHostileModels = 4;   // at once
constexpr auto kDaemonLives = 4s;   // then other seeds
constexpr auto kAnswerLimit = 20s;  // of the honest model; far above what a busy machine needs

std::uint64_t first_seed() {
  const char* seed = std::getenv("SHOAL_HOSTILE_SEED");
  return seed ? std::strtoull(seed, nullptr, 10) : 1;
}

Clock::duration whole_time() { return std::getenv("SHOAL_TEST_LONG") ? Clock::duration(10min) : Clock::duration(14s); }

std::string text_of(const nlohmann::json& model) { return model.is_object() ? model.dump() : "unknown"; }

/// One daemon with an honest model and hostile ones of these seeds.
class Round {
 public:
  Round(std::uint64_t seed, pid_t bystander)
      : seed_(seed),
        daemon_({.models = models(seed),
                 .worker = "shoal-worker-hostile",
                 .wait_until_ready = false,
                 .environment = {"SHOAL_HOSTILE_BYSTANDER=" + std::to_string(bystander)}}) {}

  void run() {
    SCOPED_TRACE("seeds from " + std::to_string(seed_));
    ASSERT_TRUE(eventually([&] { return daemon_.workers("echo").size() == 2; }, 20s));
    const auto echo_workers = daemon_.workers("echo");
    const pid_t echo_zygote = daemon_.zygote("echo");
    Pool pool = daemon_.connect();
    std::vector<Prediction> asked;
    float number = 0;
    for (const auto end = Clock::now() + kDaemonLives; Clock::now() < end && !testing::Test::HasFailure();) {
      for (int i = 0; i < kHostileModels && asked.size() < 2000; ++i)
        asked.push_back(
            pool.submit(name(seed_ + static_cast<std::uint64_t>(i)), {{"data", counting({4}, number)}}, {.timeout = 2s}));
      ask_the_honest(pool, ++number);
      ASSERT_TRUE(is_alive(daemon_.pid()));
    }
    for (const Prediction& prediction : asked) EXPECT_TRUE(prediction.wait_for(kAnswerLimit)) << "a request without an answer";
    EXPECT_EQ(daemon_.workers("echo"), echo_workers) << "a worker of another model was ended";
    EXPECT_EQ(daemon_.zygote("echo"), echo_zygote) << "a zygote of another model was ended";
    for (int i = 0; i < kHostileModels; ++i) expect_contained(daemon_.model(name(seed_ + static_cast<std::uint64_t>(i))));
  }

 private:
  static std::string name(std::uint64_t seed) { return "hostile" + std::to_string(seed); }
  static std::vector<std::string> models(std::uint64_t seed) {
    std::vector<std::string> models = {"echo=builtin:identity,workers=2"};
    for (int i = 0; i < kHostileModels; ++i)
      models.push_back(name(seed + static_cast<std::uint64_t>(i)) + "=builtin:identity,workers=2,contexts=2,queue_limit=64");
    return models;
  }

  void ask_the_honest(Pool& pool, float number) {
    const Prediction prediction = pool.submit("echo", {{"data", counting({16}, number)}});
    ASSERT_TRUE(prediction.wait_for(kAnswerLimit)) << "the honest model stands still";
    const auto& outputs = prediction.get();
    ASSERT_TRUE(outputs.ok()) << outputs.status().to_string();
    const Tensor sent = counting({16}, number);
    EXPECT_TRUE(std::ranges::equal(outputs->front().tensor.values<float>(), sent.values<float>()));
  }

  // It has failed with a reason, or goes on being tried; what was started in these seconds is bounded by the back-off.
  void expect_contained(const nlohmann::json& model) {
    ASSERT_TRUE(model.is_object());
    const std::string state = model.at("state").get<std::string>();
    EXPECT_TRUE(state == "failed" || state == "loading" || state == "ready" || state == "resting") << text_of(model);
    EXPECT_TRUE(state != "failed" || !model.at("reason").get<std::string>().empty()) << text_of(model);
  }

  std::uint64_t seed_;
  DaemonFixture daemon_;
};

TEST(Hostile, ZygotesAndWorkersThatSendAnythingHarmNobodyElse) {
  const pid_t bystander = start_child([] { return ::pause(); });
  std::uint64_t seed = first_seed();
  int rounds = 0;
  for (const auto end = Clock::now() + whole_time(); Clock::now() < end && !HasFailure(); seed += kHostileModels, ++rounds)
    Round(seed, bystander).run();
  std::printf("%d rounds, seeds %llu to %llu\n", rounds, static_cast<unsigned long long>(first_seed()),
              static_cast<unsigned long long>(seed - 1));
  EXPECT_TRUE(is_alive(bystander)) << "a stranger was killed";
  ::kill(bystander, SIGTERM);
  EXPECT_EQ(exit_code_of(bystander), 128 + SIGTERM);
}

// A zygote, and what it forks, may bind any name in the directory, so the names of others must not be known to it.
TEST(Hostile, AWorkerThatBindsTheNamesOfOthersKeepsNoneFromComing) {
  const DaemonFixture daemon({.models = {"echo=builtin:identity", "hostile-squatter=builtin:identity"},
                              .worker = "shoal-worker-hostile",
                              .wait_until_ready = false});
  ASSERT_TRUE(eventually([&] { return daemon.workers("echo").size() == 1 && daemon.workers("hostile-squatter").size() == 1; }));
  Pool pool = daemon.connect();
  ASSERT_TRUE(pool.predict("echo", {{"data", counting({4})}}).ok());
  for (int i = 0; i < 5; ++i) {
    const auto workers = daemon.workers("echo");
    ASSERT_EQ(workers.size(), 1u);
    ::kill(workers.front(), SIGKILL);
    const auto outputs = pool.predict("echo", {{"data", counting({4})}}, {.timeout = 5s});
    ASSERT_TRUE(outputs.ok()) << outputs.status().to_string() << daemon.log();
    ASSERT_TRUE(eventually([&] { return daemon.workers("echo").size() == 1; }));
  }
}

TEST(Hostile, AWorkerThatSaysWhatItMayNotIsKilled) {
  constexpr const char* kOfNone = "belong to no request that they hold";
  for (const auto& [name, why] :
       {std::pair("hostile-babbler", kOfNone), {"hostile-parker", kOfNone}, {"hostile-inventor", "a status of number 999"}}) {
    const DaemonFixture daemon({.models = {"echo=builtin:identity", std::string(name) + "=builtin:identity"},
                                .worker = "shoal-worker-hostile",
                                .wait_until_ready = false});
    EXPECT_TRUE(eventually([&, why = why] { return contains(daemon.log(), why); })) << daemon.log();
    Pool pool = daemon.connect();
    const auto outputs = pool.predict("echo", {{"data", counting({4})}}, {.timeout = 5s});
    EXPECT_TRUE(outputs.ok()) << outputs.status().to_string();
  }
}

}  // namespace
}  // namespace shoal::test
