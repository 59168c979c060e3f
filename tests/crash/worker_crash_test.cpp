// Requests that crash their worker, and how others are affected.
#include <gtest/gtest.h>

#include <signal.h>

#include <algorithm>
#include <fstream>
#include <map>

#include "shm/wire/control.hpp"
#include "tests/support/checkpoint.hpp"
#include "tests/support/pool_fixture.hpp"
#include "tests/support/scratch_directory.hpp"

namespace shoal::test {
namespace {

constexpr float kTrigger = 666;

Tensor tensor_of(std::vector<float> values) {
  Tensor tensor = Tensor::create(DType::kFloat32, Shape{1, static_cast<std::int64_t>(values.size())}).value();
  std::ranges::copy(values, tensor.values<float>().begin());
  return tensor;
}

std::vector<float> values_of(const Result<Tensors>& outputs) {
  if (!outputs.ok()) {
    ADD_FAILURE() << outputs.status().to_string();
    return {};
  }
  const auto values = outputs->front().tensor.values<float>();
  return {values.begin(), values.end()};
}

/// Models of one faulty operator and a multiplication by 3.
class WorkerCrash : public testing::Test {
 protected:
  std::string model(const std::string& op, std::map<std::string, std::vector<float>> weights = {}) {
    write_checkpoint(models_.path(op), "m",
                     {{op, "bad0", {{"scalar", "666"}}, std::move(weights)}, {"_mul_scalar", "times3", {{"scalar", "3"}}, {}}},
                     "[-1, 4]");
    return "bad=" + models_.path(op);
  }

