// Guilty requests among good ones: only the guilty are refused, and they cost a bounded number of workers.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "tests/support/checkpoint.hpp"
#include "tests/support/pool_fixture.hpp"
#include "tests/support/scratch_directory.hpp"

namespace shoal::test {
namespace {

constexpr float kTrigger = 666;

Tensor row_of(float first, float second) {
  Tensor tensor = Tensor::create(DType::kFloat32, Shape{1, 4}).value();
  std::ranges::copy(std::vector<float>{first, second, 2, 3}, tensor.values<float>().begin());
  return tensor;
}

bool is_times3(const Result<Tensors>& outputs, float first, float second) {
  return outputs.ok() &&
         std::ranges::equal(outputs->front().tensor.values<float>(), std::vector<float>{3 * first, 3 * second, 6, 9});
}

/// A model that aborts its worker when a row begins with the trigger, and otherwise multiplies by 3.
class Poison : public testing::Test {
 protected:
  Poison() {
    write_checkpoint(models_.path(), "m",
                     {{"_fault_abort", "bad0", {{"scalar", "666"}}, {}}, {"_mul_scalar", "times3", {{"scalar", "3"}}, {}}},
                     "[-1, 4]");
  }

  DaemonSettings settings(const std::string& keys) const {
    return {.models = {"m=" + models_.path() + ",tuning_ms=0,timeout_ms=0" + keys}, .worker = "shoal-worker-faulty"};
  }
  static std::uint64_t count(const DaemonFixture& daemon, const char* key) {
    return daemon.model("m")["counts"][key].get<std::uint64_t>();
  }
  static void expect_poison(const Prediction& prediction) {
    EXPECT_EQ(prediction.get().status().code(), StatusCode::kPoison) << prediction.get().status().to_string();
  }

