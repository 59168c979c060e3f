// A client cannot get more than its share of the lanes.
#include <array>
#include <vector>

#include "tests/unit/supervisor/route/ledger_fairness_fixture.hpp"
#include "tests/unit/supervisor/route/ledger_state.hpp"

namespace shoal::supervisor {
namespace {

TEST_F(LedgerFairnessTest, RefusedRequestsDoNotMakeTheirClientsOthersCheaper) {
  ready(7);
  teach(kLong, 400 * kMs, kGreedy);
  teach(kShort, 10 * kMs);
  for (int i = 0; i < 300; ++i) ASSERT_TRUE(is_refused(kGreedy, kLong, 1));
  for (int i = 0; i < 1000; ++i) {
    if (i < 100) ask(kGreedy, kLong).value();
    ask(kOther, kShort).value();
  }
  const auto served_ns = serve(
      now_ + 16'000 * kMs, [](const Action& run) { return run.client == kGreedy ? 400 * kMs : 10 * kMs; }, [](const Action&) {});
  EXPECT_NEAR(static_cast<double>(served_ns[kGreedy]), static_cast<double>(served_ns[kOther]), 1'000.0 * kMs);
}

// Each request of kGreedy has another shape, which was never measured. Only a few of them wait at a time.
TEST_F(LedgerFairnessTest, ARunThatTakesLongerThanPredictedIsPaidForAfterwards) {
  for (const StatusCode status : {StatusCode::kOk, StatusCode::kCancelled}) {
    SCOPED_TRACE(status_code_name(status));
    ledger_ = Ledger();
    model_ = ledger_.add_model("m", {.queue_limit = 64});
    on_lane_.clear();
    ready(7);
    teach(kShort, kMs);
    for (int i = 0; i < 32; ++i) ask(kOther, kShort).value();
    std::uint64_t shape = 1'000;
    for (int i = 0; i < 3; ++i) ask(kGreedy, ++shape).value();
    const auto served_ns = serve(
        now_ + 30'000 * kMs, [&](const Action& run) { return run.client == kGreedy ? 100 * kMs : kMs; },
        [&](const Action& run) { ask(run.client, run.client == kGreedy ? ++shape : kShort).value(); }, status);
    EXPECT_NEAR(static_cast<double>(served_ns[kGreedy]), static_cast<double>(served_ns[kOther]), 1'000.0 * kMs);
  }
}

TEST_F(LedgerFairnessTest, ADebtKeepsNobodyElseWaitingAndEndsWithTheQueue) {
  ready(7);
  teach(kShort, kMs);
  teach(kLong, 100 * kMs);
  for (int i = 0; i < 30; ++i) ask(kGreedy, 1'000u + static_cast<unsigned>(i)).value();
  serve(
      now_ + 5'000 * kMs, [&](const Action&) { return 500 * kMs; }, [](const Action&) {});
  EXPECT_FALSE(is_refused(kOther, kShort, 1'500 * kMs)) << "two are on the lane, one may have its turn before it";
}

TEST_F(LedgerFairnessTest, ADoubtedRequestIsPaidForInFull) {
  ready(7);
  teach(kShort, 10 * kMs);
  teach(kLong, 400 * kMs, kGreedy);
  now_ += 20'000 * kMs;
  for (int i = 0; i < 1000; ++i) {
    if (i < 100) ask(kGreedy, kLong).value();
    ask(kOther, kShort).value();
  }
  EXPECT_TRUE(is_refused(3, kShort, 350 * kMs)) << "the lane is busy for 400 ms";
  const auto served_ns = serve(
      now_ + 16'000 * kMs, [](const Action& run) { return run.client == kGreedy ? 400 * kMs : 10 * kMs; }, [](const Action&) {});
  EXPECT_NEAR(static_cast<double>(served_ns[kGreedy]), static_cast<double>(served_ns[kOther]), 1'000.0 * kMs);
}

// Each request of kGreedy runs for 100 ms and then crashes its worker, twice.
TEST_F(LedgerFairnessTest, CrashedRunsArePaidForLikeOthers) {
  Incarnation worker = 7;
  ready(worker);
  teach(kShort, kMs);
  for (int i = 0; i < 32; ++i) ask(kOther, kShort).value();
  std::uint64_t shape = 1'000;
  for (int i = 0; i < 3; ++i) ask(kGreedy, ++shape).value();
  std::array<std::uint64_t, 4> served_ns{};
  int poisoned = 0;
  for (const std::uint64_t until_ns = now_ + 30'000 * kMs; now_ < until_ns;) {
    for (const Action& action : taken()) {
      if (action.kind == Action::Kind::kSend) on_lane_.push_back(action);
      if (action.kind != Action::Kind::kReply) continue;
      EXPECT_EQ(action.status, StatusCode::kPoison);
      ++poisoned;
      ask(kGreedy, ++shape).value();
    }
    ASSERT_FALSE(on_lane_.empty());
    const Action run = on_lane_.front();
    on_lane_.pop_front();
    const std::uint64_t took_ns = run.client == kGreedy ? 100 * kMs : kMs;
    now_ += took_ns;
    served_ns[run.client] += took_ns;
    if (run.client == kOther) {
      reply(run.request, run.lane, took_ns);
      ask(kOther, kShort).value();
      continue;
    }
    on_lane_.clear();  // the others run again
    die(worker, {crashed(run.request, run.attempt)});
    ready(++worker);
  }
  EXPECT_GT(poisoned, 10);
  EXPECT_NEAR(static_cast<double>(served_ns[kGreedy]), static_cast<double>(served_ns[kOther]), 1'000.0 * kMs);
}

// Two lanes run a request each, and one crashes the worker.
TEST_F(LedgerFairnessTest, WhoseRunWasLostToTheCrashOfAnotherGetsItsTimeBack) {
  ready(7, 2);
  teach(kShort, kMs);
  const RequestId guilty = ask(kGreedy, kShort).value(), innocent = ask(kOther, kShort).value();
  for (int i = 0; i < 9; ++i) ask(3, kShort).value();
  now_ += 50 * kMs;
  die(7, {crashed(guilty), running(innocent)});
  EXPECT_EQ(LedgerState::owed_ns(ledger_, kGreedy), static_cast<std::int64_t>(49 * kMs));
  EXPECT_EQ(LedgerState::owed_ns(ledger_, kOther), -static_cast<std::int64_t>(kMs)) << "it pays again when it runs again";
}

TEST_F(LedgerFairnessTest, ARunAfterTheLastReplyOfItsLaneIsPaidFromThere) {
  ready(7);
  teach(kShort, kMs);
  const RequestId first = ask(kOther, kShort).value(), second = ask(kGreedy, kShort).value();
  ask(kOther, kShort).value();
  now_ += 30 * kMs;
  reply(first, {7, 0}, kMs);
  now_ += 50 * kMs;
  die(7, {running(second)});  // killed: nobody is blamed, and its run was as long
  EXPECT_EQ(LedgerState::owed_ns(ledger_, kGreedy), static_cast<std::int64_t>(49 * kMs));
}

TEST_F(LedgerFairnessTest, WhatCouldNotBeSentIsNotPaidFor) {
  ready(7);
  teach(kShort, kMs);
  const RequestId request = ask(kGreedy, kShort).value();
  for (int i = 0; i < 4; ++i) ask(kOther, kShort).value();
  ledger_.undelivered(request);
  EXPECT_EQ(LedgerState::owed_ns(ledger_, kGreedy), -static_cast<std::int64_t>(kMs));
}

// Suspects do not wait for their turn, so they have not paid when they run.
TEST_F(LedgerFairnessTest, TheRunOfASuspectIsPaidForAsAWhole) {
  ready(7);
  teach(kShort, kMs);
  const RequestId request = ask(kGreedy, kShort).value();
  for (int i = 0; i < 4; ++i) ask(kOther, kShort).value();
  die(7, {crashed(request)});
  words();
  ready(8);
  EXPECT_EQ(words().at(0), format("send {}@8.0#2 alone", seq_ - 4));
  const std::int64_t before_ns = LedgerState::owed_ns(ledger_, kGreedy);
  now_ += 50 * kMs;
  EXPECT_TRUE(ledger_.lane_replied({.lane = {8, 0}, .request = request, .attempt = 2, .compute_ns = 50 * kMs, .batch = 1}, now_));
  EXPECT_EQ(LedgerState::owed_ns(ledger_, kGreedy) - before_ns, static_cast<std::int64_t>(50 * kMs));
}

class LedgerSuspectsTest : public LedgerFairnessTest {
 protected:
  /// The requests run on the lanes of one worker, which dies of a crash of another thread: each becomes a suspect.
  void crash_with(Incarnation worker, const std::vector<RequestId>& requests) {
    std::vector<LaneEvidence> evidence;
    for (const RequestId request : requests) evidence.push_back(running(request));
    evidence[0].crashed = true;
    die(worker, evidence);
  }
};

TEST_F(LedgerSuspectsTest, ThoseOfALaterDeathRunAfterThoseOfAnEarlierOne) {
  ready(7, 2);
  const std::vector<RequestId> early{admit(1, 0, 0, kOther), admit(2, 0, 0, kOther)};
  crash_with(7, early);
  ready(8);
  ready(9, 2);
  const std::vector<RequestId> late{admit(3, 0, 0, kOther), admit(4, 0, 0, kOther)};
  crash_with(9, late);
  EXPECT_EQ(words(), (Words{"send 1@7.0#1", "send 2@7.1#1", "send 1@8.0#2 alone", "send 3@9.0#1", "send 4@9.1#1"}));
  answer(early[0], {8, 0}, 2);
  answer(early[1], {8, 0}, 2);
  answer(late[0], {8, 0}, 2);
  EXPECT_EQ(words(),
            (Words{"forward 1", "send 2@8.0#2 alone", "forward 2", "send 3@8.0#2 alone", "forward 3", "send 4@8.0#2 alone"}));
}

TEST_F(LedgerSuspectsTest, TheirClientsTakeTurns) {
  ready(7, 4);
  const std::vector<RequestId> requests{admit(1, 0, 0, kGreedy), admit(2, 0, 0, kGreedy), admit(3, 0, 0, kGreedy),
                                        admit(4, 0, 0, kOther)};
  crash_with(7, requests);
  words();
  ready(8);
  for (const std::size_t at : {0u, 3u, 1u, 2u}) EXPECT_TRUE(answer(requests[at], {8, 0}, 2)) << at;
  EXPECT_EQ(words(), (Words{"send 1@8.0#2 alone", "forward 1", "send 4@8.0#2 alone", "forward 4", "send 2@8.0#2 alone",
                            "forward 2", "send 3@8.0#2 alone", "forward 3"}));
}

// Whatever kGreedy runs crashes its worker, and it always has another such request.
TEST_F(LedgerSuspectsTest, AClientThatCrashesWorkerAfterWorkerKeepsNoOthersSuspectWaiting) {
  ready(7, 2);
  const RequestId crashes = admit(1, 0, 0, kGreedy), innocent = admit(2, 0, 0, kOther);
  crash_with(7, {crashes, innocent});
  Incarnation worker = 7;
  bool has_run = false;
  for (int round = 0; round < 10 && !has_run; ++round) {
    ask(kGreedy, kShort).value();
    ready(++worker);
    ready(++worker);
    for (const Action& action : taken()) {
      if (action.kind != Action::Kind::kSend || action.lane.incarnation < worker - 1) continue;
      has_run |= action.request == innocent;
      if (action.request != innocent) die(action.lane.incarnation, {crashed(action.request, action.attempt)});
    }
  }
  EXPECT_TRUE(has_run);
}

class LedgerBatchFairnessTest : public LedgerFairnessTest {
 protected:
  LedgerBatchFairnessTest() : LedgerFairnessTest({.queue_limit = 64, .max_batch = 4, .max_delay_ns = 5 * kMs}) {}
};

TEST_F(LedgerBatchFairnessTest, RefusedMembersOfABatchMakeTheOthersNoFaster) {
  std::vector<RequestId> requests;
  for (std::uint64_t seq = 1; seq <= 4; ++seq) requests.push_back(join(seq, {.client = seq == 1 ? kOther : kGreedy}));
  ready(7);
  now_ += 40 * kMs;
  for (std::size_t i = 1; i < 4; ++i) reply(requests[i], {7, 0}, 0, StatusCode::kInvalidArgument);
  reply(requests[0], {7, 0}, 40 * kMs);
  words();
  EXPECT_TRUE(is_refused(kOther, 77, 30 * kMs)) << "one row took 40 ms";
}

TEST_F(LedgerBatchFairnessTest, TheLongRunsOfOneClientDoNotChangeWhatIsPredictedForTheShortOnesOfAnother) {
  ready(7);
  teach(kShort, kMs / 50, kOther, 4, true);
  teach(kLong, 64 * kMs, kGreedy, 4, true);
  int refused = 0;
  for (int i = 0; i < 60; ++i) refused += !ask(kOther, kShort, 20 * kMs, 1, true).ok();
  EXPECT_EQ(refused, 0);
}

TEST_F(LedgerBatchFairnessTest, RequestsThatJoinPayWhatTheirOwnShapeTakes) {
  ready(7);
  teach(kShort, 4 * kMs, kOther, 4, true);
  teach(kLong, 400 * kMs, kGreedy, 4, true);
  const auto ask_again = [&](const Action& run) { ask(run.client, run.client == kGreedy ? kLong : kShort, 0, 2, true).value(); };
  for (int i = 0; i < 15; ++i) {
    ask_again({.client = kGreedy});
    ask_again({.client = kOther});
  }
  const auto served_ns = serve(
      now_ + 30'000 * kMs, [](const Action& run) { return run.client == kGreedy ? 200 * kMs : 2 * kMs; }, ask_again);
  EXPECT_GT(served_ns[kOther], served_ns[kGreedy] / 2);
}

TEST_F(LedgerBatchFairnessTest, ARequestThatCannotJoinCompletesNoBatch) {
  ready(7);
  join(1, {.client = kOther});
  EXPECT_TRUE(words().empty()) << "it waits for others of its shape";
  join(2, {.client = kGreedy, .rows = 8});
  EXPECT_EQ(words(), Words{"send 2@7.0#1"});
}

}  // namespace
}  // namespace shoal::supervisor
