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

// A queue, and the table that its owner keeps.
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
    EXPECT_EQ(queue_.next(table_), slot);  // a second call returns the same
    if (slot != kNoSlot) queue_.take(table_, slot);
    return slot;
  }
  std::vector<std::uint32_t> take_all() {
    std::vector<std::uint32_t> order;
    while (!queue_.empty()) order.push_back(take());
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

TEST_F(RequestQueueTest, AClientThatIsHeldHasNoTurnsAndDelaysNobody) {
  for (int i = 0; i < 3; ++i) push({.client = 1, .cost_ns = 100});
  push({.client = 2, .cost_ns = 10});
  const Waiting newcomer{.client = 2, .arrival = 100, .cost_ns = 10};
  EXPECT_GT(queue_.work_before_ns(table_, newcomer, true), 10u);
  queue_.hold(table_, 1);
  EXPECT_EQ(queue_.work_before_ns(table_, newcomer, true), 10u);
  push({.client = 1, .cost_ns = 100});
  EXPECT_EQ(take(), 3u);
  EXPECT_EQ(take(), kNoSlot);
  EXPECT_EQ(queue_.size(), 4u);
  EXPECT_EQ(queue_.apart(), 4u);
  EXPECT_EQ(queue_.youngest_apart(table_), 4u);
  EXPECT_EQ(queue_.work_before_ns(table_, newcomer, true), 0u);
  EXPECT_EQ(queue_.work_before_ns(table_, {.client = kNoSlot}, false), 0u) << "nor a client that was never seen";
  EXPECT_EQ(queue_.work_before_ns(table_, {.client = 1}, false), 400u);
  queue_.remove(table_, 1);
  EXPECT_EQ(queue_.apart(), 3u);
  queue_.release(table_, 1);
  EXPECT_EQ(queue_.apart(), 3u) << "until nothing of it waits";
  EXPECT_EQ(take(), 0u);
  queue_.hold(table_, 1);
  EXPECT_EQ(queue_.apart(), 2u);
  queue_.release(table_, 1);
  EXPECT_EQ(take_all(), (Slots{2, 4}));
  EXPECT_FALSE(queue_.is_apart(1));
  queue_.hold(table_, 1);
  push({.client = 1});
  EXPECT_EQ(queue_.apart(), 1u);
  EXPECT_EQ(take(), kNoSlot);
  queue_.release(table_, 1);
  EXPECT_EQ(take_all(), Slots{5});
}

TEST_F(RequestQueueTest, TheYoungestApartIsOfTheClientThatHasMost) {
  EXPECT_EQ(queue_.youngest_apart(table_), kNoSlot);
  for (int i = 0; i < 3; ++i) push({.client = 1});
  for (int i = 0; i < 2; ++i) push({.client = 2});
  for (int i = 0; i < 4; ++i) push({.client = 3});
  for (int i = 0; i < 5; ++i) push({.client = 4, .rerun = true});
  for (const std::uint32_t client : {1u, 2u, 4u}) queue_.hold(table_, client);
  EXPECT_EQ(queue_.youngest_apart(table_), 2u) << "client 3 is not apart, and client 4 has only re-runs";
  queue_.remove(table_, 2);
  queue_.remove(table_, 1);
  EXPECT_EQ(queue_.youngest_apart(table_), 4u);
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

// A thousand requests of one client wait. The requests that another client sends later take turns with them.
TEST_F(RequestQueueTest, AClientThatFloodsDelaysAnotherByItsShareAndNoMore) {
  for (int i = 0; i < 1000; ++i) push({.client = 1, .cost_ns = 500});
  for (int i = 0; i < 7; ++i) take();
  for (int i = 0; i < 10; ++i) push({.client = 2, .cost_ns = 500});
  int last = 0;
  for (int turn = 1; turn <= 30; ++turn) last = table_[take()].client == 2 ? turn : last;
  EXPECT_LE(last, 21);  // ten of its own, ten of the other client, and one whose turn had begun
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

TEST_F(RequestQueueTest, NoClientHasMoreTurnsInARowThanItNeeds) {
  const std::uint32_t expensive = push({.client = 1, .cost_ns = 100'000});
  for (int i = 0; i < 3000; ++i) push({.client = 2 + static_cast<std::uint32_t>(i % 2), .cost_ns = 100});
  std::uint32_t last = kNoSlot;
  int in_a_row = 0, most = 0, expensive_turn = 0;
  for (int turn = 1; turn <= 3001; ++turn) {
    const std::uint32_t slot = take();
    if (slot == expensive) expensive_turn = turn;
    in_a_row = table_[slot].client == last ? in_a_row + 1 : 1;
    last = table_[slot].client;
    most = std::max(most, in_a_row);
  }
  EXPECT_LE(most, 2);
  EXPECT_LE(expensive_turn, 2020);  // by then each other client has had as much time
}

TEST_F(RequestQueueTest, AnExpensiveRequestLeavesNoCreditBehind) {
  for (int i = 0; i < 3000; ++i) push({.client = 1, .cost_ns = i == 1000 ? 100'000u : 100u});
  for (int turn = 0; turn < 1003; ++turn) take();
  const std::uint32_t newcomer = push({.client = 2, .cost_ns = 100});
  int turns = 1;
  while (take() != newcomer) ++turns;
  EXPECT_LE(turns, 3);
}

// The requests of client 2 take twenty times as long as predicted, those of client 1 just as long.
TEST_F(RequestQueueTest, ARunThatTakesLongerThanPredictedIsPaidFromTheNextRounds) {
  for (int i = 0; i < 200; ++i) push({.client = 1, .cost_ns = 100});
  std::array<std::uint64_t, 3> served_ns{};
  std::uint32_t waits = kNoSlot;
  for (int turn = 0; turn < 400; ++turn) {
    // Client 2 has one request at a time, so its flow is dropped after each.
    if (waits == kNoSlot) waits = push({.client = 2, .cost_ns = 100});
    if (queue_.waiting_of(1) < 10) push({.client = 1, .cost_ns = 100});
    const std::uint32_t slot = take();
    if (slot == waits) waits = kNoSlot;
    const std::uint64_t took_ns = table_[slot].client == 2 ? 2000 : 100;
    served_ns[table_[slot].client] += took_ns;
    queue_.settle(table_[slot], took_ns);
  }
  EXPECT_NEAR(static_cast<double>(served_ns[1]), static_cast<double>(served_ns[2]), 4'000.0);
}

TEST_F(RequestQueueTest, ARunThatTakesLessThanPredictedGivesNoTurnInAdvance) {
  for (int i = 0; i < 100; ++i) {
    push({.client = 1, .cost_ns = 1000});
    push({.client = 2, .cost_ns = 1000});
  }
  int of_first = 0;
  for (int turn = 0; turn < 100; ++turn) {
    const std::uint32_t slot = take();
    of_first += table_[slot].client == 1;
    queue_.settle(table_[slot], table_[slot].client == 1 ? 1 : 1000);
  }
  EXPECT_LE(of_first, 51);
}

// The requests of client 2 take a tenth of what was predicted, and then as long as those of client 1.
TEST_F(RequestQueueTest, WhatWasPaidTooMuchPaysForTheNextTurns) {
  for (int i = 0; i < 20; ++i) push({.client = 1, .cost_ns = 100});
  std::array<std::uint64_t, 3> served_ns{};
  std::uint32_t waits = kNoSlot;
  for (int turn = 0; turn < 400; ++turn) {
    if (waits == kNoSlot) waits = push({.client = 2, .cost_ns = 1000});
    if (queue_.waiting_of(1) < 10) push({.client = 1, .cost_ns = 100});
    const std::uint32_t slot = take();
    if (slot == waits) waits = kNoSlot;
    served_ns[table_[slot].client] += 100;
    queue_.settle(table_[slot], 100);
  }
  EXPECT_NEAR(static_cast<double>(served_ns[1]), static_cast<double>(served_ns[2]), 2'100.0);
}

TEST_F(RequestQueueTest, ADebtEndsWithTheQueueAndWithItsClient) {
  const auto turns_until_served = [&](std::uint32_t client) {
    const std::uint32_t slot = push({.client = client, .cost_ns = 100});
    int turns = 1;
    while (take() != slot) ++turns;
    return turns;
  };
  const auto owe = [&] {
    const std::uint32_t slot = push({.client = 2, .cost_ns = 100});
    for (int i = 0; i < 200; ++i) push({.client = 1, .cost_ns = 100});
    while (queue_.waiting_of(2) > 0) take();
    queue_.settle(table_[slot], 10'000);
  };
  owe();
  EXPECT_GE(turns_until_served(2), 90);
  take_all();
  owe();
  take_all();
  for (int i = 0; i < 200; ++i) push({.client = 1, .cost_ns = 100});
  EXPECT_LE(turns_until_served(2), 3) << "nobody waits any more whom it kept waiting";
  take_all();
  owe();
  queue_.forget_client(2);
  EXPECT_LE(turns_until_served(2), 3) << "another client has its number";
}

TEST_F(RequestQueueTest, ADebtIsNotPaidByRequestsThatAreTakenBack) {
  const std::uint32_t owes = push({.client = 2, .cost_ns = 100});
  for (int i = 0; i < 200; ++i) push({.client = 1, .cost_ns = 100});
  while (queue_.waiting_of(2) > 0) take();
  queue_.settle(table_[owes], 10'000);
  for (int i = 0; i < 1000; ++i) {
    const std::uint32_t slot = push({.client = 2, .cost_ns = 100});
    queue_.next(table_);
    queue_.remove(table_, slot);
  }
  const std::uint32_t last = push({.client = 2, .cost_ns = 100});
  int turns = 1;
  while (take() != last) ++turns;
  EXPECT_GE(turns, 90);
}

// A lane may be unable to take the request whose turn it is, and another client may come meanwhile.
TEST_F(RequestQueueTest, ADebtIsNotPaidByATurnThatNobodyTakes) {
  const std::uint32_t owes = push({.client = 2, .cost_ns = 100});
  const std::uint32_t other = push({.client = 1, .cost_ns = 100});
  while (queue_.waiting_of(2) > 0) take();
  queue_.settle(table_[owes], 10'000);
  const std::uint32_t waits = push({.client = 2, .cost_ns = 100});
  if (queue_.waiting_of(1) > 0) queue_.remove(table_, other);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(queue_.next(table_), waits) << "it waits alone";
  for (int i = 0; i < 200; ++i) push({.client = 1, .cost_ns = 100});
  int turns = 1;
  while (take() != waits) ++turns;
  EXPECT_GE(turns, 90);
}

TEST_F(RequestQueueTest, ATurnThatNobodyTakesChangesNoOrder) {
  const auto order = [](bool asks) {
    RequestQueue queue;
    WaitingTable table(300);
    std::vector<std::uint32_t> slots;
    for (std::uint32_t slot = 0; slot < 300; ++slot) {
      static_cast<Waiting&>(table[slot]) = {.client = slot % 3, .arrival = slot + 1, .cost_ns = slot % 3 * 700 + 1};
      queue.push(table, slot);
      if (asks) queue.next(table);
    }
    while (!queue.empty()) {
      slots.push_back(queue.next(table));
      queue.take(table, slots.back());
      if (asks && !queue.empty()) {
        queue.next(table);
        queue.settle(table[slots.back()], table[slots.back()].cost_ns);  // what was predicted
      }
    }
    return slots;
  };
  EXPECT_EQ(order(true), order(false));
}

// The requests of client 2 always run in batches of client 1, so they never wait for their own turn.
TEST_F(RequestQueueTest, RequestsThatRanInOthersBatchesArePaidForByTheNextTurns) {
  for (int i = 0; i < 100; ++i) push({.client = 1, .cost_ns = 100});
  const auto is_of_second = [&](std::uint32_t slot) { return table_[slot].client == 2; };
  for (int i = 0; i < 10; ++i) {
    push({.client = 2, .cost_ns = 1000});
    queue_.take_along(table_, queue_.next_like(table_, is_of_second));
  }
  const std::uint32_t last = push({.client = 2, .cost_ns = 100});
  int turns = 1;
  while (take() != last) ++turns;
  EXPECT_GE(turns, 80);
}

TEST_F(RequestQueueTest, NobodyIsToldToWaitForTheDebtsOfOthers) {
  const std::uint32_t slot = push({.client = 1, .cost_ns = 100});
  for (int i = 0; i < 100; ++i) push({.client = 1, .cost_ns = 100});
  EXPECT_EQ(take(), slot);
  queue_.settle(table_[slot], 1'000'000);
  take();
  EXPECT_EQ(queue_.work_before_ns(table_, {.client = 2, .arrival = 1000, .cost_ns = 100}, true), 100u);
  // A client with debts waits until the others have had as much time.
  push({.client = 2, .cost_ns = 100});
  const std::uint32_t owes = push({.client = 3, .cost_ns = 100});
  while (take() != owes) {
  }
  queue_.settle(table_[owes], 1'100);
  EXPECT_GE(queue_.work_before_ns(table_, {.client = 3, .arrival = 1000, .cost_ns = 100}, true), 1'100u);
}

TEST_F(RequestQueueTest, APriorityTakesNoTurnFromAnotherClient) {
  for (int i = 0; i < 200; ++i) push({.client = 1, .priority = 127});
  for (int i = 0; i < 200; ++i) push({.client = 2, .priority = static_cast<std::int8_t>(i % 2 - 128)});
  std::array<int, 3> turns{};
  for (int turn = 0; turn < 100; ++turn) ++turns[table_[take()].client];
  EXPECT_EQ(turns[1], 50);
  EXPECT_EQ(turns[2], 50);
}

// Client 1 has one request that is older than all others and never the first of its client.
TEST_F(RequestQueueTest, NobodyStarvesBehindAnOldRequestOfAHighPriority) {
  push({.client = 1, .priority = 127});
  push({.client = 2});
  int turns = 0;
  for (; turns < 1'000 && queue_.waiting_of(2) > 0; ++turns) {
    push({.client = 1, .priority = 127, .deadline_ns = 5});
    take();
  }
  EXPECT_LE(turns, 2);
}

TEST_F(RequestQueueTest, TheOldestRequestOfAClientHasATurnInSixteen) {
  for (int i = 0; i < 100; ++i) push({.priority = 1});
  for (int i = 0; i < 3; ++i) push({.priority = -1});
  for (int i = 0; i < 4; ++i) push({.priority = -5});
  // At first the requests of priority 1 are the oldest.
  std::vector<int> low;
  for (int turn = 1; turn <= 107; ++turn) {
    for (int i = 0; i < 20; ++i) push({.priority = 1});
    const std::uint32_t slot = take();
    if (table_[slot].priority < 1) low.push_back(turn);
  }
  EXPECT_TRUE(low.empty());
  for (int turn = 1; turn <= 16 * 8; ++turn) {
    const std::uint32_t slot = take();
    if (table_[slot].priority < 1) low.push_back(turn);
  }
  EXPECT_EQ(low.size(), 7u);
}

TEST_F(RequestQueueTest, RequestsThatRunInOthersBatchesAreTakenInTurnAndPaidFor) {
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

TEST_F(RequestQueueTest, BeforeANewRequestRunThoseOfItsClientAndAsManyOfOthers) {
  for (int i = 0; i < 100; ++i) push({.client = 1, .cost_ns = 10});
  const Waiting newcomer{.client = 2, .arrival = 1000, .cost_ns = 10};
  EXPECT_EQ(queue_.work_before_ns(table_, newcomer, false), 10u);  // a quantum of the other
  push({.client = 2, .cost_ns = 10});
  push({.client = 2, .deadline_ns = 5, .cost_ns = 10});
  EXPECT_EQ(queue_.work_before_ns(table_, newcomer, false), 20u + 30u);
  Waiting urgent = newcomer;
  urgent.deadline_ns = 7;
  EXPECT_EQ(queue_.work_before_ns(table_, urgent, true), 10u + 20u);  // its own request without a deadline goes later
  push({.client = 3, .priority = 1, .cost_ns = 1000});
  EXPECT_EQ(queue_.work_before_ns(table_, urgent, true), 10u + 2 * 20u);  // of each other client as much
  urgent.priority = 1;
  EXPECT_EQ(queue_.work_before_ns(table_, urgent, true), 2 * 10u);  // its own requests go later
}

// Random pushes, takes and removals, checked against a set of the waiting requests.
TEST_F(RequestQueueTest, NothingIsLostOrGivenTwiceInRandomHistories) {
  std::mt19937 random(7);
  std::set<std::uint32_t> waiting;
  int by_age = 0, taken = 0;
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
      ++taken;
      // No other request of the same client should have gone first, except in the turns of the oldest.
      const Waiting& a = table_[slot];
      bool is_oldest = true, is_first = true;
      for (const std::uint32_t other : waiting) {
        const Waiting& b = table_[other];
        if (a.client != b.client) continue;
        is_oldest &= a.rerun || (!b.rerun && a.arrival < b.arrival);
        is_first &= std::tuple(-a.priority, !a.rerun, a.deadline_ns, a.arrival) <=
                    std::tuple(-b.priority, !b.rerun, b.deadline_ns, b.arrival);
      }
      ASSERT_TRUE(is_first || is_oldest);
      by_age += !is_first;
    } else if (!waiting.empty()) {
      const std::uint32_t slot = *std::next(waiting.begin(), static_cast<std::ptrdiff_t>(random() % waiting.size()));
      queue_.remove(table_, slot);
      waiting.erase(slot);
    }
    ASSERT_EQ(queue_.size(), waiting.size());
  }
  EXPECT_LE(by_age, taken / 16);
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
  const std::uint64_t before = test::allocations();
  for (int i = 0; i < 100; ++i) round();
  EXPECT_EQ(test::allocations(), before);
}

TEST(DeadlineWheel, FiresWhenDueAndNotBefore) {
  constexpr std::uint64_t kStart = 5'000'000'000;
  DeadlineWheel wheel;
  std::vector<std::uint32_t> due;
  wheel.advance(kStart, due);
  wheel.add(3, kStart + 30'000'000'000);  // many turns of the wheel away
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
  EXPECT_EQ(histogram.sum(), 5'000'050'000u);
  histogram.add(~std::uint64_t{0});
  EXPECT_GT(histogram.quantile(1.0 - 1e-9), 1'000'000u);
}

}  // namespace
}  // namespace shoal::supervisor
