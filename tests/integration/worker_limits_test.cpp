// Limits of a running request: it ends when it is cancelled, and it gets no more memory than its worker may use.
#include <gtest/gtest.h>

#include "tests/support/checkpoint.hpp"
#include "tests/support/pool_fixture.hpp"
#include "tests/support/scratch_directory.hpp"

namespace shoal::test {
namespace {

class WorkerLimits : public testing::Test {
 protected:
  /// Returns the daemon's --model argument for a chain of these nodes.
  std::string model(const std::string& name, const std::vector<ChainNode>& chain) const {
    write_checkpoint(models_.path(name), "m", chain, "[-1, -1]");
    return name + "=" + models_.path(name) + ",shape=data:1x4,tuning_ms=0";
  }

  const ScratchDirectory models_;
};

TEST_F(WorkerLimits, ACancelledRequestEndsAtItsNextStep) {
  constexpr std::uint64_t kSteps = 100;
  std::vector<ChainNode> chain;
  for (std::uint64_t i = 0; i < kSteps; ++i) chain.push_back({"_fault_slow", "s" + std::to_string(i), {{"scalar", "50"}}, {}});
  const DaemonFixture daemon({.models = {model("slow", chain)}, .worker = "shoal-worker-faulty"});
  const auto lane = [&] { return daemon.model("slow").at("workers").at(0).at("lanes").at(0); };
  Pool pool = daemon.connect();
  ASSERT_TRUE(pool.describe("slow").ok());
  Prediction given_up = pool.submit("slow", {{"data", counting({1, 4})}});
  ASSERT_TRUE(eventually([&] { return lane().at("steps").get<std::uint64_t>() >= 2; }));
  given_up.cancel();
  EXPECT_EQ(given_up.get().status().code(), StatusCode::kCancelled);
  ASSERT_TRUE(eventually([&] { return lane().at("completed").get<std::uint64_t>() == 1; }));
  EXPECT_LT(lane().at("steps").get<std::uint64_t>(), kSteps);
  EXPECT_EQ(daemon.model("slow")["counts"]["worker_deaths"], 0u);
}

TEST_F(WorkerLimits, ARequestThatNeedsMoreMemoryThanThereIsHearsOfTheLimitAndOthersAreServed) {
  const std::vector<ChainNode> chain = {
      {"_mul_scalar", "a", {{"scalar", "2"}}, {}}, {"softmax", "b", {}, {}}, {"_mul_scalar", "c", {{"scalar", "3"}}, {}}};
  const DaemonFixture daemon({.models = {model("net", chain) + ",memory_mb=32,device=cpu-reference"}});
  Pool pool = daemon.connect();
  EXPECT_TRUE(pool.predict("net", {{"data", counting({1, 1000})}}).ok());
  const Status large = pool.predict("net", {{"data", counting({1, 16'000'000})}}).status();  // 64 MB between two steps
  EXPECT_EQ(large.code(), StatusCode::kFailedPrecondition) << large.to_string();
  EXPECT_NE(large.message().find("out of memory"), std::string::npos) << large.message();
  EXPECT_NE(large.message().find("32 MiB"), std::string::npos) << large.message();
  EXPECT_NE(large.message().find("memory_mb"), std::string::npos) << large.message();
  EXPECT_TRUE(pool.predict("net", {{"data", counting({1, 1000})}}).ok());
  EXPECT_EQ(daemon.model("net")["counts"]["worker_deaths"], 0u);
}

// A lane that finds no memory for a message dies.
TEST_F(WorkerLimits, AMessageThatALaneMayHaveNoMemoryForIsRefused) {
  const DaemonFixture daemon({.models = {"echo=builtin:identity,memory_mb=64,contexts=2"}});
  Pool pool = daemon.connect({.arena_limit_bytes = 4096});
  const auto predict = [&](std::int64_t mib) {
    return pool.predict("echo", {{"data", counting({mib << 18})}}, {.timeout = std::chrono::seconds(10)}).status();
  };
  for (const std::int64_t mib : {5, 28, 100}) {
    const Status large = predict(mib);
    EXPECT_EQ(large.code(), StatusCode::kInvalidArgument) << large.to_string();
    EXPECT_NE(large.message().find("may bring 4194304 (an eighth of memory_mb"), std::string::npos) << large.message();
  }
  EXPECT_TRUE(predict(4).ok());
  EXPECT_EQ(daemon.model("echo")["counts"]["worker_deaths"], 0u);
}

/// A model whose worker may take 64 MiB, and the largest request that finds memory there: while it runs, none is left. Another
/// client sends tensors in messages.
class FullWorker : public WorkerLimits {
 protected:
  static constexpr std::int64_t kLongestMessageMib = 8;

