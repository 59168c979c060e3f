// Batches: each request gets its own rows back, only equal shapes are joined, and no request waits longer than it may.
#include <gtest/gtest.h>

#include <chrono>

#include "shm/base/format.hpp"
#include "tests/support/checkpoint.hpp"
#include "tests/support/pool_fixture.hpp"
#include "tests/support/scratch_directory.hpp"

namespace shoal::test {
namespace {

using namespace std::chrono_literals;

constexpr const char* kWaitsForOthers = ",max_delay_ms=10000,timeout_ms=0";  // long enough on any machine
constexpr auto kSlack = 3s;                                                  // a busy machine may add this to a time

class Batching : public testing::Test {
 protected:
  /// Returns the daemon's --model argument for a chain of these nodes.
  std::string model(const std::vector<ChainNode>& chain, const std::string& keys) const {
    write_checkpoint(models_.path(), "m", chain, "[-1, -1]");
    return "m=" + models_.path() + ",shape=data:1x4,tuning_ms=0" + keys;
  }
  DaemonSettings times3(const std::string& keys) const {
    return {.models = {model({{"_mul_scalar", "times3", {{"scalar", "3"}}, {}}}, keys)}};
  }
  /// A run of two seconds in forty steps, then a multiplication by 3.
  DaemonSettings slow_times3(const std::string& keys) const {
    std::vector<ChainNode> chain;
    for (int i = 0; i < 40; ++i) chain.push_back({"_fault_slow", format("s{}", i), {{"scalar", "50"}}, {}});
    chain.push_back({"_mul_scalar", "times3", {{"scalar", "3"}}, {}});
    return {.models = {model(chain, keys)}, .worker = "shoal-worker-faulty"};
  }

