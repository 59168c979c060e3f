#include <gtest/gtest.h>

#include <random>
#include <set>
#include <tuple>

#include "supervisor/route/deadline_wheel.hpp"
#include "supervisor/route/histogram.hpp"
#include "supervisor/route/request_queue.hpp"
#include "tests/support/allocations.hpp"

namespace shoal::supervisor {
namespace {

// A queue and what its owner keeps.
class RequestQueueTest : public testing::Test {
 protected:
  std::uint32_t push(Waiting waiting) {
    const auto slot = static_cast<std::uint32_t>(table_.size());
    table_.emplace_back();
    waiting.arrival = ++arrivals_;
    static_cast<Waiting&>(table_[slot]) = waiting;
    queue_.push(table_, slot);
    return slot;
  }
  std::uint32_t take() {
    const std::uint32_t slot = queue_.next(table_);
    EXPECT_EQ(queue_.next(table_), slot);  // asking again changes nothing
    if (slot != kNoSlot) queue_.take(table_, slot);
    return slot;
  }
  std::vector<std::uint32_t> take_all() {
    std::vector<std::uint32_t> order;
    while (!queue_.empty()) order.push_back(take());
    EXPECT_EQ(queue_.work_ns(), 0u);
    return order;
  }

  WaitingTable table_;
  RequestQueue queue_;
  std::uint64_t arrivals_ = 0;
};
using Slots = std::vector<std::uint32_t>;

TEST_F(RequestQueueTest, GivesTheHighestPriorityFirstAndTheRestInOrder) {
  for (const std::int8_t priority : {0, 127, -128, 0, 0}) push({.priority = priority});
  EXPECT_EQ(take_all(), (Slots{1, 0, 3, 4, 2}));
  EXPECT_EQ(queue_.next(table_), kNoSlot);
}

TEST_F(RequestQueueTest, WithinAClientReRunsGoFirstThenTheEarliestDeadlineThenArrival) {
  push({});
  push({.deadline_ns = 300});
  push({.deadline_ns = 200});
  push({.deadline_ns = 200});
  push({.rerun = true});
  EXPECT_EQ(take_all(), (Slots{4, 2, 3, 1, 0}));
}

TEST_F(RequestQueueTest, RemovesFromTheMiddle) {
  for (int i = 0; i < 20; ++i)
    push({.client = static_cast<std::uint32_t>(i % 2), .deadline_ns = 1000u - static_cast<unsigned>(i)});
  for (const std::uint32_t slot : {7, 19, 0, 12, 18}) queue_.remove(table_, slot);
  EXPECT_EQ(queue_.size(), 15u);
  EXPECT_EQ(queue_.waiting_of(0), 7u);
  std::array<std::vector<std::uint32_t>, 2> of_client;
  for (const std::uint32_t slot : take_all()) of_client[slot % 2].push_back(slot);
  EXPECT_EQ(of_client[0], (Slots{16, 14, 10, 8, 6, 4, 2}));
  EXPECT_EQ(of_client[1], (Slots{17, 15, 13, 11, 9, 5, 3, 1}));
}

// A thousand of one client wait; what another sends afterwards takes turns with them.
TEST_F(RequestQueueTest, AClientThatFloodsDelaysAnotherByItsShareAndNoMore) {
  for (int i = 0; i < 1000; ++i) push({.client = 1, .cost_ns = 500});
  for (int i = 0; i < 7; ++i) take();
  for (int i = 0; i < 10; ++i) push({.client = 2, .cost_ns = 500});
  int last = 0;
  for (int turn = 1; turn <= 30; ++turn) last = table_[take()].client == 2 ? turn : last;
  EXPECT_LE(last, 21);  // ten of its own, ten of the other, and the one whose turn it was
  EXPECT_EQ(queue_.waiting_of(2), 0u);
}

TEST_F(RequestQueueTest, TurnsAreMeasuredInTimeNotInRequests) {
  for (int i = 0; i < 1000; ++i) push({.client = 1, .cost_ns = 100});
  for (int i = 0; i < 100; ++i) push({.client = 2, .cost_ns = 1000});
  std::array<std::uint64_t, 3> served_ns{};
  for (int turn = 0; turn < 300; ++turn) {
    const std::uint32_t slot = take();
    served_ns[table_[slot].client] += table_[slot].cost_ns;
    if (turn <= 20) continue;
    EXPECT_NEAR(static_cast<double>(served_ns[1]), static_cast<double>(served_ns[2]), 2'100.0) << turn;
  }
}

TEST_F(RequestQueueTest, NoneHasMoreTurnsInARowThanItMust) {
  const std::uint32_t dear = push({.client = 1, .cost_ns = 100'000});
  for (int i = 0; i < 3000; ++i) push({.client = 2 + static_cast<std::uint32_t>(i % 2), .cost_ns = 100});
  std::uint32_t last = kNoSlot;
  int in_a_row = 0, most = 0, dear_turn = 0;
  for (int turn = 1; turn <= 3001; ++turn) {
    const std::uint32_t slot = take();
    if (slot == dear) dear_turn = turn;
    in_a_row = table_[slot].client == last ? in_a_row + 1 : 1;
    last = table_[slot].client;
    most = std::max(most, in_a_row);
  }
  EXPECT_LE(most, 2);
  EXPECT_LE(dear_turn, 2020);  // when each of the others has had as much time
}

TEST_F(RequestQueueTest, ADearRequestLeavesNoCreditBehind) {
  for (int i = 0; i < 3000; ++i) push({.client = 1, .cost_ns = i == 1000 ? 100'000u : 100u});
  for (int turn = 0; turn < 1003; ++turn) take();
  const std::uint32_t newcomer = push({.client = 2, .cost_ns = 100});
  int turns = 1;
  while (take() != newcomer) ++turns;
  EXPECT_LE(turns, 3);
}

TEST_F(RequestQueueTest, ALowLevelHasATurnInSixteen) {
  for (int i = 0; i < 100; ++i) push({.priority = 1});
  for (int i = 0; i < 3; ++i) push({.priority = -1});
  for (int i = 0; i < 4; ++i) push({.priority = -5});
  // The oldest of all are those of level 1, until the others have waited longer.
  std::vector<int> low;
  for (int turn = 1; turn <= 107; ++turn) {
    for (int i = 0; i < 20; ++i) push({.priority = 1});
    const std::uint32_t slot = take();
    if (table_[slot].priority < 1) low.push_back(turn);
  }
  EXPECT_TRUE(low.empty());  // a hundred of level 1 are older still
  for (int turn = 1; turn <= 16 * 130; ++turn) {
    const std::uint32_t slot = take();
    if (table_[slot].priority < 1) low.push_back(turn);
  }
  EXPECT_EQ(low.size(), 7u);
}

TEST_F(RequestQueueTest, ThoseThatRunAlongAreTakenInTurnAndPaidFor) {
  for (int i = 0; i < 40; ++i) push({.client = 1, .cost_ns = 100});
  for (int i = 0; i < 4; ++i) push({.client = 2, .cost_ns = 100});
  std::array<int, 3> in_first{};
  ++in_first[table_[take()].client];
  for (int i = 0; i < 7; ++i) {
    const std::uint32_t slot = queue_.next_like(table_, [](std::uint32_t) { return true; });
    ++in_first[table_[slot].client];
    queue_.take_along(table_, slot);
  }
  EXPECT_EQ(in_first[1] + in_first[2], 8);
  EXPECT_GE(in_first[2], 3);
  EXPECT_EQ(queue_.next_like(table_, [](std::uint32_t) { return false; }), kNoSlot);
}

TEST_F(RequestQueueTest, TheFirstThatJoinsMayStandBehindOthersOfItsClient) {
  std::vector<std::uint32_t> slots;
  for (int i = 0; i < 10; ++i) slots.push_back(push({.client = 1}));
  const auto is_even = [&](std::uint32_t slot) { return (std::ranges::find(slots, slot) - slots.begin()) % 2 == 0; };
  EXPECT_EQ(take(), slots[0]);
  for (const std::size_t i : {2u, 4u, 6u, 8u}) {
    const std::uint32_t slot = queue_.next_like(table_, is_even);
    EXPECT_EQ(slot, slots[i]);
    queue_.take_along(table_, slot);
  }
  EXPECT_EQ(queue_.next_like(table_, is_even), kNoSlot);
  EXPECT_EQ(take(), slots[1]);
}

TEST_F(RequestQueueTest, WhatRunsBeforeANewcomerIsItsOwnAndAsMuchOfOthers) {
  for (int i = 0; i < 100; ++i) push({.client = 1, .cost_ns = 10});
  const Waiting newcomer{.client = 2, .arrival = 1000, .cost_ns = 10};
  EXPECT_EQ(queue_.work_before_ns(table_, newcomer, false), 10u);  // a quantum of the other
  push({.client = 2, .cost_ns = 10});
  push({.client = 2, .deadline_ns = 5, .cost_ns = 10});
  EXPECT_EQ(queue_.work_before_ns(table_, newcomer, false), 20u + 30u);
  Waiting urgent = newcomer;
  urgent.deadline_ns = 7;
  EXPECT_EQ(queue_.work_before_ns(table_, urgent, true), 10u + 20u);  // its own without a deadline comes later
  push({.client = 3, .priority = 1, .cost_ns = 1000});
  EXPECT_EQ(queue_.work_before_ns(table_, urgent, true), 1030u);
}

// Against a model that sorts: same clients, any order of pushes, takes and removals.
TEST_F(RequestQueueTest, NothingIsLostOrGivenTwiceInRandomHistories) {
  std::mt19937 random(7);
  std::set<std::uint32_t> waiting;
  for (int step = 0; step < 20'000; ++step) {
    const unsigned what = random() % 10;
    if (what < 5) {
      waiting.insert(push({.client = static_cast<std::uint32_t>(random() % 20),
                           .priority = static_cast<std::int8_t>(random() % 4),
                           .rerun = random() % 16 == 0,
                           .deadline_ns = random() % 2 ? kNoDeadline : random() % 1000,
                           .cost_ns = random() % 1000}));
    } else if (what < 9) {
      const std::uint32_t slot = take();
      ASSERT_EQ(slot == kNoSlot, waiting.empty());
      if (slot == kNoSlot) continue;
      ASSERT_EQ(waiting.erase(slot), 1u);
      // Nothing of the same client and level should have gone before it.
      for (const std::uint32_t other : waiting) {
        const Waiting &a = table_[slot], &b = table_[other];
        if (a.client != b.client || a.priority != b.priority) continue;
        ASSERT_LE(std::tuple(!a.rerun, a.deadline_ns, a.arrival), std::tuple(!b.rerun, b.deadline_ns, b.arrival));
      }
    } else if (!waiting.empty()) {
      const std::uint32_t slot = *std::next(waiting.begin(), static_cast<std::ptrdiff_t>(random() % waiting.size()));
      queue_.remove(table_, slot);
      waiting.erase(slot);
    }
    ASSERT_EQ(queue_.size(), waiting.size());
  }
}

TEST_F(RequestQueueTest, NothingIsAllocatedInTheLongRun) {
  const auto round = [&] {  // clients come and go
    for (std::uint32_t slot = 0; slot < 256; ++slot) {
      static_cast<Waiting&>(table_[slot]) = {
          .client = slot % 16, .priority = static_cast<std::int8_t>(slot % 3), .arrival = ++arrivals_};
      queue_.push(table_, slot);
    }
    while (!queue_.empty()) queue_.take(table_, queue_.next(table_));
  };
  table_.resize(256);
  for (int i = 0; i < 40; ++i) round();
  const std::uint64_t before = allocations();
  for (int i = 0; i < 100; ++i) round();
  EXPECT_EQ(allocations(), before);
}

TEST(DeadlineWheel, FiresWhenDueAndNotBefore) {
  constexpr std::uint64_t kStart = 5'000'000'000;
  DeadlineWheel wheel;
  std::vector<std::uint32_t> due;
  wheel.advance(kStart, due);
  wheel.add(3, kStart + 30'000'000'000);  // many turns away
  wheel.add(4, kStart + 10'000'000);
  wheel.add(5, kStart - 1);  // due already
  std::uint64_t fired_at[6] = {};
  for (std::uint64_t now = kStart; now < kStart + 31'000'000'000; now += 1'000'000) {
    wheel.advance(now, due);
    for (const std::uint32_t slot : due) fired_at[slot] = now;
  }
  EXPECT_EQ(fired_at[5], kStart);
  EXPECT_GE(fired_at[4], kStart + 10'000'000);
  EXPECT_LE(fired_at[4], kStart + 10'000'000 + DeadlineWheel::kTickNs);
  EXPECT_GE(fired_at[3], kStart + 30'000'000'000);
  EXPECT_LE(fired_at[3], kStart + 30'000'000'000 + DeadlineWheel::kTickNs);
  EXPECT_FALSE(wheel.next_ns(kStart).has_value());
}

TEST(DeadlineWheel, SurvivesLongSleepsAndForgetsWhatIsRemoved) {
  DeadlineWheel wheel;
  std::vector<std::uint32_t> due;
  wheel.advance(1'000'000'000, due);
  for (std::uint32_t slot = 0; slot < 1000; ++slot) wheel.add(slot, 1'000'000'000 + slot * 7'000'000ull);
  wheel.remove(500);
  wheel.remove(500);
  wheel.advance(100'000'000'000, due);
  EXPECT_EQ(due.size(), 999u);
  EXPECT_EQ(std::count(due.begin(), due.end(), 500u), 0);
}

TEST(Histogram, QuantilesAreRightToAFewPercent) {
  Histogram histogram;
  for (std::uint64_t value = 1; value <= 100'000; ++value) histogram.add(value);
  EXPECT_NEAR(static_cast<double>(histogram.quantile(0.5)), 50'000, 3'500);
  EXPECT_NEAR(static_cast<double>(histogram.quantile(0.99)), 99'000, 7'000);
  histogram.add(~std::uint64_t{0});
  EXPECT_GT(histogram.quantile(1.0 - 1e-9), 1'000'000u);
}

}  // namespace
}  // namespace shoal::supervisor
