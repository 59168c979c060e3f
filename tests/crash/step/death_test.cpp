// A worker that was sent SIGKILL is not dead yet. Its requests stay with it until its pidfd is readable.
#include <gtest/gtest.h>
#include <signal.h>

#include <thread>

#include "tests/crash/step/tracee.hpp"
#include "tests/support/pool_fixture.hpp"

namespace shoal::test {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;

// ptrace holds the victim's lane at the end of its exit: it runs no more instructions of its program, and the kernel has not
// released it.
TEST(Death, IsBelievedWhenThePidfdSaysSoAndNotBefore) {
  const DaemonFixture daemon({.models = {"echo=builtin:identity,workers=2"}});
  Pool pool = daemon.connect();
  for (int warm = 0; warm < 4; ++warm) ASSERT_TRUE(pool.predict("echo", {{"data", counting({64})}}).ok());
  std::vector<Prediction> held;
  const auto holder = [&] {
    json found;
    const json model = daemon.model();
    for (const json& worker : model.at("workers")) {
      if (worker.at("held") > 0) found = worker;
    }
    return found;
  };
  for (const pid_t worker : daemon.workers()) stop_process(worker);
  held.push_back(pool.submit("echo", {{"data", counting({64}, 7)}}));
  ASSERT_TRUE(eventually([&] { return holder().is_object(); }));
  const json victim = holder();
  const pid_t pid = victim.at("pid");
  for (const pid_t worker : daemon.workers()) {
    if (worker != pid) ::kill(worker, SIGCONT);
  }
  {
    const ExitHold hold(victim.at("lanes").at(0).at("thread_id").get<pid_t>());
    ::kill(pid, SIGKILL);
    ASSERT_TRUE(hold.wait()) << "the victim does not get to its exit";
    EXPECT_FALSE(held[0].wait_for(1s)) << "run again while its first worker was not dead";
    const json counts = daemon.model().at("counts");
    EXPECT_EQ(counts.at("worker_deaths"), 0) << "a death nobody reported";
    EXPECT_EQ(counts.at("rerun"), 0);
  }
  ASSERT_TRUE(held[0].wait_for(10s));
  ASSERT_TRUE(held[0].get().ok()) << held[0].get().status().to_string();
  EXPECT_EQ(held[0].get()->front().tensor.values<float>()[63], 70);
  EXPECT_EQ(held[0].outcome().attempts, 1);  // it had not begun when the worker was stopped
}

}  // namespace
}  // namespace shoal::test
