// A worker dies while it answers a probe, for a resting model or for a version that is being loaded.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "tests/support/checkpoint.hpp"
#include "tests/support/notify_socket.hpp"
#include "tests/support/pool_fixture.hpp"
#include "tests/support/scratch_directory.hpp"

namespace shoal::test {
namespace {

using namespace std::chrono_literals;

constexpr float kTrigger = 666;

/// A model that answers after 300 ms. The trigger crashes its worker 100 ms later, when no request can be blamed.
class Probe : public testing::Test {
 protected:
  Probe() {
    write_checkpoint(models_.path(), "m",
                     {{"_fault_slow", "slow", {{"scalar", "300"}}, {}}, {"_fault_later", "later", {{"scalar", "666"}}, {}}},
                     "[1, 4]");
  }
  DaemonSettings settings() const {
    return {.models = {"m=" + models_.path() + ",tuning_ms=0,device=cpu-reference"}, .worker = "shoal-worker-faulty"};
  }
  static Result<Tensors> ask(Pool& pool, float first = 1) { return pool.predict("m", {{"data", counting({1, 4}, first)}}); }
  static std::string breaker(const DaemonFixture& daemon) { return daemon.model("m")["breaker"]["state"]; }

  const ScratchDirectory models_;
};

TEST_F(Probe, AKilledOneIsFollowedByAnotherUntilTheModelServesAgain) {
  const NotifySocket manager(models_.path("notify"));
  DaemonSettings notifying = settings();
  notifying.environment = {"NOTIFY_SOCKET=" + models_.path("notify")};
  DaemonFixture daemon(notifying);
  Pool pool = daemon.connect();
  for (std::uint64_t deaths = 0; breaker(daemon) == "closed" && deaths < 10; ++deaths) {
    EXPECT_TRUE(ask(pool, kTrigger).ok());
    ASSERT_TRUE(eventually([&] { return daemon.model("m")["counts"]["worker_deaths"] > deaths; })) << daemon.model("m");
  }
  std::string seen;
  EXPECT_TRUE(manager.hears("STATUS=0 models are served; m: resting: ", seen)) << seen;
  for (int death = 0; death < 2; ++death) {
    ASSERT_TRUE(eventually([&] { return breaker(daemon) == "probing"; }, 60s)) << daemon.model("m");
    const auto workers = daemon.workers("m");
    ASSERT_FALSE(workers.empty());
    for (const pid_t worker : workers) ::kill(worker, SIGKILL);
    const auto refused = ask(pool);
    EXPECT_EQ(refused.status().code(), StatusCode::kUnavailable) << "nobody has answered a probe";
    EXPECT_NE(refused.status().message().find("resting"), std::string::npos) << refused.status().to_string();
    ASSERT_TRUE(eventually([&] {
      const auto others = daemon.workers("m");
      return !others.empty() && others != workers;
    }));
  }
  ASSERT_TRUE(eventually([&] { return breaker(daemon) == "closed"; }, 60s)) << daemon.model("m");
  EXPECT_TRUE(manager.hears("STATUS=1 models are served", seen)) << seen;
  EXPECT_TRUE(ask(pool).ok());
  EXPECT_EQ(daemon.model("m")["counts"]["poison"], 0);
}

TEST_F(Probe, AStoppedOneIsNoticedWithinASecondAndFollowedByAnother) {
  DaemonFixture daemon(settings());
  Pool pool = daemon.connect();
  for (std::uint64_t deaths = 0; breaker(daemon) == "closed" && deaths < 10; ++deaths) {
    EXPECT_TRUE(ask(pool, kTrigger).ok());
    ASSERT_TRUE(eventually([&] { return daemon.model("m")["counts"]["worker_deaths"] > deaths; })) << daemon.model("m");
  }
  ASSERT_TRUE(eventually([&] { return breaker(daemon) == "probing"; }, 60s)) << daemon.model("m");
  const pid_t prober = daemon.workers("m").at(0);
  stop_process(prober);
  EXPECT_TRUE(eventually([&] { return !is_alive(prober); }, 1s)) << daemon.log();
  ASSERT_TRUE(eventually([&] { return breaker(daemon) == "closed"; }, 60s)) << daemon.model("m");
  EXPECT_TRUE(ask(pool).ok());
}

TEST_F(Probe, AVersionWhoseWorkerIsKilledInItServesNobodyAndTheOldOneDoes) {
  DaemonFixture daemon(settings());
  Pool pool = daemon.connect();
  const auto old = daemon.workers("m");
  Result<ModelChange> changed = Status();
  {
    const std::jthread admin([&] {
      Pool other = daemon.connect();
      changed = other.reload("m", "", true);
    });
    const auto coming = [&] {
      std::vector<pid_t> pids;
      const auto stats = daemon.stats();
      for (const auto& version : stats["models"]) {
        for (const auto& worker : version["workers"]) {
          if (version["state"] == "loading" && worker["state"] == "ready") pids.push_back(worker["pid"]);
        }
      }
      return pids;
    };
    ASSERT_TRUE(eventually([&] { return !coming().empty(); })) << daemon.stats();
    for (const pid_t worker : coming()) ::kill(worker, SIGKILL);
    EXPECT_TRUE(ask(pool).ok());
  }
  EXPECT_EQ(changed.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(changed.status().message().find("probe"), std::string::npos) << changed.status().to_string();
  EXPECT_EQ(daemon.workers("m"), old);
  EXPECT_TRUE(ask(pool).ok());
  EXPECT_TRUE(eventually([&] { return daemon.all_processes().size() == 3; })) << "nothing of the new one stays";
  ASSERT_TRUE(pool.reload("m", "", true).ok());
  EXPECT_NE(daemon.workers("m"), old);
  EXPECT_TRUE(ask(pool).ok());
}

}  // namespace
}  // namespace shoal::test
