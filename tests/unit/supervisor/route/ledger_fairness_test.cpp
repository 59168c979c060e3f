// A client can neither change the estimates for the requests of other clients without running requests of its own, nor get more
// than its share of the lanes.
#include <array>
#include <deque>

#include "tests/unit/supervisor/route/ledger_fixture.hpp"
#include "tests/unit/supervisor/route/ledger_state.hpp"

namespace shoal::supervisor {
namespace {

constexpr ClientId kGreedy = 1, kOther = 2;

class LedgerFairnessTest : public LedgerTest {
 protected:
  explicit LedgerFairnessTest(ModelLimits limits = {.queue_limit = 2048}) : LedgerTest(limits) {}

  Result<RequestId> ask(ClientId client, std::uint64_t shape, std::uint64_t timeout_ns = 0, std::uint32_t rows = 1,
                        bool joinable = false) {
    const auto admitted = ledger_.admit({.client = client,
                                         .seq = ++seq_,
                                         .model = model_,
                                         .timeout_ns = timeout_ns,
                                         .shape = shape,
                                         .rows = rows,
                                         .joinable = joinable},
                                        now_);
    if (admitted.ok()) ledger_.dispatch(model_, now_);
    return admitted;
  }
  bool is_refused(ClientId client, std::uint64_t shape, std::uint64_t timeout_ns) {
    return ask(client, shape, timeout_ns).status().code() == StatusCode::kDeadlineExceeded;
  }
  void reply(RequestId request, LaneRef lane, std::uint64_t compute_ns, StatusCode status = StatusCode::kOk) {
    EXPECT_TRUE(ledger_.lane_replied(
        {.lane = lane, .request = request, .attempt = 1, .status = status, .compute_ns = compute_ns, .batch = 1}, now_));
  }
  /// Lets worker 7, which holds nothing else, take `ns` for each of ten requests.
  void teach(std::uint64_t shape, std::uint64_t ns, ClientId client = kOther, std::uint32_t rows = 1, bool joinable = false) {
    for (int i = 0; i < 10; ++i) {
      const RequestId request = ask(client, shape, 0, rows, joinable).value();
      now_ += ns;
      reply(request, {7, 0}, ns);
    }
    words();
  }
  /// Lets the lane of worker 7 run the requests that it was sent, in that order, until `until_ns`. `cost_ns(action)` returns how
  /// long a request takes, and `ended(action)` is called after each. With kCancelled, the client kGreedy cancels each of its
  /// requests just before its end. Returns the time that the lane spent on each client.
  template <class Cost, class Ended>
  std::array<std::uint64_t, 4> serve(std::uint64_t until_ns, const Cost& cost_ns, const Ended& ended,
                                     StatusCode status = StatusCode::kOk) {
    std::array<std::uint64_t, 4> served_ns{};
    while (now_ < until_ns) {
      for (const Action& action : taken()) {
        if (action.kind == Action::Kind::kSend) on_lane_.push_back(action);
      }
      if (on_lane_.empty()) break;
      const Action run = on_lane_.front();
      on_lane_.pop_front();
      const std::uint64_t took_ns = cost_ns(run);
      now_ += took_ns;
      served_ns[run.client] += took_ns;
      if (status == StatusCode::kCancelled && run.client == kGreedy) {
        ledger_.cancel(run.client, run.seq, now_);
        reply(run.request, run.lane, took_ns, status);
      } else {
        reply(run.request, run.lane, took_ns);
      }
      ended(run);
    }
    return served_ns;
  }

