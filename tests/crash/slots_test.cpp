// A slot of an arena may be used again when the run has ended, not when the answer has come.
#include <gtest/gtest.h>
#include <signal.h>

#include "tests/support/pool_fixture.hpp"

namespace shoal::test {
namespace {

using namespace std::chrono_literals;

/// The address of the answer. The arena is mapped once, so the address identifies the slot.
const std::byte* place_of(const Prediction& prediction) {
  const auto& outputs = prediction.get();
  if (!outputs.ok()) return nullptr;
  return outputs->front().tensor.view().data;
}

/// The worker that holds a request; 0 when none does.
pid_t holder_in(const nlohmann::json& model) {
  for (const auto& worker : model.at("workers")) {
    if (worker.at("held") > 0) return worker.at("pid");
  }
  return 0;
}

// Returns false when the supervisor ended the stopped worker during the round. Then its run has ended, and the round proves
// nothing.
bool run_round(const DaemonFixture& daemon, Pool& pool) {
  const auto submit = [&](float first, std::chrono::nanoseconds timeout) {
    return pool.submit("echo", {{"data", counting({64}, first)}}, {.timeout = timeout});
  };
  const std::byte* const first_slot = place_of(submit(0, 0ns));
  EXPECT_NE(first_slot, nullptr);
  const auto workers = daemon.workers();
  const std::uint64_t deaths = daemon.model().at("counts").at("worker_deaths");
  for (const pid_t worker : workers) stop_process(worker);
  const Prediction expired = submit(100, 10ms);
  EXPECT_EQ(expired.get().status().code(), StatusCode::kDeadlineExceeded) << expired.get().status().to_string();
  const pid_t holder = holder_in(daemon.model());
  for (const pid_t worker : workers) {
    if (worker != holder) ::kill(worker, SIGCONT);
  }
  const Prediction other = submit(200, 0ns);
  const std::byte* const other_slot = place_of(other);
  const bool is_valid = holder != 0 && daemon.model().at("counts").at("worker_deaths") == deaths;
  if (is_valid) {
    EXPECT_NE(other_slot, first_slot) << "a slot that a worker may still write into";
    EXPECT_EQ((*other.get())[0].tensor.values<float>()[63], 263);
  }
  for (const pid_t worker : workers) ::kill(worker, SIGCONT);
  EXPECT_TRUE(eventually([&] { return place_of(submit(300, 0ns)) == first_slot; })) << "the slot never came back";
  return is_valid;
}

TEST(Slots, AreNotUsedAgainBeforeTheRunHasEndedAndThenTheyAre) {
  const DaemonFixture daemon({.models = {"echo=builtin:identity,workers=2"}});
  Pool pool = daemon.connect();
  for (int warm = 0; warm < 4; ++warm)
    ASSERT_TRUE(pool.predict("echo", {{"data", counting({64})}}).ok());  // the client learns the sizes
  EXPECT_TRUE(eventually([&] { return run_round(daemon, pool); }, 20s)) << "no round was quick enough";
}

}  // namespace
}  // namespace shoal::test
