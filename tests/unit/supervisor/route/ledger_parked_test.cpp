// Requests that wait for their programs take neither turns nor places from other clients.
#include <utility>
#include <vector>

#include "tests/unit/supervisor/route/ledger_fairness_fixture.hpp"

namespace shoal::supervisor {
namespace {

// Each shape is a new program, and one program is compiled at a time.
class LedgerParkedTest : public LedgerFairnessTest {
 protected:
  /// The lane of worker 7 parks everything that it is sent.
  void park_all() {
    for (std::vector<Action> sent = taken(); !sent.empty(); sent = taken()) {
      for (const Action& action : sent) {
        overloaded_ += action.kind == Action::Kind::kReply && action.status == StatusCode::kOverloaded;
        if (action.kind != Action::Kind::kSend) continue;
        ledger_.lane_parked({7, 0}, action.request, 1, now_);
        parked_.push_back(action.request);
      }
    }
  }
  void fill(ClientId client, int count = 80) {
    for (int i = 0; i < count; ++i) ask(client, 1'000 + seq_).value();
    park_all();
  }

  std::vector<RequestId> parked_;
  std::size_t overloaded_ = 0;  // answers
};

TEST_F(LedgerParkedTest, RequestsThatWaitForTheirProgramsKeepNobodyElseOutOfTheLane) {
  ready(7);
  for (ClientId client = 1'000; client < 1'100; ++client) {
    parked_.clear();
    fill(client);
    EXPECT_GE(parked_.size(), Ledger::kMaxParked);
    EXPECT_LE(parked_.size(), Ledger::kMaxParked + 1) << "one was on its way";
  }
  const RequestId known = ask(kOther, kShort).value();
  EXPECT_EQ(words(), Words{format("send {}@7.0#1", seq_)});
  reply(known, {7, 0}, kMs);
  ask(kOther, kLong).value();
  EXPECT_EQ(words(), (Words{format("forward {}", seq_ - 1), format("send {}@7.0#1", seq_)}))
      << "others may wait for programs, too";
}

TEST_F(LedgerParkedTest, AClientWhoseProgramsAreReadyHasTurnsAgain) {
  ready(7);
  fill(kGreedy);
  const std::vector<RequestId> first = std::exchange(parked_, {});
  for (std::size_t i = 0; i < 10; ++i) {
    reply(first[i], {7, 0}, kMs);
    park_all();
  }
  EXPECT_GE(parked_.size(), 9u) << "for each program that is ready, another one may be waited for";
  die(7);
  words();
  ready(8);
  EXPECT_GE(words().size(), 2u) << "the parked ones run again";
}

TEST_F(LedgerParkedTest, AClientThatWasNeverSeenIsNotRefusedForWhatTheyWouldTake) {
  ready(7);
  teach(kShort, 30 * kMs);
  fill(kGreedy, 400);
  EXPECT_FALSE(is_refused(kOther, kShort, 100 * kMs));
  EXPECT_FALSE(is_refused(77, kShort, 100 * kMs));
  EXPECT_GT(ledger_.retry_after_ms(model_, kGreedy, 0, now_), 1'000u);
  EXPECT_LT(ledger_.retry_after_ms(model_, 78, 0, now_), 1'000u);
}

TEST_F(LedgerParkedTest, WhatTheyLeaveWaitingTakesNoPlacesFromOthers) {
  ready(7);
  for (ClientId client = 1'000; client < 1'008; ++client) fill(client, 300);
  const std::size_t waiting = ledger_.model(model_).queued;
  EXPECT_LE(waiting, 1'024u) << "half of queue_limit";
  EXPECT_GT(waiting, 900u);
  EXPECT_EQ(overloaded_, 8 * 300 - 8 * (Ledger::kMaxParked + 1) - 1'024) << "the youngest, when there are more";
  for (int i = 0; i < 1500; ++i) {
    ASSERT_TRUE(ask(kOther, kShort).ok()) << i;
  }
  EXPECT_EQ(words().size(), Ledger::kMinCredits) << "a shape that was not measured";
  const auto surplus = ask(1'000, kShort);
  EXPECT_EQ(surplus.status().code(), StatusCode::kOverloaded);
  EXPECT_NE(surplus.status().message().find("new shapes"), std::string::npos) << surplus.status().message();
  EXPECT_GE(ledger_.retry_after_ms(model_, 1'000, 0, now_), 100u);
  // Its turns come back, but its requests stay where they are.
  reply(parked_.front(), {7, 0}, kMs);
  for (int i = 0; i < 500; ++i) {
    ASSERT_TRUE(ask(kOther, kShort).ok()) << i;
  }
}

TEST_F(LedgerParkedTest, WhoHasMostWaitingMakesRoomForAnotherClient) {
  ready(7);
  fill(kGreedy, static_cast<int>(Ledger::kMaxParked) + 1 + 1'500);
  EXPECT_EQ(ledger_.model(model_).queued, 1'024u);
  overloaded_ = 0;
  std::size_t of_other = 0;
  for (int i = 0; i < 80; ++i) ask(kOther, 5'000 + seq_).value();
  for (std::vector<Action> sent = taken(); !sent.empty(); sent = taken()) {
    for (const Action& action : sent) {
      if (action.kind == Action::Kind::kSend) ledger_.lane_parked({7, 0}, action.request, 1, now_);
      if (action.kind != Action::Kind::kReply) continue;
      ++overloaded_;
      of_other += action.client == kOther;
    }
  }
  EXPECT_EQ(of_other, 0u);
  EXPECT_EQ(overloaded_, 80 - (Ledger::kMaxParked + 1));
  EXPECT_EQ(ledger_.model(model_).queued, 1'024u);
}

// While a client has no turns, the others are served by time and not by number.
TEST_F(LedgerParkedTest, OthersTakeTurnsByTimeMeanwhile) {
  ready(7);
  teach(kShort, kMs);
  teach(kLong, 100 * kMs);
  fill(kGreedy);
  constexpr ClientId kSlow = 3;
  for (int i = 0; i < 20; ++i) ask(kSlow, kLong).value();
  for (int i = 0; i < 1000; ++i) ask(kOther, kShort).value();
  const std::uint64_t begin_ns = now_;
  const auto served_ns = serve(
      begin_ns + 1'000 * kMs, [&](const Action& action) { return action.client == kSlow ? 100 * kMs : kMs; },
      [](const Action&) {});
  EXPECT_GT(served_ns[kOther], 350 * kMs);
  EXPECT_GT(served_ns[kSlow], 350 * kMs);
}

// Groups of one row of kVictim and three rows of kGreedy, each of a new shape. The lane parks them.
class LedgerParkedBatchTest : public LedgerFairnessTest {
 protected:
  static constexpr ClientId kVictim = 3;
  LedgerParkedBatchTest() : LedgerFairnessTest({.queue_limit = 2048, .max_batch = 4}) {}

  /// Sends `groups` groups to the lane of worker 7, and parks the requests of kGreedy.
  void park(std::uint64_t groups) {
    for (std::uint64_t shape = 1'000; shape < 1'000 + groups; ++shape) {
      ask(kVictim, shape, 0, 1, true).value();
      ask(kGreedy, shape, 0, 3, true).value();
    }
    ready(7);
    for (std::vector<Action> sent = taken(); !sent.empty(); sent = taken()) {
      for (const Action& action : sent) {
        if (action.kind != Action::Kind::kSend) continue;
        EXPECT_EQ(action.batch_size, 2);
        (action.client == kGreedy ? of_greedy_ : of_victim_).push_back(action.request);
        if (action.client == kGreedy) ledger_.lane_parked({7, 0}, action.request, 1, now_);
      }
    }
  }

  std::vector<RequestId> of_greedy_, of_victim_;
};

TEST_F(LedgerParkedBatchTest, AGroupCountsForTheClientWhoseRequestWaitsForItsProgram) {
  park(Ledger::kMaxParked);
  ASSERT_EQ(of_victim_.size(), Ledger::kMaxParked);
  for (const RequestId request : of_victim_) reply(request, {7, 0}, kMs);
  words();
  ask(kVictim, kShort).value();
  EXPECT_EQ(words(), Words{format("send {}@7.0#1", seq_)}) << "it waits for no program";
  ask(kGreedy, kShort).value();
  EXPECT_TRUE(words().empty()) << "it waits for all of them";
  reply(of_greedy_.front(), {7, 0}, kMs);
  EXPECT_EQ(words().size(), 2u) << "the answer, and its turn";
}

// The groups are parked still, because requests of another client are in them.
TEST_F(LedgerParkedBatchTest, AClientThatComesAfterOneThatWaitedForProgramsHasTurns) {
  park(Ledger::kMaxParked);
  ask(kGreedy, kLong).value();
  words();
  for (const RequestId request : of_greedy_) reply(request, {7, 0}, kMs);
  ledger_.client_gone(kGreedy);
  words();
  ledger_.condemn(7);
  ready(8);
  constexpr ClientId kNew = 77;
  ask(kNew, kShort).value();
  EXPECT_EQ(words(), Words{format("send {}@8.0#1", seq_)}) << "it has the place of the client that is gone";
  for (const RequestId request : of_victim_) reply(request, {7, 0}, kMs);
  words();
  for (std::uint64_t i = 0; i < Ledger::kMaxParked; ++i) {
    const RequestId request = ask(kNew, 5'000 + seq_).value();
    ledger_.lane_parked({8, 0}, request, 1, now_);
  }
  words();
  ask(kNew, kShort).value();
  EXPECT_TRUE(words().empty()) << "the groups of before are not subtracted from its own";
}

}  // namespace
}  // namespace shoal::supervisor
