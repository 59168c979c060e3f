// A gateway asks for others, each of its flows is treated like a client, and what they ask for takes none of its memory.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <vector>

#include "shm/base/memory_group.hpp"
#include "tests/support/checkpoint.hpp"
#include "tests/support/pool_fixture.hpp"
#include "tests/support/scratch_directory.hpp"

namespace shoal::test {
namespace {

constexpr std::uint64_t kGreedy = 81, kModest = ~std::uint64_t{0};
constexpr std::size_t kMany = 60, kFew = 15;

std::vector<Prediction> ask(Pool& pool, std::uint64_t flow, std::size_t count) {
  std::vector<Prediction> asked;
  for (std::size_t i = 0; i < count; ++i) asked.push_back(pool.submit("m", {{"data", counting({1, 4})}}, {.flow = flow}));
  return asked;
}

std::chrono::nanoseconds longest_wait(const std::vector<Prediction>& asked) {
  std::chrono::nanoseconds longest{0};
  for (const Prediction& one : asked) {
    EXPECT_TRUE(one.get().ok()) << one.get().status().to_string();
    longest = std::max(longest, one.outcome().queue_time);
  }
  return longest;
}

nlohmann::json row_of(const DaemonFixture& daemon, std::uint64_t flow) {
  const nlohmann::json model = daemon.model("m");
  for (const nlohmann::json& row : model["flows"]) {
    if (row["flow"] == flow) return row;
  }
  return {};
}

TEST(Flows, EachHasTheTurnsTheLimitsAndTheStatisticsOfAClient) {
  const ScratchDirectory models;
  write_checkpoint(models.path(), "m", {{"_fault_slow", "slow", {{"scalar", "10"}}, {}}}, "[-1, -1]");
  DaemonFixture daemon({.models = {"m=" + models.path() + ",shape=data:1x4,workers=1,tuning_ms=0,timeout_ms=0"},
                        .worker = "shoal-worker-faulty",
                        .limits = "client_requests = " + std::to_string(kMany)});
  std::optional<Pool> gateway(daemon.connect());
  Pool other = daemon.connect();
  for (int i = 0; i < 5; ++i)  // from now on the daemon knows what a request costs
    for (Pool* pool : {&*gateway, &other}) ASSERT_TRUE(pool->predict("m", {{"data", counting({1, 4})}}).ok());
  EXPECT_TRUE(daemon.model("m")["flows"].empty()) << "those were for the clients themselves";

  const std::vector<Prediction> greedy = ask(*gateway, kGreedy, kMany);
  const Prediction refused = ask(*gateway, kGreedy, 1).front();
  const std::vector<Prediction> modest = ask(*gateway, kModest, kFew), others = ask(other, 0, kFew);
  EXPECT_EQ(refused.get().status().code(), StatusCode::kOverloaded);
  EXPECT_NE(refused.get().status().message().find("flow 81"), std::string::npos) << refused.get().status().to_string();
  const auto greedy_wait = longest_wait(greedy), modest_wait = longest_wait(modest), others_wait = longest_wait(others);
  EXPECT_LT(modest_wait, greedy_wait * 3 / 4) << "in turns, the few are answered when half of all are";
  EXPECT_LT(others_wait, greedy_wait * 3 / 4);

  const nlohmann::json row = row_of(daemon, kGreedy), modest_row = row_of(daemon, kModest);
  ASSERT_TRUE(row.is_object() && modest_row.is_object());
  EXPECT_EQ(row["pid"], ::getpid());
  EXPECT_EQ(row["client"], modest_row["client"]);
  EXPECT_EQ(row["requests"], kMany);
  EXPECT_EQ(row["refused"], 1);
  EXPECT_EQ(modest_row["requests"], kFew);
  EXPECT_EQ(modest_row["refused"], 0);
  EXPECT_EQ(modest_row["latency_ms"]["total"]["count"], kFew);
  EXPECT_EQ(modest_row["latency_ms"]["queue"]["count"], kFew);
  EXPECT_GE(modest_row["latency_ms"]["compute"]["sum"].get<double>(), 10.0 * kFew);
  EXPECT_EQ(daemon.model("m")["flows"].size(), 2u);

  gateway.reset();
  ASSERT_TRUE(eventually([&] { return daemon.model("m")["flows"].size() == 1; })) << daemon.model("m")["flows"].dump();
  const nlohmann::json rest = daemon.model("m")["flows"][0];
  EXPECT_TRUE(rest["client"].is_null() && rest["pid"].is_null() && rest["flow"].is_null());
  EXPECT_EQ(rest["requests"], kMany + kFew);
  EXPECT_EQ(rest["refused"], 1);
}

// The names are those that its users send.
TEST(ClientHeap, DoesNotGrowWithTheModelsThatNobodyServes) {
  const DaemonFixture daemon;
  Pool pool = daemon.connect();
  const auto ask = [&](int first, int count) {
    for (int i = first; i < first + count; ++i) {
      const std::string name = std::to_string(i) + std::string(90, 'x');
      const Status refused = i % 2 == 0 ? pool.describe(name).status() : pool.predict(name, {{"data", counting({1})}}).status();
      EXPECT_EQ(refused.code(), StatusCode::kNotFound) << refused.to_string().substr(0, 200);
    }
    return read_key("/proc/self/status", "RssAnon:").value_or(0);
  };
  const std::uint64_t before_kib = ask(0, 50);
  EXPECT_LT(ask(50, 20'000), before_kib + 2 * 1024);
}

}  // namespace
}  // namespace shoal::test
