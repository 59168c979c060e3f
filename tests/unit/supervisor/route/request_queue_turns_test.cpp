// The turns that clients take: by time, with debts for runs that took longer than was predicted, and with priorities.
#include <algorithm>
#include <array>
#include <vector>

#include "tests/unit/supervisor/route/request_queue_fixture.hpp"

namespace shoal::supervisor {
namespace {

// A thousand requests of one client wait. The requests that another client sends later take turns with them.
TEST_F(RequestQueueTest, AClientThatFloodsDelaysAnotherByItsShareAndNoMore) {
  for (int i = 0; i < 1000; ++i) push({.asker = 1, .cost_ns = 500});
  for (int i = 0; i < 7; ++i) take();
  for (int i = 0; i < 10; ++i) push({.asker = 2, .cost_ns = 500});
  int last = 0;
  for (int turn = 1; turn <= 30; ++turn) last = table_[take()].asker == 2 ? turn : last;
  EXPECT_LE(last, 21);  // ten of its own, ten of the other client, and one whose turn had begun
  EXPECT_EQ(queue_.waiting_of(2), 0u);
}

TEST_F(RequestQueueTest, TurnsAreMeasuredInTimeNotInRequests) {
  for (int i = 0; i < 1000; ++i) push({.asker = 1, .cost_ns = 100});
  for (int i = 0; i < 100; ++i) push({.asker = 2, .cost_ns = 1000});
  std::array<std::uint64_t, 3> served_ns{};
  for (int turn = 0; turn < 300; ++turn) {
    const std::uint32_t slot = take();
    served_ns[table_[slot].asker] += table_[slot].cost_ns;
    if (turn <= 20) continue;
    EXPECT_NEAR(static_cast<double>(served_ns[1]), static_cast<double>(served_ns[2]), 2'100.0) << turn;
  }
}

TEST_F(RequestQueueTest, NoClientHasMoreTurnsInARowThanItNeeds) {
  const std::uint32_t expensive = push({.asker = 1, .cost_ns = 100'000});
  for (int i = 0; i < 3000; ++i) push({.asker = 2 + static_cast<std::uint32_t>(i % 2), .cost_ns = 100});
  std::uint32_t last = kNoSlot;
  int in_a_row = 0, most = 0, expensive_turn = 0;
  for (int turn = 1; turn <= 3001; ++turn) {
    const std::uint32_t slot = take();
    if (slot == expensive) expensive_turn = turn;
    in_a_row = table_[slot].asker == last ? in_a_row + 1 : 1;
    last = table_[slot].asker;
    most = std::max(most, in_a_row);
  }
  EXPECT_LE(most, 2);
  EXPECT_LE(expensive_turn, 2020);  // by then each other client has had as much time
}

TEST_F(RequestQueueTest, AnExpensiveRequestLeavesNoCreditBehind) {
  for (int i = 0; i < 3000; ++i) push({.asker = 1, .cost_ns = i == 1000 ? 100'000u : 100u});
  for (int turn = 0; turn < 1003; ++turn) take();
  const std::uint32_t newcomer = push({.asker = 2, .cost_ns = 100});
  int turns = 1;
  while (take() != newcomer) ++turns;
  EXPECT_LE(turns, 3);
}

// The requests of client 2 take twenty times as long as predicted, those of client 1 just as long.
TEST_F(RequestQueueTest, ARunThatTakesLongerThanPredictedIsPaidFromTheNextRounds) {
  for (int i = 0; i < 200; ++i) push({.asker = 1, .cost_ns = 100});
  std::array<std::uint64_t, 3> served_ns{};
  std::uint32_t waits = kNoSlot;
  for (int turn = 0; turn < 400; ++turn) {
    // Client 2 has one request at a time, so its flow is dropped after each.
    if (waits == kNoSlot) waits = push({.asker = 2, .cost_ns = 100});
    if (queue_.waiting_of(1) < 10) push({.asker = 1, .cost_ns = 100});
    const std::uint32_t slot = take();
    if (slot == waits) waits = kNoSlot;
    const std::uint64_t took_ns = table_[slot].asker == 2 ? 2000 : 100;
    served_ns[table_[slot].asker] += took_ns;
    queue_.settle(table_[slot], took_ns);
  }
  EXPECT_NEAR(static_cast<double>(served_ns[1]), static_cast<double>(served_ns[2]), 4'000.0);
}

TEST_F(RequestQueueTest, ARunThatTakesLessThanPredictedGivesNoTurnInAdvance) {
  for (int i = 0; i < 100; ++i) {
    push({.asker = 1, .cost_ns = 1000});
    push({.asker = 2, .cost_ns = 1000});
  }
  int of_first = 0;
  for (int turn = 0; turn < 100; ++turn) {
    const std::uint32_t slot = take();
    of_first += table_[slot].asker == 1;
    queue_.settle(table_[slot], table_[slot].asker == 1 ? 1 : 1000);
  }
  EXPECT_LE(of_first, 51);
}

// The requests of client 2 take a tenth of what was predicted, and then as long as those of client 1.
TEST_F(RequestQueueTest, WhatWasPaidTooMuchPaysForTheNextTurns) {
  for (int i = 0; i < 20; ++i) push({.asker = 1, .cost_ns = 100});
  std::array<std::uint64_t, 3> served_ns{};
  std::uint32_t waits = kNoSlot;
  for (int turn = 0; turn < 400; ++turn) {
    if (waits == kNoSlot) waits = push({.asker = 2, .cost_ns = 1000});
    if (queue_.waiting_of(1) < 10) push({.asker = 1, .cost_ns = 100});
    const std::uint32_t slot = take();
    if (slot == waits) waits = kNoSlot;
    served_ns[table_[slot].asker] += 100;
    queue_.settle(table_[slot], 100);
  }
  EXPECT_NEAR(static_cast<double>(served_ns[1]), static_cast<double>(served_ns[2]), 2'100.0);
}

TEST_F(RequestQueueTest, ADebtEndsWithTheQueueAndWithItsClient) {
  const auto turns_until_served = [&](std::uint32_t client) {
    const std::uint32_t slot = push({.asker = client, .cost_ns = 100});
    int turns = 1;
    while (take() != slot) ++turns;
    return turns;
  };
  const auto owe = [&] {
    const std::uint32_t slot = push({.asker = 2, .cost_ns = 100});
    for (int i = 0; i < 200; ++i) push({.asker = 1, .cost_ns = 100});
    while (queue_.waiting_of(2) > 0) take();
    queue_.settle(table_[slot], 10'000);
  };
  owe();
  EXPECT_GE(turns_until_served(2), 90);
  take_all();
  owe();
  take_all();
  for (int i = 0; i < 200; ++i) push({.asker = 1, .cost_ns = 100});
  EXPECT_LE(turns_until_served(2), 3) << "nobody waits any more whom it kept waiting";
  take_all();
  owe();
  queue_.forget(2);
  EXPECT_LE(turns_until_served(2), 3) << "another client has its number";
}

// One client that is held leaves a request waiting, for as long as it likes.
TEST_F(RequestQueueTest, ARequestThatIsHeldKeepsNoDebtOfOthersAlive) {
  constexpr std::uint32_t kHeld = 1, kVictim = 2, kOther = 3;
  constexpr std::uint64_t kMilli = 1'000'000;
  push({.asker = kHeld});
  queue_.hold(table_, kHeld);
  const std::uint32_t long_run = push({.asker = kVictim, .cost_ns = kMilli});
  EXPECT_EQ(take(), long_run);
  queue_.settle(table_[long_run], 1'000 * kMilli);
  for (int i = 0; i < 10; ++i) push({.asker = kOther, .cost_ns = kMilli});
  const std::uint32_t next = push({.asker = kVictim, .cost_ns = kMilli});
  Slots first_two{take(), take()};
  EXPECT_TRUE(std::ranges::count(first_two, next)) << "nobody waited for the long run";
}

TEST_F(RequestQueueTest, ADebtEndsWhenAllThatWaitAreHeld) {
  constexpr std::uint32_t kHeld = 1, kVictim = 2, kOther = 3;
  const std::uint32_t long_run = push({.asker = kVictim, .cost_ns = 10});
  push({.asker = kHeld, .cost_ns = 10});
  EXPECT_EQ(take(), long_run);
  queue_.settle(table_[long_run], 1'000'000);  // the other one waited for it
  queue_.hold(table_, kHeld);
  for (int i = 0; i < 10; ++i) push({.asker = kOther, .cost_ns = 10});
  const std::uint32_t next = push({.asker = kVictim, .cost_ns = 10});
  Slots first_two{take(), take()};
  EXPECT_TRUE(std::ranges::count(first_two, next));
}

TEST_F(RequestQueueTest, ADebtIsNotPaidByRequestsThatAreTakenBack) {
  const std::uint32_t owes = push({.asker = 2, .cost_ns = 100});
  for (int i = 0; i < 200; ++i) push({.asker = 1, .cost_ns = 100});
  while (queue_.waiting_of(2) > 0) take();
  queue_.settle(table_[owes], 10'000);
  for (int i = 0; i < 1000; ++i) {
    const std::uint32_t slot = push({.asker = 2, .cost_ns = 100});
    queue_.next(table_);
    queue_.remove(table_, slot);
  }
  const std::uint32_t last = push({.asker = 2, .cost_ns = 100});
  int turns = 1;
  while (take() != last) ++turns;
  EXPECT_GE(turns, 90);
}

// A lane may be unable to take the request whose turn it is, and another client may come meanwhile.
TEST_F(RequestQueueTest, ADebtIsNotPaidByATurnThatNobodyTakes) {
  const std::uint32_t owes = push({.asker = 2, .cost_ns = 100});
  const std::uint32_t other = push({.asker = 1, .cost_ns = 100});
  while (queue_.waiting_of(2) > 0) take();
  queue_.settle(table_[owes], 10'000);
  const std::uint32_t waits = push({.asker = 2, .cost_ns = 100});
  if (queue_.waiting_of(1) > 0) queue_.remove(table_, other);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(queue_.next(table_), waits) << "it waits alone";
  for (int i = 0; i < 200; ++i) push({.asker = 1, .cost_ns = 100});
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
      static_cast<Waiting&>(table[slot]) = {.asker = slot % 3, .arrival = slot + 1, .cost_ns = slot % 3 * 700 + 1};
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
  for (int i = 0; i < 100; ++i) push({.asker = 1, .cost_ns = 100});
  const auto is_of_second = [&](std::uint32_t slot) { return table_[slot].asker == 2; };
  for (int i = 0; i < 10; ++i) {
    push({.asker = 2, .cost_ns = 1000});
    queue_.take_along(table_, queue_.next_like(table_, is_of_second));
  }
  const std::uint32_t last = push({.asker = 2, .cost_ns = 100});
  int turns = 1;
  while (take() != last) ++turns;
  EXPECT_GE(turns, 80);
}

TEST_F(RequestQueueTest, NobodyIsToldToWaitForTheDebtsOfOthers) {
  const std::uint32_t slot = push({.asker = 1, .cost_ns = 100});
  for (int i = 0; i < 100; ++i) push({.asker = 1, .cost_ns = 100});
  EXPECT_EQ(take(), slot);
  queue_.settle(table_[slot], 1'000'000);
  take();
  EXPECT_EQ(queue_.work_before_ns(table_, {.asker = 2, .arrival = 1000, .cost_ns = 100}, true), 100u);
  // A client with debts waits until the others have had as much time.
  push({.asker = 2, .cost_ns = 100});
  const std::uint32_t owes = push({.asker = 3, .cost_ns = 100});
  while (take() != owes) {
  }
  queue_.settle(table_[owes], 1'100);
  EXPECT_GE(queue_.work_before_ns(table_, {.asker = 3, .arrival = 1000, .cost_ns = 100}, true), 1'100u);
}

TEST_F(RequestQueueTest, APriorityTakesNoTurnFromAnotherClient) {
  for (int i = 0; i < 200; ++i) push({.asker = 1, .priority = 127});
  for (int i = 0; i < 200; ++i) push({.asker = 2, .priority = static_cast<std::int8_t>(i % 2 - 128)});
  std::array<int, 3> turns{};
  for (int turn = 0; turn < 100; ++turn) ++turns[table_[take()].asker];
  EXPECT_EQ(turns[1], 50);
  EXPECT_EQ(turns[2], 50);
}

// Client 1 has one request that is older than all others and never the first of its client.
TEST_F(RequestQueueTest, NobodyStarvesBehindAnOldRequestOfAHighPriority) {
  push({.asker = 1, .priority = 127});
  push({.asker = 2});
  int turns = 0;
  for (; turns < 1'000 && queue_.waiting_of(2) > 0; ++turns) {
    push({.asker = 1, .priority = 127, .deadline_ns = 5});
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

}  // namespace
}  // namespace shoal::supervisor