  static Tensors input(std::int64_t mib) { return {{"data", counting({1, mib << 18})}}; }
  void SetUp() override {
    ASSERT_TRUE(pool_.predict("net", input(1)).ok());
    while (most_mib_ > 1 && !pool_.predict("net", input(most_mib_)).ok()) most_mib_ -= 2;
    ASSERT_EQ(deaths(), 0u);
  }
  nlohmann::json lane() const { return daemon_.model("net").at("workers").at(0).at("lanes").at(0); }
  unsigned deaths() const { return daemon_.model("net")["counts"]["worker_deaths"].get<unsigned>(); }

  // Long, so that it takes some time, with a short output, which does not count.
  static std::vector<ChainNode> chain() {
    std::vector<ChainNode> nodes;
    for (int i = 0; i < 8; ++i) nodes.push_back({"softmax", "s" + std::to_string(i), {}, {}});
    nodes.push_back({"sum", "total", {{"axis", "1"}, {"keepdims", "1"}}, {}});
    return nodes;
  }

  const DaemonFixture daemon_{{.models = {model("net", chain()) + ",memory_mb=64,device=cpu-reference"}}};
  Pool pool_ = daemon_.connect(), other_ = daemon_.connect({.arena_limit_bytes = 4096});
  std::int64_t most_mib_ = 62;
};

TEST_F(FullWorker, HasMemoryToReceiveWhenItIsIdle) {
  ASSERT_TRUE(pool_.predict("net", input(most_mib_)).ok());
  for (int i = 0; i < 3; ++i) {
    const Status longest = other_.predict("net", input(kLongestMessageMib)).status();
    EXPECT_TRUE(longest.ok()) << longest.to_string();
  }
  EXPECT_EQ(deaths(), 0u);
}

// The connection is cut while the first request runs, so its answer is lost, too.
TEST_F(FullWorker, EndsWithTheReasonAsSoonAsItCannotReceiveAndBothRequestsRunAgain) {
  const auto steps = [&] { return lane().at("steps").get<std::uint64_t>(); };
  const std::uint64_t before = steps();
  Prediction first = pool_.submit("net", input(most_mib_));
  ASSERT_TRUE(eventually([&] { return pool_.poll_once(), steps() > before + 1; }));
  Prediction second = other_.submit("net", input(kLongestMessageMib));
  EXPECT_TRUE(second.get().ok()) << second.get().status().to_string();
  EXPECT_TRUE(first.get().ok()) << first.get().status().to_string();
  EXPECT_EQ(deaths(), 1u);
  const auto crashes = nlohmann::json::parse(pool_.crashes("net").value()).at("crashes");
  ASSERT_EQ(crashes.size(), 1u);
  EXPECT_EQ(crashes[0].at("cause"), "out_of_memory") << crashes[0];
}

// The size of its output is not known before the first answer, so that one is copied into a message.
TEST_F(WorkerLimits, AnAnswerThatFindsNoMemoryOnItsWayIsAnErrorAndNoDeath) {
  const DaemonFixture daemon({.models = {"echo=builtin:identity,memory_mb=64"}});
  Pool pool = daemon.connect();
  const Status large = pool.predict("echo", {{"data", counting({10'000'000})}}, {.timeout = std::chrono::seconds(10)}).status();
  EXPECT_EQ(large.code(), StatusCode::kFailedPrecondition) << large.to_string();
  EXPECT_NE(large.message().find("memory_mb"), std::string::npos) << large.message();
  EXPECT_TRUE(pool.predict("echo", {{"data", counting({100})}}).ok());
  EXPECT_EQ(daemon.model("echo")["counts"]["worker_deaths"], 0u);
}

TEST_F(WorkerLimits, AWorkerThatLeaksIsReplacedAndItsRequestsAreAnswered) {
  const DaemonFixture daemon({.models = {model("leak", {{"_fault_leak", "l", {{"scalar", "8"}}, {}}}) + ",memory_mb=64"},
                              .worker = "shoal-worker-faulty"});
  Pool pool = daemon.connect();
  for (int i = 0; i < 25; ++i) {
    const auto outputs = pool.predict("leak", {{"data", counting({1, 4}, static_cast<float>(i))}});
    ASSERT_TRUE(outputs.ok()) << i << ": " << outputs.status().to_string();
    EXPECT_EQ(outputs->front().tensor.values<float>()[0], static_cast<float>(i));
  }
  const auto deaths = daemon.model("leak")["counts"]["worker_deaths"].get<int>();
  EXPECT_GE(deaths, 2);  // 8 MiB each time, 64 in all
  EXPECT_LE(deaths, 5);
  const auto crashes = nlohmann::json::parse(pool.crashes("leak").value());
  EXPECT_EQ(crashes.at("crashes").size(), static_cast<std::size_t>(deaths));
  for (const auto& death : crashes.at("crashes")) {
    EXPECT_EQ(death.at("cause"), "out_of_memory") << death;
    EXPECT_FALSE(death.at("crash").at("stack").empty()) << death;
  }
}

}  // namespace
}  // namespace shoal::test