  const ScratchDirectory models_;
};

TEST_F(Poison, OneGuiltyOfABatchOfSixteenCostsTwoDeathsAndFifteenAreAnswered) {
  const DaemonFixture daemon(settings(",workers=2,max_batch=16,max_delay_ms=10000"));
  Pool pool = daemon.connect();
  ASSERT_TRUE(pool.describe("m").ok());
  std::vector<Prediction> batch;
  for (int i = 0; i < 16; ++i)
    batch.push_back(pool.submit("m", {{"data", row_of(i == 11 ? kTrigger : static_cast<float>(i), 1)}}));
  expect_poison(batch[11]);
  EXPECT_EQ(batch[11].outcome().attempts, 2);
  for (int i = 0; i < 16; ++i) {
    const Prediction& one = batch[static_cast<std::size_t>(i)];
    if (i == 11) continue;
    EXPECT_TRUE(is_times3(one.get(), static_cast<float>(i), 1)) << i << ": " << one.get().status().to_string();
    EXPECT_LE(one.outcome().attempts, 2) << i;  // first in the batch that crashed, then alone
  }
  EXPECT_EQ(count(daemon, "worker_deaths"), 2u);
}

TEST_F(Poison, ThreeGuiltyOfABatchOfSixteenAreFoundOutAndThirteenAreAnswered) {
  const DaemonFixture daemon(settings(",workers=2,max_batch=16,max_delay_ms=10000"));
  Pool pool = daemon.connect();
  ASSERT_TRUE(pool.describe("m").ok());
  const auto is_guilty = [](int i) { return i == 2 || i == 3 || i == 11; };
  std::vector<Prediction> batch;
  for (int i = 0; i < 16; ++i)
    batch.push_back(pool.submit("m", {{"data", row_of(is_guilty(i) ? kTrigger : static_cast<float>(i), static_cast<float>(i))}}));
  for (int i = 0; i < 16; ++i) {
    const Prediction& one = batch[static_cast<std::size_t>(i)];
    const auto number = static_cast<float>(i);
    if (is_guilty(i)) {
      expect_poison(one);
    } else {
      EXPECT_TRUE(is_times3(one.get(), number, number)) << i << ": " << one.get().status().to_string();
    }
  }
  EXPECT_EQ(count(daemon, "worker_deaths"), 4u);  // once in the batch, and each of the three alone
}

TEST_F(Poison, AnEqualInputIsRefusedWithoutADeathAndOthersAreServed) {
  const DaemonFixture daemon(settings(",workers=3"));
  Pool pool = daemon.connect();
  expect_poison(pool.submit("m", {{"data", row_of(kTrigger, 1)}}));
  ASSERT_EQ(count(daemon, "worker_deaths"), 2u);
  for (int i = 0; i < 20; ++i) {
    const Prediction again = pool.submit("m", {{"data", row_of(kTrigger, 1)}});
    expect_poison(again);
    EXPECT_NE(again.get().status().message().find("refused for a while"), std::string::npos) << again.get().status().message();
    EXPECT_TRUE(is_times3(pool.predict("m", {{"data", row_of(static_cast<float>(i), 1)}}), static_cast<float>(i), 1));
  }
  EXPECT_EQ(count(daemon, "worker_deaths"), 2u);
  expect_poison(
      pool.submit("m", {{"data", row_of(kTrigger, 2)}}));  // another input: it must crash workers itself before it is refused
  EXPECT_EQ(count(daemon, "worker_deaths"), 4u);
}

TEST_F(Poison, AnEqualInputIsTriedAgainAfterTheQuarantine) {
  const DaemonFixture daemon(settings(",workers=2,quarantine_ms=1500"));
  Pool pool = daemon.connect();
  const auto begin = std::chrono::steady_clock::now();
  expect_poison(pool.submit("m", {{"data", row_of(kTrigger, 1)}}));
  EXPECT_EQ(count(daemon, "worker_deaths"), 2u);
  EXPECT_TRUE(eventually([&] {
    expect_poison(pool.submit("m", {{"data", row_of(kTrigger, 1)}}));
    return count(daemon, "worker_deaths") == 4;
  }));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(1500));
}

// One request in a hundred is guilty, and each guilty input comes three times. All requests run in batches.
TEST_F(Poison, AHundredthOfPoisonHurtsNobodyElse) {
  const bool is_long = std::getenv("SHOAL_TEST_LONG") != nullptr;
  const int kinds = is_long ? 400 : 20, copies = 3, asked_between = 99;
  const DaemonFixture daemon(settings(",workers=8,contexts=2,max_batch=16,max_delay_ms=1"));
  std::atomic<std::uint64_t> good{0}, failed{0};
  std::atomic<bool> is_over{false};
  {
    std::vector<std::jthread> askers;
    for (int number = 0; number < 4; ++number) {
      askers.emplace_back([&, number] {
        Pool pool = daemon.connect();
        for (int i = 0; !is_over; ++i) {
          std::vector<Prediction> window;
          for (int j = 0; j < 8; ++j)
            window.push_back(
                pool.submit("m", {{"data", row_of(static_cast<float>(1000 + i), static_cast<float>(8 * number + j))}}));
          for (int j = 0; j < 8; ++j) {
            const auto& outputs = window[static_cast<std::size_t>(j)].get();
            ++good;
            if (is_times3(outputs, static_cast<float>(1000 + i), static_cast<float>(8 * number + j))) continue;
            if (failed++ == 0) ADD_FAILURE() << outputs.status().to_string();
          }
        }
      });
    }
    std::atomic<std::uint64_t> poisonous{0};
    std::vector<std::jthread> poisoners;  // two threads, so that guilty inputs of both meet in a worker and in a batch
    for (int number = 0; number < 2; ++number) {
      poisoners.emplace_back([&, number] {
        Pool pool = daemon.connect();
        for (int kind = number; kind < kinds && !HasFailure(); kind += 2) {
          for (int copy = 0; copy < copies; ++copy) {
            expect_poison(pool.submit("m", {{"data", row_of(kTrigger, static_cast<float>(kind))}}));
            ++poisonous;
            EXPECT_TRUE(eventually([&] { return good >= poisonous * asked_between; }, std::chrono::seconds(60)));
          }
        }
      });
    }
    poisoners.clear();
    is_over = true;
  }
  const nlohmann::json counts = daemon.model("m")["counts"];
  std::printf(
      "%d poisonous inputs, %d times each, among %lu good requests in batches: %lu failed, %lu workers died, %lu runs again\n",
      kinds, copies, good.load(), failed.load(), counts["worker_deaths"].get<std::uint64_t>(),
      counts["rerun"].get<std::uint64_t>());
  EXPECT_LE(failed * 10'000, good.load());
  EXPECT_LE(counts["worker_deaths"].get<int>(), 2 * kinds);
  EXPECT_EQ(counts["poison"].get<int>(), kinds * copies);
}

}  // namespace
}  // namespace shoal::test
