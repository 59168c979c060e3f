// Arenas that grow and shrink, and what they may hold.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <deque>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tests/integration/raw_client.hpp"
#include "tests/support/pool_fixture.hpp"
#include "tests/support/says.hpp"

namespace shoal::test {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kMb = 1 << 20;

/// Memory of this process's memfds with that name.
std::uint64_t memory_of(std::string_view name) {
  std::uint64_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    const std::string target = std::filesystem::read_symlink(entry.path(), error).string();
    struct stat info {};
    if (contains(target, name) && ::stat(entry.path().c_str(), &info) == 0)
      bytes += static_cast<std::uint64_t>(info.st_blocks) * 512;
  }
  return bytes;
}
std::uint64_t inputs_memory() { return memory_of("memfd:shoal:input"); }
std::uint64_t outputs_memory() { return memory_of("memfd:shoal:output"); }

/// 30 requests at the same time with 10 MB of inputs each.
void send_300_mb(const DaemonFixture& daemon, Pool& pool) {
  const Tensor large = counting({10 * kMb / 4});
  ASSERT_TRUE(pool.predict("echo", {{"data", large}}).ok());  // from now on the size of the output is known
  std::vector<Prediction> predictions;
  stop_process(daemon.pid());  // so that none is answered before all are there
  for (int i = 0; i < 30; ++i) predictions.push_back(pool.submit("echo", {{"data", large}}));
  ::kill(daemon.pid(), SIGCONT);
  for (const Prediction& prediction : predictions) {
    const auto& outputs = prediction.get();
    ASSERT_TRUE(outputs.ok()) << outputs.status().to_string();
    ASSERT_EQ(std::memcmp(outputs->front().tensor.view().data, large.view().data, large.size_bytes()), 0);
  }
}

class ArenasTest : public testing::Test {
 protected:
  /// Sends small requests, `at_once` of them at the same time and never fewer, until `condition` holds.
  template <typename Condition>
  bool goes_on_until(Pool& pool, std::size_t at_once, Condition condition) {
    std::deque<Prediction> under_way;
    const auto end = std::chrono::steady_clock::now() + 60s;
    float sent = 0;
    while (!condition()) {
      if (std::chrono::steady_clock::now() > end) return false;
      while (under_way.size() < at_once)
        under_way.push_back(pool.submit("echo", {{"data", counting({4}, ++sent)}}, {.timeout = 10s}));
      const auto& outputs = under_way.front().get();
      EXPECT_TRUE(outputs.ok()) << outputs.status().to_string();
      if (!outputs.ok()) return false;
      EXPECT_EQ((*outputs)[0].tensor.values<float>()[0], sent + 1 - static_cast<float>(under_way.size()));
      under_way.pop_front();
    }
    for (const Prediction& last : under_way) EXPECT_TRUE(last.get().ok());  // else they would be cancelled
    return true;
  }

  DaemonFixture daemon_;
};

TEST_F(ArenasTest, AClientIsSmallTakesWhatItNeedsAndGivesItBack) {
  Pool pool = daemon_.connect();
  ASSERT_TRUE(pool.predict("echo", {{"data", counting({4})}}).ok());
  EXPECT_LE(inputs_memory() + outputs_memory(), kMb);
  send_300_mb(daemon_, pool);
  EXPECT_GE(inputs_memory(), 290 * kMb);
  EXPECT_GE(outputs_memory(), 290 * kMb);
  EXPECT_GE(daemon_.stats()["supervisor"]["arena_allocated_bytes"], 580 * kMb);
  EXPECT_EQ(pool.usage().inputs.copied, 0u);
  EXPECT_LE(pool.usage().outputs.copied, 2u) << "of each shape the first";
  EXPECT_EQ(pool.usage().inputs.used_bytes, 0u);
  EXPECT_TRUE(goes_on_until(pool, 1, [] { return inputs_memory() < 4 * kMb && outputs_memory() < 4 * kMb; }))
      << inputs_memory() / kMb << " and " << outputs_memory() / kMb << " MiB";
  EXPECT_LT(pool.usage().inputs.allocated_bytes, 4 * kMb);
  EXPECT_LT(pool.usage().outputs.allocated_bytes, 4 * kMb);
  EXPECT_TRUE(eventually([&] { return daemon_.stats()["supervisor"]["clients"] == 2; })) << "the old connection is gone";
  send_300_mb(daemon_, pool);
  EXPECT_EQ(pool.usage().inputs.copied, 0u) << "it grows again";
}

