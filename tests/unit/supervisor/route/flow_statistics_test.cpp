#include "supervisor/route/flow_statistics.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/allocations.hpp"

namespace shoal::supervisor {
namespace {

constexpr ClientId kRowsGateway = 7, kRowsOther = 8;

struct Sums {
  std::uint64_t requests = 0, refused = 0, answered = 0, total_ns = 0;
  friend bool operator==(const Sums&, const Sums&) = default;
};
Sums sums_of(const FlowStatistics& statistics) {
  Sums sums;
  for (const FlowStatistics::Row& row : statistics.rows()) {
    sums.requests += row.requests;
    sums.refused += row.refused;
    sums.answered += row.total_ns.count();
    sums.total_ns += row.total_ns.sum();
  }
  return sums;
}
const FlowStatistics::Row* find(const FlowStatistics& statistics, ClientId client, std::uint64_t flow) {
  const auto rows = statistics.rows();
  const auto row = std::ranges::find_if(rows, [&](const auto& each) { return each.client == client && each.flow == flow; });
  return row == rows.end() ? nullptr : &*row;
}
void count(FlowStatistics& statistics, ClientId client, std::uint64_t flow) {
  FlowStatistics::Row& row = statistics.of(client, flow);
  ++row.requests;
  ++row.refused;
  row.total_ns.add(1'000 * flow);
}

TEST(FlowStatistics, KeepsARowForEachFlowOfEachClient) {
  FlowStatistics statistics;
  EXPECT_TRUE(statistics.rows().empty());
  count(statistics, kRowsGateway, 1);
  count(statistics, kRowsOther, 1);
  count(statistics, kRowsGateway, 1);
  ASSERT_EQ(statistics.rows().size(), 3u);
  EXPECT_EQ(statistics.rows()[0].client, 0u) << "that of the others";
  EXPECT_EQ(statistics.rows()[0].requests, 0u);
  EXPECT_EQ(find(statistics, kRowsGateway, 1)->requests, 2u);
  EXPECT_EQ(find(statistics, kRowsOther, 1)->requests, 1u);
}

TEST(FlowStatistics, ThoseIdleForLongestBecomeTheOthersAndNoSumChanges) {
  FlowStatistics statistics;
  Sums wanted;
  const auto use = [&](std::uint64_t flow) {
    count(statistics, kRowsGateway, flow);
    wanted = {wanted.requests + 1, wanted.refused + 1, wanted.answered + 1, wanted.total_ns + 1'000 * flow};
  };
  for (std::uint64_t flow = 1; flow <= FlowStatistics::kMostFlows; ++flow) use(flow);
  use(1);
  use(1'000);
  use(1'001);
  EXPECT_EQ(statistics.rows().size(), FlowStatistics::kMostFlows + 1);
  EXPECT_EQ(find(statistics, kRowsGateway, 1)->requests, 2u);
  EXPECT_EQ(find(statistics, kRowsGateway, 2), nullptr);
  EXPECT_EQ(find(statistics, kRowsGateway, 3), nullptr);
  EXPECT_EQ(find(statistics, kRowsGateway, 4)->requests, 1u);
  EXPECT_EQ(statistics.rows()[0].requests, 2u);
  EXPECT_EQ(statistics.rows()[0].total_ns.sum(), 5'000u);
  EXPECT_EQ(statistics.rows()[0].total_ns.max(), 3'000u);
  use(2);
  EXPECT_EQ(find(statistics, kRowsGateway, 2)->requests, 1u) << "it counts anew";
  EXPECT_EQ(sums_of(statistics), wanted);
}

TEST(FlowStatistics, ThoseOfAClientThatIsGoneBecomeTheOthers) {
  FlowStatistics statistics;
  for (std::uint64_t flow = 1; flow <= 10; ++flow) count(statistics, flow % 2 ? kRowsGateway : kRowsOther, flow);
  const Sums before = sums_of(statistics);
  statistics.client_gone(kRowsGateway);
  EXPECT_EQ(statistics.rows().size(), 6u);
  EXPECT_EQ(statistics.rows()[0].requests, 5u);
  for (const std::uint64_t flow : {2, 4, 6, 8, 10}) EXPECT_EQ(find(statistics, kRowsOther, flow)->total_ns.sum(), 1'000 * flow);
  EXPECT_EQ(sums_of(statistics), before);
  count(statistics, kRowsOther, 2);
  EXPECT_EQ(find(statistics, kRowsOther, 2)->requests, 2u);
  statistics.client_gone(kRowsOther);
  EXPECT_EQ(statistics.rows().size(), 1u);
  count(statistics, kRowsOther, 3);
  EXPECT_EQ(statistics.rows().size(), 2u);
}

TEST(FlowStatistics, TakesLittleMemoryAndNoneInTheLongRun) {
  test::AllocatedPeak peak;
  FlowStatistics statistics;
  std::uint64_t flow = 0;
  while (flow < 1'000) count(statistics, kRowsGateway, ++flow);
  const std::uint64_t before = test::allocations();
  while (flow < 100'000) count(statistics, kRowsGateway, ++flow);
  EXPECT_EQ(test::allocations(), before);
  EXPECT_LT(sizeof(FlowStatistics::Row), 6'500u);
  EXPECT_LT(peak.bytes(), 700'000u) << "0.4 MB, and those of a table that grew";
}

}  // namespace
}  // namespace shoal::supervisor