  std::uint64_t seq_ = 0;
  std::deque<Action> on_lane_;
};

enum : std::uint64_t { kShort = 11, kLong = 12 };  // shapes

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

TEST_F(LedgerFairnessTest, RefusedRequestsDoNotChangeWhatIsPredictedForOthers) {
  ready(7);
  teach(kLong, 400 * kMs, kGreedy);
  teach(kShort, 10 * kMs);
  for (int i = 0; i < 300; ++i) ASSERT_TRUE(is_refused(kGreedy, kLong, 1));
  ask(kGreedy, kLong).value();
  EXPECT_TRUE(is_refused(kOther, kShort, 300 * kMs)) << "the lane is busy for 400 ms";
  EXPECT_FALSE(is_refused(kOther, kShort, 600 * kMs));
}

TEST_F(LedgerFairnessTest, RefusedRequestsOfInventedShapesForgetNoOthersEstimate) {
  ready(7);
  teach(kLong, 100 * kMs);
  teach(kShort, 10 * kMs);
  teach(kLong, 100 * kMs);
  for (std::uint64_t shape = 1'000; shape < 3'000; ++shape) (void)ask(kGreedy, shape, 1);
  now_ += 10;
  ledger_.tick(now_ + 10 * kMs);  // the admitted ones have ended
  words();
  ready(8);  // an idle lane
  words();
  EXPECT_TRUE(is_refused(kOther, kShort, 4 * kMs));
  EXPECT_FALSE(is_refused(kOther, kShort, 30 * kMs));
  EXPECT_TRUE(is_refused(kOther, kLong, 60 * kMs));
}

TEST_F(LedgerFairnessTest, AnEstimateIsDoubtedByTimeAlone) {
  ready(7);
  teach(kLong, 100 * kMs);
  for (int i = 0; i < 2000; ++i) ASSERT_TRUE(is_refused(kGreedy, kLong, 20 * kMs)) << i;
  now_ += 10'000 * kMs;
  EXPECT_FALSE(is_refused(kOther, kLong, 20 * kMs)) << "it may have been measured in a bad moment";
}

TEST_F(LedgerFairnessTest, ARunThatWasLetThroughInDoubtAndDidNotEndConfirmsTheEstimate) {
  ready(7);
  teach(kLong, 100 * kMs);
  int admitted = 0;
  const std::uint64_t end_ns = now_ + 60'000 * kMs;
  while (now_ < end_ns) {  // one after the other; each one is stopped at its deadline
    now_ += 5 * kMs;
    const auto request = ask(kOther, kLong, 20 * kMs);
    if (!request.ok()) continue;
    ++admitted;
    now_ += 25 * kMs;
    ledger_.tick(now_);
    reply(*request, {7, 0}, 24 * kMs, StatusCode::kCancelled);
  }
  words();
  EXPECT_GE(admitted, 10);
  EXPECT_LE(admitted, 62);  // at most one in a second
}

TEST_F(LedgerFairnessTest, AFastRunOfADoubtedShapeIsBelievedAtOnce) {
  ready(7);
  teach(kLong, 400 * kMs);
  now_ += 10'000 * kMs;
  const RequestId request = ask(kOther, kLong, 40 * kMs).value();
  EXPECT_EQ(words(), Words{format("send {}@7.0#1", seq_)});
  now_ += 20 * kMs;
  reply(request, {7, 0}, 20 * kMs);
  words();
  EXPECT_FALSE(is_refused(kOther, kLong, 40 * kMs));
}

TEST_F(LedgerFairnessTest, AnEstimateThatWasRightSurvivesARest) {
  ready(7);
  teach(kLong, 400 * kMs);
  now_ += 3'600'000 * kMs;
  const RequestId request = ask(kOther, kLong).value();
  now_ += 400 * kMs;
  reply(request, {7, 0}, 400 * kMs);
  EXPECT_TRUE(is_refused(kOther, kLong, 300 * kMs));
}

TEST_F(LedgerFairnessTest, AShapeThatWasNeverMeasuredIsNotRefusedForWhatOthersTake) {
  ready(7);
  teach(kLong, 100 * kMs);
  EXPECT_FALSE(is_refused(kOther, kShort, 20 * kMs));
}

// The lane runs a parked request meanwhile, and never begins the cancelled one.
TEST_F(LedgerFairnessTest, ACancelledRequestThatNeverRanRaisesNoEstimate) {
  ready(7);
  teach(kShort, 10 * kMs);
  const RequestId parked = ask(kGreedy, kLong).value();
  ledger_.lane_parked({7, 0}, parked, 1, now_);
  const RequestId never_ran = ask(kGreedy, kShort).value();
  ledger_.cancel(kGreedy, seq_, now_);
  now_ += 2'000 * kMs;
  reply(parked, {7, 0}, 2'000 * kMs);
  reply(never_ran, {7, 0}, 0, StatusCode::kCancelled);
  words();
  EXPECT_FALSE(is_refused(kOther, kShort, 30 * kMs));
}

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
  EXPECT_GT(ledger_.retry_after_ms(model_, kGreedy, now_), 1'000u);
  EXPECT_LT(ledger_.retry_after_ms(model_, 78, now_), 1'000u);
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
  EXPECT_GE(ledger_.retry_after_ms(model_, 1'000, now_), 100u);
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

TEST_F(LedgerFairnessTest, InventedRowsDoNotMakeOthersWait) {
  ready(7);
  teach(kShort, 10 * kMs);
  ask(kGreedy, 1'000, 0, 1u << 30).value();
  EXPECT_FALSE(is_refused(kOther, kShort, 100 * kMs));
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

// kShort was measured in a bad moment. kGreedy floods the queue, so that its requests are not served without a turn.
TEST_F(LedgerFairnessTest, AShapeThatWasMeasuredInABadMomentGetsATurnWhileAnotherClientFloods) {
  ready(7);
  teach(kLong, 10 * kMs, kGreedy);
  teach(kShort, 100 * kMs);
  for (int i = 0; i < 20; ++i) ask(kGreedy, kLong).value();
  int refused = 0;
  const auto served_ns = serve(
      now_ + 10'000 * kMs, [](const Action& run) { return run.client == kGreedy ? 10 * kMs : kMs; },
      [&](const Action& run) {
        if (run.client == kGreedy) ask(kGreedy, kLong).value();
        refused += is_refused(kOther, kShort, 60 * kMs);
      });
  EXPECT_GT(refused, 0);
  EXPECT_GT(served_ns[kOther], 100 * kMs);
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
