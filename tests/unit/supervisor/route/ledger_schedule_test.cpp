// The order in which requests run, batches, and refusals at arrival.
#include "tests/support/allocations.hpp"
#include "tests/unit/supervisor/route/ledger_fixture.hpp"

namespace shoal::supervisor {
namespace {

class LedgerScheduleTest : public LedgerTest {
 protected:
  LedgerScheduleTest() : LedgerTest({.queue_limit = 64}) {}
  /// Lets worker 7, which has one lane, take `ns` for each of ten requests.
  void teach(std::uint64_t ns) {
    ready(7);
    for (std::uint64_t seq = 900; seq < 910; ++seq) {
      const RequestId request = admit(seq);
      now_ += ns;
      ledger_.lane_replied({.lane = {7, 0}, .request = request, .attempt = 1, .compute_ns = ns}, now_);
    }
    words();
  }
};

TEST_F(LedgerScheduleTest, ClientsTakeTurns) {
  for (std::uint64_t seq = 1; seq <= 6; ++seq) admit(seq, 0, 0, 1);
  admit(100, 0, 0, 2);
  admit(101, 0, 0, 2);
  ready(7, 6);
  EXPECT_EQ(words(), (Words{"send 1@7.0#1", "send 100@7.1#1", "send 2@7.2#1", "send 101@7.3#1", "send 3@7.4#1", "send 4@7.5#1",
                            "send 5@7.0#1", "send 6@7.1#1"}));
}

TEST_F(LedgerScheduleTest, AllThatATurnBringsIsKnownBeforeRequestsGoToLanes) {
  ready(7);
  words();
  ledger_.begin_turn();
  for (std::uint64_t seq = 1; seq <= 3; ++seq) admit(seq, 0, 0, 1);
  admit(100, 0, 0, 2);
  admit(4, 1, 0, 1);
  EXPECT_EQ(words(), Words());
  ledger_.end_turn(now_);
  EXPECT_EQ(words(), (Words{"send 4@7.0#1", "send 100@7.0#1"}));
  ledger_.begin_turn();
  ledger_.end_turn(now_);
  EXPECT_EQ(words(), Words()) << "it was touched in the turn before, not in this one";
  admit(5);
  ready(8);
  EXPECT_EQ(words(), (Words{"send 1@8.0#1", "send 2@8.0#1"})) << "outside of turns nothing waits for their end";
}

// Else a burst that comes at once would be refused while lanes are idle.
TEST_F(LedgerScheduleTest, InATurnNothingIsRefusedForWhichALaneHasRoom) {
  teach(10 * kMs);
  ready(8);
  words();
  ledger_.begin_turn();
  EXPECT_TRUE(try_admit(1, 0, 15 * kMs).ok());
  EXPECT_TRUE(try_admit(2, 0, 15 * kMs).ok()) << "there are two idle lanes";
  EXPECT_EQ(try_admit(3, 0, 15 * kMs).status().code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(counts().too_late, 1u);
  for (std::uint64_t seq = 10; seq < 10 + 64 + 2; ++seq) EXPECT_TRUE(try_admit(seq).ok()) << seq;
  EXPECT_EQ(try_admit(100).status().code(), StatusCode::kOverloaded) << "the lanes have two each, and the queue is full";
  ledger_.end_turn(now_);
}

// How many the lane takes depends on what waits, and not on who comes.
TEST_F(LedgerScheduleTest, ATurnBringsNoMoreThanItsLimitBehindLongRuns) {
  enum : std::uint64_t { kShort = 0, kLong = 1 };  // the shape that teach() measured, and another one
  teach(5'000);                                    // nanoseconds
  ledger_.set_client_shares({.of_queue = 0.5});
  ledger_.begin_turn();
  const auto ask = [&](std::uint64_t seq, ClientId client, std::uint64_t shape) {
    const auto admitted = ledger_.admit({.client = client, .seq = seq, .model = model_, .shape = shape}, now_);
    if (admitted.ok()) ledger_.dispatch(model_, now_);
    return admitted.ok();
  };
  for (std::uint64_t seq = 1; seq <= 30; ++seq) EXPECT_TRUE(ask(seq, 2, kLong));
  std::size_t own = 0;
  while (own < 100 && ask(100 + own, 1, kShort)) ++own;
  EXPECT_LE(own, 20U) << "half of what the others leave";
  EXPECT_LE(ledger_.model(model_).queued, 64U);
  ledger_.end_turn(now_);
  EXPECT_LE(ledger_.model(model_).queued, 64U);
}

TEST_F(LedgerScheduleTest, ATurnMayBringAsManyShortRunsAsTheLaneTakes) {
  teach(5'000);  // nanoseconds
  words();
  ledger_.begin_turn();
  for (std::uint64_t seq = 10; seq < 10 + 64 + 30; ++seq) EXPECT_TRUE(try_admit(seq).ok()) << seq;
  ledger_.end_turn(now_);
  EXPECT_LE(ledger_.model(model_).queued, 64U);
}

// To admit makes no action: a slot that an action still names must not get a new request.
TEST_F(LedgerScheduleTest, ARefusalInATurnGivesNothingToLanesAndGivesNothingUp) {
  teach(10 * kMs);
  words();
  ledger_.set_client_shares({.in_flight = 4});
  ledger_.begin_turn();
  admit(1, 0, 15 * kMs);
  now_ += 10 * kMs;  // it is too late now
  admit(2);
  EXPECT_EQ(try_admit(3, 0, 1).status().code(), StatusCode::kDeadlineExceeded);
  admit(4);
  admit(5);
  EXPECT_EQ(try_admit(6).status().code(), StatusCode::kOverloaded) << "client_requests";
  EXPECT_TRUE(ledger_.actions().empty());
  ledger_.end_turn(now_);
  EXPECT_FALSE(ledger_.actions().empty());
}

TEST_F(LedgerScheduleTest, TheEarliestDeadlineOfAClientGoesFirst) {
  admit(1);
  admit(2, 0, 900 * kMs);
  admit(3, 0, 500 * kMs);
  ready(7, 3);
  EXPECT_EQ(words(), (Words{"send 3@7.0#1", "send 2@7.1#1", "send 1@7.2#1"}));
}

TEST_F(LedgerScheduleTest, ARequestThatCannotFinishInTimeIsRefusedWhenItArrives) {
  teach(10 * kMs);
  for (std::uint64_t seq = 1; seq <= 5; ++seq) admit(seq, 0, 0, seq);
  EXPECT_EQ(words().size(), 2u);
  const auto refused = try_admit(6, 0, 50 * kMs, 6);  // two run, and three others have their turn before it
  EXPECT_EQ(refused.status().code(), StatusCode::kDeadlineExceeded);
  EXPECT_NE(refused.status().message().find("'m'"), std::string::npos);
  EXPECT_EQ(counts().too_late, 1u);
  EXPECT_FALSE(try_admit(8, 127, 50 * kMs, 6).ok());  // a priority is not above the turns of others
  EXPECT_TRUE(try_admit(7, 0, 80 * kMs, 6).ok());
}

TEST_F(LedgerScheduleTest, AnEarlierDeadlineIsAdmittedAheadOfItsOwnBulk) {
  teach(10 * kMs);
  for (std::uint64_t seq = 1; seq <= 30; ++seq) admit(seq);
  EXPECT_TRUE(try_admit(100, 0, 60 * kMs).ok());
}

TEST_F(LedgerScheduleTest, NothingIsRefusedWhileNothingIsKnown) {
  for (std::uint64_t seq = 1; seq <= 30; ++seq) EXPECT_TRUE(try_admit(seq, 0, kMs).ok());
  Ledger ledger;
  ledger.add_model("m", {.queue_limit = 64});
  ledger.worker_ready(0, 1, 1, now_);
  EXPECT_TRUE(ledger.admit({.client = 1, .seq = 1, .model = 0, .timeout_ns = 1}, now_).ok());
}

TEST_F(LedgerScheduleTest, ARequestThatCannotFinishAnyMoreIsNotSent) {
  teach(10 * kMs);
  const RequestId first = admit(1), second = admit(2);
  EXPECT_TRUE(try_admit(3, 0, 45 * kMs).ok());
  words();
  now_ += 38 * kMs;  // the first one took longer than predicted
  ledger_.lane_replied({.lane = {7, 0}, .request = first, .attempt = 1, .compute_ns = 10 * kMs}, now_);
  EXPECT_EQ(words(), (Words{"forward 1", "reply 3 DEADLINE_EXCEEDED"}));
  EXPECT_TRUE(answer(second, {7, 0}));
}

TEST_F(LedgerScheduleTest, TheLaneIsChosenThatIsDoneFirst) {
  teach(10 * kMs);
  ready(8);
  const RequestId first = admit(1);
  admit(2);
  now_ += 9 * kMs;
  answer(first, {7, 0});
  admit(3);
  words();
  EXPECT_TRUE(try_admit(4, 0, 15 * kMs).ok());
  EXPECT_EQ(words(), (Words{"send 4@8.0#1"}));  // request 2 needs 1 ms more, request 3 needs 10 ms
}

TEST_F(LedgerScheduleTest, ARequestThatCouldFinishOnAFullLaneWaitsForIt) {
  enum : std::uint64_t { kShort = 0, kLong = 1 };  // the shape that teach() measured, and another one
  teach(10 * kMs);
  const auto ask = [&](std::uint64_t seq, std::uint64_t shape, std::uint64_t timeout_ns = 0) {
    const Admission admission{.client = 1, .seq = seq, .model = model_, .timeout_ns = timeout_ns, .shape = shape};
    const RequestId request = ledger_.admit(admission, now_).value();
    ledger_.dispatch(model_, now_);
    return request;
  };
  const RequestId measured = ask(1, kLong);
  now_ += 100 * kMs;
  ledger_.lane_replied({.lane = {7, 0}, .request = measured, .attempt = 1, .compute_ns = 100 * kMs}, now_);
  ask(2, kLong);
  ready(8);
  const RequestId next = ask(3, kShort);
  ask(4, kShort);
  words();
  ask(5, kShort, 60 * kMs);
  EXPECT_EQ(words(), Words{});  // the lane with room is busy for 100 ms, the other one for 20 ms
  answer(next, {8, 0});
  EXPECT_EQ(words(), (Words{"forward 3", "send 5@8.0#1"}));
}

TEST_F(LedgerScheduleTest, ShapesHaveTheirOwnCosts) {
  ready(7);
  const auto run = [&](std::uint64_t shape, std::uint64_t ns) {
    const RequestId request = ledger_.admit({.client = 1, .seq = 1, .model = model_, .shape = shape}, now_).value();
    ledger_.dispatch(model_, now_);
    now_ += ns;
    ledger_.lane_replied({.lane = {7, 0}, .request = request, .attempt = 1, .compute_ns = ns}, now_);
  };
  for (int i = 0; i < 10; ++i) {
    run(1, kMs);
    run(2, 100 * kMs);
  }
  EXPECT_TRUE(ledger_.admit({.client = 1, .seq = 2, .model = model_, .timeout_ns = 20 * kMs, .shape = 1}, now_).ok());
  EXPECT_FALSE(ledger_.admit({.client = 1, .seq = 2, .model = model_, .timeout_ns = 20 * kMs, .shape = 2}, now_).ok());
}

TEST_F(LedgerScheduleTest, AClientHasSoManyInFlightAndItsShareOfAQueue) {
  ledger_.set_client_shares({.in_flight = 40, .of_queue = 0.5});
  for (std::uint64_t seq = 1; seq <= 33; ++seq) EXPECT_TRUE(try_admit(seq).ok());
  EXPECT_EQ(try_admit(34).status().code(),
            StatusCode::kOverloaded);  // the queue is more than half full, and half of the requests are its own
  EXPECT_TRUE(try_admit(35, 0, 0, 2).ok());
  ready(7, 8);  // sixteen of them run
  EXPECT_EQ(words().size(), 16u);
  for (std::uint64_t seq = 36; seq <= 42; ++seq) EXPECT_TRUE(try_admit(seq).ok());
  const auto refused = try_admit(43);
  EXPECT_EQ(refused.status().code(), StatusCode::kOverloaded);
  EXPECT_NE(refused.status().message().find("40 requests of this client"), std::string::npos);
  ledger_.client_gone(1);
  EXPECT_TRUE(try_admit(1).ok());
}

TEST_F(LedgerScheduleTest, SeveralThatFloodTheQueueLeavePlacesForOthers) {
  ledger_.set_client_shares({.of_queue = 0.75});
  std::uint64_t seq = 0;
  for (int round = 0; round < 100; ++round) {
    for (const ClientId flood : {1, 2, 3}) (void)try_admit(++seq, 0, 0, flood);
  }
  for (const ClientId newcomer : {4, 5, 6}) EXPECT_TRUE(try_admit(++seq, 0, 0, newcomer).ok()) << newcomer;
}

TEST_F(LedgerScheduleTest, NothingIsAllocatedPerRequestInTheLongRun) {
  ready(7, 2);
  std::vector<Action> actions;
  const auto round = [&](std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; ++i) {
      for (std::uint64_t seq = 0; seq < 8; ++seq)
        (void)ledger_.admit({.client = seq % 3, .seq = seq, .model = model_, .timeout_ns = 1000 * kMs}, now_);
      ledger_.dispatch(model_, now_);
      serve_all();
    }
  };
  round(500);
  const std::uint64_t before = test::allocations();
  round(500);
  EXPECT_EQ(test::allocations(), before);
  EXPECT_TRUE(ledger_.idle());
}

class LedgerBatchTest : public LedgerTest {
 protected:
  LedgerBatchTest() : LedgerTest({.queue_limit = 64, .max_batch = 4, .max_delay_ns = 5 * kMs}) {}
};

TEST_F(LedgerBatchTest, AWholeBatchGoesAtOnceAndIsOneCredit) {
  std::vector<RequestId> requests;
  ready(7);
  for (std::uint64_t seq = 1; seq <= 4; ++seq) requests.push_back(join(seq));
  EXPECT_EQ(words(), (Words{"send 1@7.0#1 1/4", "send 2@7.0#1 2/4", "send 3@7.0#1 3/4", "send 4@7.0#1 4/4"}));
  for (std::uint64_t seq = 5; seq <= 8; ++seq) join(seq);
  EXPECT_EQ(words().size(), 4u);  // a second batch behind the first
  for (std::uint64_t seq = 9; seq <= 12; ++seq) join(seq);
  EXPECT_TRUE(words().empty());
  for (int i = 0; i < 3; ++i) answer(requests[static_cast<std::size_t>(i)], {7, 0});
  EXPECT_EQ(words(), (Words{"forward 1", "forward 2", "forward 3"}));
  answer(requests[3], {7, 0});  // the last answer frees the credit
  EXPECT_EQ(words().size(), 5u);
  EXPECT_EQ(counts().groups, 3u);
  EXPECT_EQ(counts().grouped, 12u);
}

TEST_F(LedgerBatchTest, PartOfABatchWaitsForOthersWhileALaneIsIdleAndNoLonger) {
  ready(7);
  join(1);
  EXPECT_TRUE(words().empty());
  now_ += 2 * kMs;
  join(2);
  EXPECT_EQ(ledger_.next_tick_ns(now_), now_ + 3 * kMs);
  now_ += 3 * kMs;
  ledger_.tick(now_);
  EXPECT_EQ(words(), (Words{"send 1@7.0#1 1/2", "send 2@7.0#1 2/2"}));
  EXPECT_FALSE(ledger_.next_tick_ns(now_).has_value());
}

TEST_F(LedgerBatchTest, PartOfABatchWaitsWhileTheLanesAreBusy) {
  ready(7);
  const RequestId first = join(1, {.rows = 4});
  EXPECT_EQ(words(), Words{"send 1@7.0#1"});
  join(2);
  now_ += 50 * kMs;
  join(3);
  ledger_.tick(now_);
  EXPECT_TRUE(words().empty());
  answer(first, {7, 0});
  EXPECT_EQ(words(), (Words{"forward 1", "send 2@7.0#1 1/2", "send 3@7.0#1 2/2"}));
}

TEST_F(LedgerBatchTest, OnlyEqualShapesRunTogetherAndRowsAreCounted) {
  join(1, {.rows = 2});
  join(2, {.client = 2, .shape = 78});
  join(3, {.client = 3, .rows = 3});
  join(4, {.client = 4, .rows = 2});
  join(5, {.client = 5});
  now_ += 5 * kMs;
  ready(7);
  ready(8);  // then there is a whole batch, which may take a second credit
  EXPECT_EQ(words(), (Words{"send 1@7.0#1 1/2", "send 4@7.0#1 2/2", "send 2@8.0#1", "send 5@7.0#1 1/2", "send 3@7.0#1 2/2"}));
}

TEST_F(LedgerBatchTest, AWholeBatchDoesNotWaitForPartOfAnother) {
  ready(7);
  join(1);
  for (std::uint64_t seq = 2; seq <= 4; ++seq) join(seq, {.shape = 78});
  EXPECT_TRUE(words().empty());
  const auto until_ns = ledger_.next_tick_ns(now_);
  join(5, {.shape = 78});
  EXPECT_EQ(words(), (Words{"send 2@7.0#1 1/4", "send 3@7.0#1 2/4", "send 4@7.0#1 3/4", "send 5@7.0#1 4/4"}));
  ready(8);
  admit(6);
  EXPECT_EQ(words(), (Words{"send 6@8.0#1"}));
  EXPECT_EQ(ledger_.next_tick_ns(now_), until_ns);
  ready(9);
  now_ = *until_ns;
  ledger_.tick(now_);
  EXPECT_EQ(words(), (Words{"send 1@9.0#1"}));
}

TEST_F(LedgerBatchTest, ARequestThatIsNotJoinableRunsAloneAtOnce) {
  ready(7, 2);
  admit(1);
  admit(2);
  EXPECT_EQ(words(), (Words{"send 1@7.0#1", "send 2@7.1#1"}));
}

TEST_F(LedgerBatchTest, NobodyWaitsPastADeadline) {
  ready(7);
  const RequestId first = join(1, {.rows = 4});
  now_ += 10 * kMs;
  ledger_.lane_replied({.lane = {7, 0}, .request = first, .attempt = 1, .compute_ns = 10 * kMs}, now_);
  words();
  join(2, {.timeout_ns = 6 * kMs});  // it runs 2.5 ms, so it cannot wait 5 ms
  EXPECT_EQ(words(), Words{"send 2@7.0#1"});
}

TEST_F(LedgerBatchTest, NobodyWaitsSoLongThatALateTimerMakesItLate) {
  ready(7);
  const RequestId first = join(1, {.rows = 4});
  now_ += 10 * kMs;
  ledger_.lane_replied({.lane = {7, 0}, .request = first, .attempt = 1, .compute_ns = 10 * kMs}, now_);
  words();
  join(2, {.timeout_ns = 8 * kMs});  // 5 ms of waiting and 2.5 ms of running fit only if the timer is never late
  EXPECT_EQ(words(), Words{"send 2@7.0#1"});
}

TEST_F(LedgerBatchTest, ABatchThatRanOneByOneTookAllTheirTime) {
  ready(7);
  std::vector<RequestId> requests;
  for (std::uint64_t seq = 1; seq <= 4; ++seq) requests.push_back(join(seq));
  for (const RequestId request : requests) {
    now_ += 10 * kMs;
    ledger_.lane_replied({.lane = {7, 0}, .request = request, .attempt = 1, .compute_ns = 10 * kMs, .batch = 1}, now_);
  }
  const Admission four{.client = 1, .seq = 5, .model = model_, .timeout_ns = 30 * kMs, .shape = 77, .rows = 4, .joinable = true};
  EXPECT_EQ(ledger_.admit(four, now_).status().code(), StatusCode::kDeadlineExceeded);
}

TEST_F(LedgerBatchTest, OneThatMakesTheOthersLateDoesNotJoin) {
  ready(7);
  const RequestId first = join(1, {.rows = 4});
  now_ += 40 * kMs;
  ledger_.lane_replied({.lane = {7, 0}, .request = first, .attempt = 1, .compute_ns = 40 * kMs}, now_);
  words();
  die(7);
  join(2, {.timeout_ns = 14 * kMs});  // a row takes 10 ms
  join(3, {.client = 2});
  ready(8);
  EXPECT_EQ(words(), Words{"send 2@8.0#1"});
}

TEST_F(LedgerBatchTest, ABatchThatCannotBeDeliveredWaitsAgainWhole) {
  ready(7);
  std::vector<RequestId> requests;
  for (std::uint64_t seq = 1; seq <= 4; ++seq) requests.push_back(join(seq));
  words();
  ledger_.cancel(1, 2, now_);
  ledger_.undelivered(requests[2]);
  EXPECT_EQ(words(), (Words{"reply 2 CANCELLED held", "release 2"}));
  ready(8);
  EXPECT_EQ(words(), (Words{"send 1@8.0#1 1/3", "send 3@8.0#1 2/3", "send 4@8.0#1 3/3"}));
  EXPECT_EQ(ledger_.held_by(7), 0u);
}

TEST_F(LedgerBatchTest, AParkedBatchTakesNoCredit) {
  ready(7);
  std::vector<RequestId> requests;
  for (std::uint64_t seq = 1; seq <= 8; ++seq) requests.push_back(join(seq));
  words();
  for (std::uint64_t seq = 9; seq <= 12; ++seq) join(seq);
  EXPECT_TRUE(words().empty());
  ledger_.lane_parked({7, 0}, requests[0], 1, now_);
  EXPECT_EQ(words().size(), 4u);
  ledger_.lane_parked({7, 0}, requests[1], 1, now_);  // of the same batch
  for (std::uint64_t seq = 13; seq <= 16; ++seq) join(seq);
  EXPECT_TRUE(words().empty());
  for (const RequestId request : requests) EXPECT_TRUE(answer(request, {7, 0}));
  EXPECT_EQ(ledger_.held_by(7), 8u);
}

constexpr std::uint64_t kSecond = 1'000'000'000;

TEST(CostEstimates, FollowWhatIsMeasuredAndGuessTheRest) {
  CostEstimates costs;
  EXPECT_EQ(costs.of(1, 4).mean_ns, 0u);
  EXPECT_EQ(costs.guess_ns(1, 4), CostEstimates::kGuessNs);
  costs.add(1, 4, 8000, kSecond);
  EXPECT_EQ(costs.of(1, 4).mean_ns, 8000u);
  EXPECT_EQ(costs.of(1, 3).mean_ns, 8000u);   // programs are compiled for powers of two
  EXPECT_EQ(costs.of(1, 8).mean_ns, 16000u);  // by rows
  for (int i = 0; i < 100; ++i) costs.add(1, 4, i % 2 ? 3000 : 5000, kSecond);
  EXPECT_NEAR(static_cast<double>(costs.of(1, 4).mean_ns), 4000, 400);
  EXPECT_GT(costs.of(1, 4).most_ns(), 5000u);
  costs.at_least(1, 4, 1000, kSecond);  // less than the mean, so it says nothing new
  EXPECT_GT(costs.of(1, 4).mean_ns, 3500u);
}

TEST(CostEstimates, WhatWasNotMeasuredCountsForOthersAtMostLikeAUsualRunAndRefusesNobody) {
  CostEstimates costs;
  for (int i = 0; i < 20; ++i) costs.add(1, 4, 8000, kSecond);
  EXPECT_EQ(costs.guess_ns(2, 2), 4000u);
  EXPECT_EQ(costs.guess_ns(2, 8), 8000u);
  EXPECT_EQ(costs.guess_ns(2, 0xffffffff), 8000u);
  EXPECT_EQ(costs.of(2, 0xffffffff).mean_ns, CostEstimates::kMostNs);
  EXPECT_EQ(costs.refusing_ns(2, 8, kSecond), 0u);
  EXPECT_EQ(costs.refusing_ns(1, 4, kSecond), 8000u);
}

TEST(CostEstimates, RefuseLessAsTimeGoesByAndPredictTheSame) {
  CostEstimates costs;
  costs.add(1, 1, 64'000, kSecond);
  EXPECT_EQ(costs.refusing_ns(1, 1, kSecond + CostEstimates::kDoubtNs - 1), 64'000u);
  EXPECT_EQ(costs.refusing_ns(1, 1, kSecond + 3 * CostEstimates::kDoubtNs), 8'000u);
  EXPECT_EQ(costs.refusing_ns(1, 1, 0), 64'000u);
  EXPECT_EQ(costs.refusing_ns(1, 1, ~std::uint64_t{0}), 0u);
  EXPECT_EQ(costs.of(1, 1).most_ns(), 64'000u);
  EXPECT_EQ(costs.guess_ns(1, 1), 64'000u);
}

TEST(CostEstimates, PriceTheRowsOfAShapeByItsOwnRuns) {
  CostEstimates costs;
  costs.add(1, 4, 8'000, kSecond);
  costs.add(200, 1, 64'000, kSecond);
  EXPECT_EQ(costs.price(1, 3, true, kSecond).ns, 6'000u);
  EXPECT_EQ(costs.price(1, 0xffffffff, true, kSecond).ns, CostEstimates::kMostNs);
  EXPECT_EQ(costs.price(200, 2, true, kSecond).ns, 128'000u);
  EXPECT_EQ(costs.guess_ns(1, 2), 4'000u);
  EXPECT_GT(costs.price(300, 2, true, kSecond).ns, 10'000u) << "it was never measured";
  EXPECT_EQ(costs.price(1, 4, false, kSecond).ns, 8'000u);
  for (const bool joins : {false, true}) {
    EXPECT_EQ(costs.price(1, 4, joins, kSecond).halvings, 0u);
    EXPECT_EQ(costs.price(1, 4, joins, kSecond + 3 * CostEstimates::kDoubtNs).halvings, 3u);
  }
}

TEST(CostEstimates, AMeasurementSettlesTheDoubtAndAStoppedRunOnlyWhatItRefutes) {
  const std::uint64_t later = kSecond + 5 * CostEstimates::kDoubtNs;
  CostEstimates costs;
  costs.add(1, 1, 64'000, kSecond);
  CostEstimates fast = costs, slow = costs, cut = costs, barely_begun = costs;
  fast.add(1, 1, 3'000, later);
  EXPECT_LE(fast.of(1, 1).mean_ns, 4'000u);
  slow.add(1, 1, 64'000, later);
  EXPECT_EQ(slow.refusing_ns(1, 1, later), 64'000u);
  cut.at_least(1, 1, 10'000, later);
  EXPECT_EQ(cut.refusing_ns(1, 1, later), 16'000u);
  EXPECT_EQ(cut.guess_ns(1, 1), 64'000u);
  barely_begun.at_least(1, 1, 1'000, later);
  EXPECT_EQ(barely_begun.refusing_ns(1, 1, later), 2'000u);
}

TEST(CostEstimates, AStoppedRunReplacesNoYoungEstimate) {
  CostEstimates costs;
  costs.add(1, 1, 64'000, kSecond);
  for (std::uint64_t shape = 2; shape < 2'000; ++shape) costs.at_least(shape, 1, 100'000, 2 * kSecond);
  EXPECT_TRUE(costs.is_measured(1, 1));
  for (std::uint64_t shape = 2; shape < 2'000; ++shape) costs.at_least(shape, 1, 100'000, 20 * kSecond);
  EXPECT_FALSE(costs.is_measured(1, 1));
}

}  // namespace
}  // namespace shoal::supervisor