  const ScratchDirectory models_;
};

TEST_F(WorkerCrash, ARequestThatAbortsItsWorkerIsPoisonAfterTwoAttemptsAndItsNeighborsAreAnswered) {
  DaemonFixture daemon({.models = {model("_fault_abort") + ",contexts=3"}, .worker = "shoal-worker-faulty"});
  Pool pool = daemon.connect();
  std::vector<Prediction> neighbors;
  const auto submit_neighbors = [&](float first) {
    for (int i = 0; i < 20; ++i)
      neighbors.push_back(pool.submit("bad", {{"data", tensor_of({first + static_cast<float>(i), 1, 2, 3})}}));
  };
  submit_neighbors(0);
  const Prediction guilty = pool.submit("bad", {{"data", tensor_of({kTrigger, 1, 2, 3})}});
  submit_neighbors(100);

  EXPECT_EQ(guilty.outcome().outputs.status().code(), StatusCode::kPoison) << guilty.get().status().to_string();
  EXPECT_EQ(guilty.outcome().attempts, 2);
  EXPECT_NE(guilty.get().status().message().find("_fault_abort 'bad0'"), std::string::npos) << guilty.get().status().message();
  for (std::size_t i = 0; i < neighbors.size(); ++i) {
    const float first = static_cast<float>(i < 20 ? i : 100 + i - 20);
    EXPECT_EQ(values_of(neighbors[i].get()), (std::vector<float>{first * 3, 3, 6, 9})) << i;
  }
  EXPECT_EQ(daemon.model("bad")["counts"]["worker_deaths"], 2u);
}

TEST_F(WorkerCrash, WithoutEvidenceARequestIsAbortedAfterTenAttempts) {
  DaemonFixture daemon({.models = {model("_fault_kill")}, .worker = "shoal-worker-faulty"});
  Pool pool = daemon.connect();
  EXPECT_EQ(values_of(pool.predict("bad", {{"data", tensor_of({1, 1, 2, 3})}})), (std::vector<float>{3, 3, 6, 9}));
  const Prediction guilty = pool.submit("bad", {{"data", tensor_of({kTrigger, 1, 2, 3})}});
  EXPECT_EQ(guilty.outcome().outputs.status().code(), StatusCode::kAborted) << guilty.get().status().to_string();
  EXPECT_EQ(guilty.outcome().attempts, 10);
  EXPECT_EQ(values_of(pool.predict("bad", {{"data", tensor_of({2, 1, 2, 3})}})), (std::vector<float>{6, 3, 6, 9}));
}

TEST_F(WorkerCrash, AStackOverflowLeavesEvidenceToo) {
  DaemonFixture daemon({.models = {model("_fault_overflow")}, .worker = "shoal-worker-faulty"});
  Pool pool = daemon.connect();
  const Prediction guilty = pool.submit("bad", {{"data", tensor_of({kTrigger, 1, 2, 3})}});
  EXPECT_EQ(guilty.outcome().outputs.status().code(), StatusCode::kPoison) << guilty.get().status().to_string();
}

TEST_F(WorkerCrash, AWorkerThatSaysWhatNoWorkerSaysIsEnded) {
  DaemonFixture daemon({.models = {model("_fault_flood"), "echo=builtin:identity"}, .worker = "shoal-worker-faulty"});
  Pool pool = daemon.connect();
  for (const auto kind : {wire::ControlKind::kForked, wire::ControlKind::kReady}) {
    const Prediction mad = pool.submit("bad", {{"data", tensor_of({kTrigger, static_cast<float>(kind), 2, 3})}});
    ASSERT_TRUE(mad.wait_for(std::chrono::seconds(20)));
    EXPECT_EQ(mad.get().status().code(), StatusCode::kAborted) << mad.get().status().to_string();
  }
  EXPECT_NE(daemon.log().find("a message of kind 14"), std::string::npos) << daemon.log();
  EXPECT_TRUE(pool.predict("echo", {{"data", counting({4})}}).ok());
}

// The supervisor must believe nothing that a worker writes to its status page.
TEST_F(WorkerCrash, AWorkerThatWritesOverItsStatusPageHarmsNobodyElse) {
  DaemonFixture daemon(
      {.models = {model("_fault_page") + ",contexts=2", "echo=builtin:identity"}, .worker = "shoal-worker-faulty"});
  Pool pool = daemon.connect();
  ASSERT_TRUE(eventually([&] { return !daemon.workers("bad").empty(); }));
  for (int round = 0; round < 3; ++round) {
    const pid_t before = daemon.workers("bad").at(0);
    std::vector<Prediction> others;
    const Prediction mad = pool.submit("bad", {{"data", tensor_of({kTrigger, 1, 2, 3})}});
    for (int i = 0; i < 100; ++i) others.push_back(pool.submit("bad", {{"data", tensor_of({static_cast<float>(i), 1, 2, 3})}}));
    if (round > 0) ::kill(before, SIGKILL);  // the evidence about its requests is garbage
    ASSERT_TRUE(mad.wait_for(std::chrono::seconds(20)));
    EXPECT_TRUE(mad.get().ok()) << mad.get().status().to_string();
    for (int i = 0; i < 100; ++i)
      EXPECT_EQ(values_of(others[i].get()), (std::vector<float>{3.0f * static_cast<float>(i), 3, 6, 9})) << i;
    EXPECT_TRUE(pool.predict("echo", {{"data", counting({4})}}).ok());
    EXPECT_TRUE(nlohmann::json::parse(pool.crashes().value()).is_object());
    EXPECT_TRUE(nlohmann::json::parse(pool.trace("bad").value().description).is_object());
    ASSERT_TRUE(eventually([&] { return daemon.workers("bad").size() == 1; }));
  }
  EXPECT_EQ(daemon.model("bad").at("counts").at("poison"), 0u);
  const auto crashes = nlohmann::json::parse(pool.crashes("bad").value());
  for (const auto& death : crashes.at("crashes"))
    EXPECT_LT(death.at("answered").get<std::uint64_t>(), 1000u) << "of what the supervisor saw itself";
}

TEST_F(WorkerCrash, HowAWorkerEndedIsToldApart) {
  const auto cause_of = [&](const std::string& op) {
    DaemonFixture daemon({.models = {model(op)}, .worker = "shoal-worker-faulty"});
    Pool pool = daemon.connect();
    const Prediction guilty = pool.submit("bad", {{"data", tensor_of({kTrigger, 7, 2, 3})}});
    EXPECT_TRUE(guilty.wait_for(std::chrono::seconds(20)));
    EXPECT_FALSE(guilty.get().ok());
    EXPECT_EQ(values_of(pool.predict("bad", {{"data", tensor_of({1, 1, 2, 3})}})), (std::vector<float>{3, 3, 6, 9}));
    std::map<std::string, int> causes;
    EXPECT_TRUE(eventually([&] {
      causes.clear();
      const auto deaths = nlohmann::json::parse(pool.crashes("bad").value()).at("crashes");
      for (const auto& death : deaths) ++causes[death.at("cause").get<std::string>() + ", " + death.at("how").get<std::string>()];
      return causes.size() == 1;
    }));
    return causes.begin()->first;
  };
  EXPECT_EQ(cause_of("_fault_exit"), "exited, exited with 7");
  EXPECT_EQ(cause_of("_fault_throw"), "exception, killed by signal 6");
  EXPECT_EQ(cause_of("_fault_kill"), "killed, killed by signal 9");
}

// By default the kernel dumps memfds, too: gigabytes of weights, and the data of clients.
TEST_F(WorkerCrash, ACoreDumpHoldsNeitherWeightsNorArenas) {
  DaemonFixture daemon;
  std::vector<pid_t> pids = daemon.workers();
  ASSERT_FALSE(pids.empty());
  pids.push_back(daemon.zygote());
  for (const pid_t pid : pids) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/coredump_filter");
    unsigned filter = 0;
    ASSERT_TRUE(file >> std::hex >> filter);
    EXPECT_EQ(filter, 0x31u) << "private memory, huge pages of it, and ELF headers";
  }
}

TEST_F(WorkerCrash, AStrayWriteToTheWeightsKillsThatWorkerOnlyAndTheRecordNamesIt) {
  const std::vector<float> weight{1, 2, 3, 4};
  DaemonFixture daemon(
      {.models = {model("_fault_write_weight", {{"w", weight}}) + ",workers=3"}, .worker = "shoal-worker-faulty"});
  Pool pool = daemon.connect();
  ASSERT_TRUE(eventually([&] { return daemon.workers("bad").size() == 3; }));
  const auto before = daemon.workers("bad");
  const Prediction guilty = pool.submit("bad", {{"data", tensor_of({kTrigger, 1, 2, 3})}});
  std::vector<Prediction> others;
  for (int i = 0; i < 50; ++i) others.push_back(pool.submit("bad", {{"data", tensor_of({static_cast<float>(i), 1, 2, 3})}}));
  const Status status = guilty.get().status();
  EXPECT_EQ(status.code(), StatusCode::kPoison);
  EXPECT_NE(status.message().find("_fault_write_weight 'bad0'"), std::string::npos) << status.message();
  for (int i = 0; i < 50; ++i) EXPECT_EQ(values_of(others[i].get()), (std::vector<float>{3.0f * static_cast<float>(i), 3, 6, 9}));

  ASSERT_TRUE(eventually([&] { return daemon.workers("bad").size() == 3; }));
  const auto after = daemon.workers("bad");
  EXPECT_GE(std::ranges::count_if(before, [&](pid_t pid) { return std::ranges::count(after, pid) > 0; }), 1);
  EXPECT_EQ(daemon.model("bad")["counts"]["worker_deaths"], 2u);  // one for each attempt
  const std::string log = daemon.log();
  const auto record = log.find("cause=crash");
  ASSERT_NE(record, std::string::npos) << log;
  EXPECT_NE(log.find("signal 11 (code 2) at address 0x", record), std::string::npos)
      << log;  // SEGV_ACCERR: mapped, but not for writing
  EXPECT_NE(log.find("in _fault_write_weight 'bad0'", record), std::string::npos) << log;
}

}  // namespace
}  // namespace shoal::test
