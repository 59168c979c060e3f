// In which order a queue gives its requests, which of them are held, and which run together.
#include <algorithm>
#include <array>
#include <ctime>
#include <random>
#include <set>
#include <tuple>
#include <vector>

#include "tests/support/allocations.hpp"
#include "tests/unit/supervisor/route/request_queue_fixture.hpp"

namespace shoal::supervisor {
namespace {

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
  for (int i = 0; i < 3; ++i) push({.asker = 1, .cost_ns = 100});
  push({.asker = 2, .cost_ns = 10});
  const Waiting newcomer{.asker = 2, .arrival = 100, .cost_ns = 10};
  EXPECT_GT(queue_.work_before_ns(table_, newcomer, true), 10u);
  queue_.hold(table_, 1);
  EXPECT_EQ(queue_.work_before_ns(table_, newcomer, true), 10u);
  push({.asker = 1, .cost_ns = 100});
  EXPECT_EQ(take(), 3u);
  EXPECT_EQ(take(), kNoSlot);
  EXPECT_EQ(queue_.size(), 4u);
  EXPECT_EQ(queue_.apart(), 4u);
  EXPECT_EQ(queue_.youngest_apart(table_, 1), Slots{4});
  EXPECT_EQ(queue_.work_before_ns(table_, newcomer, true), 0u);
  EXPECT_EQ(queue_.work_before_ns(table_, {.asker = kNoSlot}, false), 0u) << "nor a client that was never seen";
  EXPECT_EQ(queue_.work_before_ns(table_, {.asker = 1}, false), 400u);
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
  push({.asker = 1});
  EXPECT_EQ(queue_.apart(), 1u);
  EXPECT_EQ(take(), kNoSlot);
  queue_.release(table_, 1);
  EXPECT_EQ(take_all(), Slots{5});
}

TEST_F(RequestQueueTest, TheYoungestApartAreOfTheClientsThatHaveMost) {
  EXPECT_TRUE(queue_.youngest_apart(table_, 1).empty());
  for (int i = 0; i < 3; ++i) push({.asker = 1});
  for (int i = 0; i < 2; ++i) push({.asker = 2});
  for (int i = 0; i < 4; ++i) push({.asker = 3});
  for (int i = 0; i < 5; ++i) push({.asker = 4, .rerun = true});
  for (const std::uint32_t client : {1u, 2u, 4u}) queue_.hold(table_, client);
  EXPECT_EQ(queue_.youngest_apart(table_, 1), Slots{2}) << "client 3 is not apart, and client 4 has only re-runs";
  EXPECT_EQ(queue_.youngest_apart(table_, 3), (Slots{2, 1, 4})) << "the same as one after the other";
  queue_.remove(table_, 2);
  queue_.remove(table_, 1);
  EXPECT_EQ(queue_.youngest_apart(table_, 1), Slots{4});
  EXPECT_EQ(queue_.youngest_apart(table_, 100), (Slots{4, 0, 3})) << "all that there are";
}

TEST_F(RequestQueueTest, ReRunsStayWhenTheYoungestApartAreChosen) {
  for (int i = 0; i < 2; ++i) push({.asker = 1, .rerun = true});
  for (int i = 0; i < 2; ++i) push({.asker = 1});
  queue_.hold(table_, 1);
  EXPECT_EQ(queue_.youngest_apart(table_, 4), (Slots{3, 2}));
}

// One after the other, each of them would look at all clients again.
TEST_F(RequestQueueTest, AllThatGiveUpTheirPlacesAreFoundAtOnce) {
  constexpr std::uint32_t kClients = 4096;
  for (std::uint32_t i = 0; i < 2 * kClients; ++i) push({.asker = i % kClients});
  for (std::uint32_t client = 0; client < kClients; ++client) queue_.hold(table_, client);
  const std::clock_t begin = std::clock();  // processor time, so that a busy machine does not count
  const Slots youngest = queue_.youngest_apart(table_, 4'000);
  const std::clock_t took = std::clock() - begin;
#ifndef __SANITIZE_ADDRESS__
  EXPECT_LT(took, CLOCKS_PER_SEC / 50);
#else
  (void)took;
#endif
  ASSERT_EQ(youngest.size(), 4'000u);
  for (std::uint32_t i = 0; i < 4'000; ++i) ASSERT_EQ(youngest[i], kClients + i) << "one of each client";
}

TEST_F(RequestQueueTest, RemovesFromTheMiddle) {
  for (int i = 0; i < 20; ++i)
    push({.asker = static_cast<std::uint32_t>(i % 2), .deadline_ns = 1000u - static_cast<unsigned>(i)});
  for (const std::uint32_t slot : {7, 19, 0, 12, 18}) queue_.remove(table_, slot);
  EXPECT_EQ(queue_.size(), 15u);
  EXPECT_EQ(queue_.waiting_of(0), 7u);
  std::array<std::vector<std::uint32_t>, 2> of_client;
  for (const std::uint32_t slot : take_all()) of_client[slot % 2].push_back(slot);
  EXPECT_EQ(of_client[0], (Slots{16, 14, 10, 8, 6, 4, 2}));
  EXPECT_EQ(of_client[1], (Slots{17, 15, 13, 11, 9, 5, 3, 1}));
}

TEST_F(RequestQueueTest, RequestsThatRunInOthersBatchesAreTakenInTurnAndPaidFor) {
  for (int i = 0; i < 40; ++i) push({.asker = 1, .cost_ns = 100});
  for (int i = 0; i < 4; ++i) push({.asker = 2, .cost_ns = 100});
  std::array<int, 3> in_first{};
  ++in_first[table_[take()].asker];
  for (int i = 0; i < 7; ++i) {
    const std::uint32_t slot = queue_.next_like(table_, [](std::uint32_t) { return true; });
    ++in_first[table_[slot].asker];
    queue_.take_along(table_, slot);
  }
  EXPECT_EQ(in_first[1] + in_first[2], 8);
  EXPECT_GE(in_first[2], 3);
  EXPECT_EQ(queue_.next_like(table_, [](std::uint32_t) { return false; }), kNoSlot);
}

TEST_F(RequestQueueTest, TheFirstThatJoinsMayStandBehindOthersOfItsClient) {
  std::vector<std::uint32_t> slots;
  for (int i = 0; i < 10; ++i) slots.push_back(push({.asker = 1}));
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
  for (int i = 0; i < 100; ++i) push({.asker = 1, .cost_ns = 10});
  const Waiting newcomer{.asker = 2, .arrival = 1000, .cost_ns = 10};
  EXPECT_EQ(queue_.work_before_ns(table_, newcomer, false), 10u);  // a quantum of the other
  push({.asker = 2, .cost_ns = 10});
  push({.asker = 2, .deadline_ns = 5, .cost_ns = 10});
  EXPECT_EQ(queue_.work_before_ns(table_, newcomer, false), 20u + 30u);
  Waiting urgent = newcomer;
  urgent.deadline_ns = 7;
  EXPECT_EQ(queue_.work_before_ns(table_, urgent, true), 10u + 20u);  // its own request without a deadline goes later
  push({.asker = 3, .priority = 1, .cost_ns = 1000});
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
      waiting.insert(push({.asker = static_cast<std::uint32_t>(random() % 20),
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
        if (a.asker != b.asker) continue;
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
          .asker = slot % 16, .priority = static_cast<std::int8_t>(slot % 3), .arrival = ++arrivals_};
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

}  // namespace
}  // namespace shoal::supervisor
