#include "supervisor/route/askers.hpp"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "tests/support/allocations.hpp"

namespace shoal::supervisor {
namespace {

constexpr ClientId kAskersGateway = 7, kAskersOther = 8;

class AskersTest : public testing::Test {
 protected:
  /// Returns the place of the asker. The slot is that of its request.
  std::uint32_t begin(ClientId client, std::uint64_t flow, std::uint32_t slot) {
    std::uint32_t place = askers_.find(client, flow);
    if (place == kNoSlot) place = askers_.add(client, flow);
    askers_.request_begins(place, slot);
    return place;
  }
  /// The flow has a request, and then none.
  std::uint32_t visit(ClientId client, std::uint64_t flow) {
    const std::uint32_t place = begin(client, flow, 1000);
    askers_.request_ended(place, 1000);
    return place;
  }
  std::vector<std::uint32_t> requests_of(ClientId client) const {
    std::vector<std::uint32_t> slots;
    for (std::uint32_t slot = askers_.first_request(client); slot != kNoSlot; slot = askers_.next_request(slot))
      slots.push_back(slot);
    return slots;
  }

  Askers askers_;
};
using Slots = std::vector<std::uint32_t>;

TEST_F(AskersTest, EachFlowOfAClientHasAPlaceOfItsOwn) {
  const std::uint32_t itself = begin(kAskersGateway, 0, 0), first = begin(kAskersGateway, 1, 1), same = begin(kAskersOther, 1, 2);
  EXPECT_EQ((std::set{itself, first, same}.size()), 3u);
  EXPECT_EQ(begin(kAskersGateway, 1, 3), first);
  EXPECT_EQ(askers_.requests(first), 2u);
  EXPECT_EQ(askers_.client(first), kAskersGateway);
  EXPECT_EQ(askers_.flow(first), 1u);
  EXPECT_EQ(askers_.find(kAskersOther, 2), kNoSlot);
  EXPECT_EQ(requests_of(kAskersGateway), (Slots{0, 1, 3})) << "of all its flows, oldest first";
}

TEST_F(AskersTest, AClientKeepsItsPlaceWithoutRequests) {
  const std::uint32_t place = visit(kAskersOther, 0);
  for (std::uint64_t flow = 1; flow < 5'000; ++flow) visit(kAskersGateway, flow);
  EXPECT_EQ(askers_.find(kAskersOther, 0), place);
}

TEST_F(AskersTest, TheFlowThatIsIdleForLongestGivesItsPlaceUp) {
  const std::uint32_t busy = begin(kAskersGateway, 1, 0), idle = visit(kAskersGateway, 2);
  for (std::uint64_t flow = 3; flow < 2 + Askers::kMostIdle; ++flow) visit(kAskersGateway, flow);
  EXPECT_EQ(askers_.find(kAskersGateway, 2), idle);
  EXPECT_EQ(visit(kAskersGateway, 2), idle) << "used again, so another one is idle for longest";
  const std::uint32_t third = askers_.find(kAskersGateway, 3);
  EXPECT_EQ(visit(kAskersOther, 9), third);
  EXPECT_EQ(askers_.find(kAskersGateway, 3), kNoSlot);
  EXPECT_EQ(askers_.find(kAskersGateway, 2), idle);
  EXPECT_EQ(askers_.find(kAskersGateway, 1), busy);
}

TEST_F(AskersTest, HoweverManyFlowsComeNothingGrowsAndNothingIsAllocated) {
  std::uint64_t flow = 0;
  const auto visit_many = [&](std::uint64_t count) {
    for (const std::uint64_t end = flow + count; flow < end;) visit(kAskersGateway, ++flow);
  };
  visit_many(2 * Askers::kMostIdle);
  const std::uint64_t before = test::allocations();
  visit_many(100'000);
  EXPECT_EQ(test::allocations(), before);
  EXPECT_EQ(askers_.places(), Askers::kMostIdle);
}

TEST_F(AskersTest, ManyAtTheSameTimeEachHaveAPlaceWhichIsGivenBack) {
  for (std::uint32_t round = 0; round < 10; ++round) {
    std::vector<std::uint32_t> places;
    for (std::uint32_t slot = 0; slot < 3'000; ++slot) places.push_back(begin(kAskersGateway, 1 + round * 3'000 + slot, slot));
    for (std::uint32_t slot = 0; slot < 3'000; ++slot) askers_.request_ended(places[slot], slot);
  }
  EXPECT_LE(askers_.places(), 3'000 + Askers::kMostIdle);
}

TEST_F(AskersTest, AClientThatIsGoneGivesUpAllItsPlacesWhenItsLastRequestHasEnded) {
  visit(kAskersGateway, 0);
  visit(kAskersGateway, 1);
  const std::uint32_t second = begin(kAskersGateway, 2, 0), third = begin(kAskersGateway, 3, 1);
  askers_.client_gone(kAskersGateway);
  EXPECT_EQ(askers_.find(kAskersGateway, 0), kNoSlot);
  EXPECT_EQ(askers_.find(kAskersGateway, 1), kNoSlot);
  EXPECT_EQ(askers_.find(kAskersGateway, 2), second);
  askers_.request_ended(second, 0);
  EXPECT_EQ(askers_.find(kAskersGateway, 2), kNoSlot);
  EXPECT_EQ(requests_of(kAskersGateway), Slots{1});
  askers_.request_ended(third, 1);
  EXPECT_EQ(requests_of(kAskersGateway), Slots{});
  for (std::uint32_t slot = 0; slot < 4; ++slot) begin(kAskersOther, 10 + slot, slot);
  EXPECT_EQ(askers_.places(), 4u) << "they have the places of those";
  askers_.client_gone(99);  // was never seen
}

}  // namespace
}  // namespace shoal::supervisor