TEST_F(ArenasTest, AClientThatIsNeverIdleGivesMemoryBack) {
  Pool pool = daemon_.connect();
  send_300_mb(daemon_, pool);
  EXPECT_TRUE(goes_on_until(pool, 8, [] { return inputs_memory() + outputs_memory() < 8 * kMb; }))
      << inputs_memory() / kMb << " and " << outputs_memory() / kMb << " MiB";
  EXPECT_TRUE(eventually([&] { return daemon_.stats()["supervisor"]["clients"] == 2; })) << "the old connection is gone";
  EXPECT_EQ(daemon_.model()["counts"]["failed"], nlohmann::json::object());
}

TEST_F(ArenasTest, AHeldLoanKeepsTheInputArenaAndNeedsNoCopy) {
  Pool pool = daemon_.connect();
  Tensor loan = pool.loan(DType::kFloat32, {4}).value();
  const Tensor values = counting({4}, 3);
  std::memcpy(loan.view().data, values.view().data, 16);
  send_300_mb(daemon_, pool);
  const void* const at = loan.view().data;
  EXPECT_TRUE(goes_on_until(pool, 1, [] { return outputs_memory() < 8 * kMb; }));
  EXPECT_GE(inputs_memory(), 290 * kMb);
  EXPECT_EQ(loan.view().data, at);
  const auto outputs = pool.predict("echo", {{"data", loan}});
  ASSERT_TRUE(outputs.ok()) << outputs.status().to_string();
  EXPECT_EQ((*outputs)[0].tensor.values<float>()[3], 6.0f);
  loan = {};
  EXPECT_TRUE(goes_on_until(pool, 1, [] { return inputs_memory() < 8 * kMb; })) << inputs_memory() / kMb << " MiB";
}

// The pool attaches anew to give memory back. A daemon that is there by then knows nothing of this pool.
TEST_F(ArenasTest, ADaemonThatTookThePlaceOfOursIsLeftAlone) {
  const DaemonFixture other({.models = {"other=builtin:identity"}});
  Pool pool = daemon_.connect();
  send_300_mb(daemon_, pool);
  const std::string place = daemon_.directory(), aside = place + ".aside";
  std::filesystem::rename(place, aside);
  std::filesystem::create_directory_symlink(other.directory(), place);
  ASSERT_EQ(Pool::connect({.directory = place}).value().list().value().at(0), "other");
  EXPECT_TRUE(goes_on_until(pool, 1, [] { return outputs_memory() < 8 * kMb; }));
  EXPECT_GE(inputs_memory(), 290 * kMb);
  std::filesystem::remove(place);
  std::filesystem::rename(aside, place);
  EXPECT_TRUE(goes_on_until(pool, 1, [] { return inputs_memory() < 8 * kMb; })) << "the next time";
}

TEST_F(ArenasTest, CopiesAtTheLimitAreCountedOnBothSides) {
  Pool pool = daemon_.connect({.arena_limit_bytes = 64 << 10});
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(pool.predict("echo", {{"data", counting({kMb / 4})}}).ok());
  ASSERT_TRUE(pool.predict("echo", {{"data", counting({4})}}).ok());
  ASSERT_TRUE(pool.predict("echo", {{"data", counting({4})}}).ok());
  const PoolUsage usage = pool.usage();
  EXPECT_EQ(usage.inputs.copied, 3u);
  EXPECT_EQ(usage.inputs.copied_bytes, 3 * kMb);
  EXPECT_EQ(usage.outputs.copied, 4u) << "the size of the first small output was not known";
  EXPECT_EQ(usage.outputs.copied_bytes, 3 * kMb + 16);
  EXPECT_EQ(usage.inputs.reserved_bytes, 64u << 10);
  EXPECT_EQ(usage.inputs.allocated_bytes, 64u << 10);
  const auto stats = daemon_.stats();
  const nlohmann::json expected{{"requests", 3}, {"request_bytes", 3 * kMb}, {"answers", 4}, {"answer_bytes", 3 * kMb + 16}};
  EXPECT_EQ(stats["models"][0]["copied"], expected);
  const auto& copying = stats["supervisor"]["copying"];
  ASSERT_EQ(copying.size(), 1u) << copying;
  EXPECT_EQ(copying[0]["pid"], ::getpid());
  EXPECT_EQ(copying[0]["request_bytes"], 3 * kMb);
  EXPECT_EQ(copying[0]["answers"], 4);
}