  const ScratchDirectory models_;
};

Prediction ask(Pool& pool, const Shape& shape, float first, SubmitOptions options = {}) {
  return pool.submit("m", {{"data", counting(shape, first)}}, options);
}

void expect_times3(const Prediction& prediction, const Shape& shape, float first, int batch) {
  const Outcome& outcome = prediction.outcome();
  ASSERT_TRUE(outcome.outputs.ok()) << outcome.outputs.status().to_string();
  EXPECT_EQ(outcome.batch, batch);
  const Tensor& output = outcome.outputs->front().tensor;
  EXPECT_EQ(output.shape(), shape);
  const Tensor input = counting(shape, first);
  for (std::size_t i = 0; i < input.values<float>().size(); ++i)
    ASSERT_EQ(output.values<float>()[i], 3 * input.values<float>()[i]) << first << ", " << i;
}

TEST_F(Batching, RequestsOfOneShapeRunTogetherAndEachHasItsOwnRows) {
  const DaemonFixture daemon(times3(std::string(",max_batch=8") + kWaitsForOthers));
  Pool pool = daemon.connect(), other = daemon.connect();
  ASSERT_TRUE(pool.describe("m").ok() && other.describe("m").ok());
  const Shape one{1, 4}, three{3, 4};
  std::vector<Prediction> singles;
  for (int i = 0; i < 5; ++i) singles.push_back(ask(i % 2 ? other : pool, one, static_cast<float>(100 * i)));
  const Prediction rows = ask(other, three, 1000);  // eight rows in all
  ASSERT_TRUE(eventually([&] {
    pool.poll_once();  // waiting for one pool does not drive the other
    return rows.ready();
  }));
  expect_times3(rows, three, 1000, 6);
  for (int i = 0; i < 5; ++i) expect_times3(singles[static_cast<std::size_t>(i)], one, static_cast<float>(100 * i), 6);
  const auto counts = daemon.model("m")["counts"];
  EXPECT_EQ(counts["ok"], 6u);
  EXPECT_EQ(counts["batches"], 1u);
  EXPECT_EQ(counts["batched"], 6u);
}

TEST_F(Batching, RequestsOfOtherShapesAreNotJoined) {
  const DaemonFixture daemon(times3(std::string(",max_batch=3") + kWaitsForOthers));
  Pool pool = daemon.connect();
  ASSERT_TRUE(pool.describe("m").ok());
  // The programs of another shape, and of joined requests of it, are compiled when it first comes. Until then requests run
  // singly.
  const Shape narrow{1, 4}, wide{1, 6};
  std::vector<Prediction> narrows, wides;
  const auto ask_three_of_each = [&] {
    narrows.clear(), wides.clear();
    for (int i = 0; i < 3; ++i) {
      narrows.push_back(ask(pool, narrow, static_cast<float>(10 * i)));
      wides.push_back(ask(pool, wide, static_cast<float>(10 * i)));
    }
  };
  ASSERT_TRUE(eventually([&] {
    ask_three_of_each();
    return wides[0].outcome().batch == 3;
  }));
  for (int i = 0; i < 3; ++i) {
    expect_times3(narrows[static_cast<std::size_t>(i)], narrow, static_cast<float>(10 * i), 3);
    expect_times3(wides[static_cast<std::size_t>(i)], wide, static_cast<float>(10 * i), 3);
  }
}

TEST_F(Batching, AModelThatMixesRowsRefusesToBatchAndNamesTheNode) {
  const DaemonFixture daemon(
      {.models = {model({{"softmax", "over_rows", {{"axis", "0"}}, {}}}, ",max_batch=4")}, .wait_until_ready = false});
  ASSERT_TRUE(eventually([&] { return daemon.model("m")["state"] == "failed"; }));
  const std::string reason = daemon.model("m")["reason"];
  EXPECT_NE(reason.find("'max_batch': softmax 'over_rows'"), std::string::npos) << reason;
}

TEST_F(Batching, ALoneRequestWaitsForTheMaximumDelayAndNoLonger) {
  constexpr auto kDelay = 200ms;
  const DaemonFixture daemon(times3(",max_batch=16,max_delay_ms=200,timeout_ms=0"));
  Pool pool = daemon.connect();
  ASSERT_TRUE(pool.describe("m").ok());
  const Prediction lone = ask(pool, {1, 4}, 7);
  expect_times3(lone, {1, 4}, 7, 1);
  EXPECT_GE(lone.outcome().queue_time, kDelay);
  EXPECT_LT(lone.outcome().queue_time, kDelay + kSlack);
}

TEST_F(Batching, ARequestWithoutTimeToWaitRunsWithThoseThatWait) {
  const DaemonFixture daemon(times3(std::string(",max_batch=16") + kWaitsForOthers));
  Pool pool = daemon.connect();
  ASSERT_TRUE(pool.describe("m").ok());
  const Prediction patient = ask(pool, {1, 4}, 1);
  const Prediction hurried = ask(pool, {1, 4}, 2, {.timeout = 9s});
  expect_times3(hurried, {1, 4}, 2, 2);
  expect_times3(patient, {1, 4}, 1, 2);
  EXPECT_LT(patient.outcome().queue_time, 9s);
}

TEST_F(Batching, ADeadlineWithinABatchIsThatOfOneRequest) {
  const DaemonFixture daemon(slow_times3(std::string(",max_batch=3") + kWaitsForOthers));
  Pool pool = daemon.connect();
  ASSERT_TRUE(pool.describe("m").ok());
  const Prediction first = ask(pool, {1, 4}, 1), second = ask(pool, {1, 4}, 2);
  ASSERT_TRUE(eventually([&] { return daemon.model("m")["queue"]["length"] == 2; }));
  const Prediction hurried = ask(pool, {1, 4}, 3, {.timeout = 1s});  // the third: the batch runs at once, for two seconds
  EXPECT_EQ(hurried.get().status().code(), StatusCode::kDeadlineExceeded) << hurried.get().status().to_string();
  expect_times3(first, {1, 4}, 1, 3);
  expect_times3(second, {1, 4}, 2, 3);
}

TEST_F(Batching, ACancelledOneLeavesTheOthersOfItsBatchAlone) {
  const DaemonFixture daemon(slow_times3(std::string(",max_batch=3") + kWaitsForOthers));
  Pool pool = daemon.connect();
  ASSERT_TRUE(pool.describe("m").ok());
  const auto lane = [&] { return daemon.model("m")["workers"][0]["lanes"][0]; };
  const auto runs = [&](std::uint64_t steps_before) { return lane()["steps"].get<std::uint64_t>() > steps_before + 2; };
  const auto ask_three = [&] { return std::vector{ask(pool, {1, 4}, 1), ask(pool, {1, 4}, 2), ask(pool, {1, 4}, 3)}; };

  std::vector<Prediction> batch = ask_three();
  ASSERT_TRUE(eventually([&] { return runs(0); }));
  batch[1].cancel();
  EXPECT_EQ(batch[1].get().status().code(), StatusCode::kCancelled);
  expect_times3(batch[0], {1, 4}, 1, 3);
  expect_times3(batch[2], {1, 4}, 3, 3);

  // A cancelled request that waits for others is answered at once. A run ends when nobody waits for its results.
  const Prediction waiting = ask(pool, {1, 4}, 4);
  waiting.cancel();
  EXPECT_EQ(waiting.get().status().code(), StatusCode::kCancelled);
  const auto steps = lane()["steps"].get<std::uint64_t>(), completed = lane()["completed"].get<std::uint64_t>();
  batch = ask_three();
  ASSERT_TRUE(eventually([&] { return runs(steps); }));
  for (const Prediction& one : batch) one.cancel();
  for (const Prediction& one : batch) EXPECT_EQ(one.get().status().code(), StatusCode::kCancelled);
  ASSERT_TRUE(eventually([&] { return lane()["completed"].get<std::uint64_t>() == completed + 3; }));
  EXPECT_LT(lane()["steps"].get<std::uint64_t>(), steps + 41);
  EXPECT_EQ(daemon.model("m")["counts"]["worker_deaths"], 0u);
}

}  // namespace
}  // namespace shoal::test