TEST_F(ArenasTest, ManyClientsOfOneProcessAttachWithTheDefaultLimits) {
  std::vector<Pool> pools;
  for (int i = 0; i < 60; ++i) {
    pools.push_back(daemon_.connect());
    ASSERT_TRUE(pools.back().predict("echo", {{"data", counting({4})}}).ok());
    EXPECT_EQ(pools.back().usage().inputs.reserved_bytes, wire::kLargestArenaBytes);
  }
  EXPECT_LE(inputs_memory() + outputs_memory(), 60 * kMb / 2);
  EXPECT_FALSE(contains(daemon_.log(), "total_arena_gb")) << daemon_.log();
}

TEST(Arenas, WhereThereIsNoRoomForLargeOnesAPoolAttachesWithSmallerOnes) {
  const DaemonFixture daemon({.limits = "connections = 16\ntotal_arena_gb = 4"});
  std::vector<Pool> pools;
  for (int i = 0; i < 10; ++i) {
    pools.push_back(daemon.connect());
    ASSERT_TRUE(pools.back().predict("echo", {{"data", counting({kMb})}}).ok());
    EXPECT_EQ(pools.back().usage().inputs.copied, 0u);
  }
  EXPECT_EQ(pools[0].usage().inputs.reserved_bytes, 192 * kMb) << "with the outputs a quarter of the 1.5 GiB that it may have";
  EXPECT_LT(pools[9].usage().inputs.reserved_bytes, 100 * kMb);
}

/// A client whose arenas have one page each.
class NamedHoles : public ArenasTest {
 protected:
  NamedHoles() { EXPECT_EQ(client_.attach_sparse_or_why_not(64 * kMb), ""); }
  void expect_refused(wire::Request request, std::string_view arena) {
    client_.send(request);
    const wire::Reply reply = client_.receive_reply();
    EXPECT_EQ(reply.header.status, static_cast<std::uint16_t>(StatusCode::kInvalidArgument));
    EXPECT_EQ(reply.header.ran, 0);
    ASSERT_GE(client_.message().size(), 2u) << "it was answered";
    const auto text = client_.message()[1];
    EXPECT_TRUE(says(std::string(reinterpret_cast<const char*>(text.data()), text.size()), {arena, "not allocated"}));
  }
  RawClient client_{daemon_.directory()};
};

TEST_F(NamedHoles, AreRefusedAndHurtNobody) {
  const auto workers = daemon_.workers();
  wire::Request fine = client_.request(1);
  client_.send(fine);
  EXPECT_EQ(client_.receive_reply().header.status, 0);
  wire::Request input = client_.request(2);
  input.inputs[0].offset_bytes = 4096;
  expect_refused(input, "input arena");
  wire::Request output = client_.request(3);
  output.outputs[0].offset_bytes = 63 * kMb;
  expect_refused(output, "output arena");
  output.outputs[0].offset_bytes = 0;
  output.outputs[0].capacity_bytes = 8192;  // all that is offered, not what the answer needs
  output.header.seq = 4;
  expect_refused(output, "output arena");
  fine.header.seq = 5;
  client_.send(fine);
  EXPECT_EQ(client_.receive_reply().header.status, 0);
  EXPECT_EQ(daemon_.workers(), workers);
  EXPECT_LE(daemon_.stats()["supervisor"]["arena_allocated_bytes"], 2 * 4096);
  EXPECT_TRUE(daemon_.connect().predict("echo", {{"data", counting({4})}}).ok());
}

}  // namespace
}  // namespace shoal::test
