#include "tests/unit/supervisor/route/ledger_fixture.hpp"
#include "tests/unit/supervisor/route/ledger_state.hpp"

namespace shoal::supervisor {
namespace {

TEST_F(LedgerTest, ARequestGoesToALaneAndItsReplyToTheClient) {
  ready(7);
  const RequestId request = admit(1);
  EXPECT_EQ(words(), Words{"send 1@7.0#1"});
  EXPECT_TRUE(answer(request, {7, 0}));
  EXPECT_EQ(words(), Words{"forward 1"});
  EXPECT_TRUE(ledger_.idle());
  EXPECT_EQ(forgotten_, 1);
  EXPECT_EQ(ledger_.answered_by(7), 1u);
}

TEST_F(LedgerTest, RequestsWaitUntilAWorkerIsReady) {
  admit(1);
  EXPECT_TRUE(words().empty());
  ready(7);
  EXPECT_EQ(words(), Words{"send 1@7.0#1"});
}

TEST_F(LedgerTest, HigherPriorityGoesFirstThenArrival) {
  admit(1);
  admit(2, 5);
  admit(3, 5);
  admit(4, -128);
  ready(7, 4);
  EXPECT_EQ(words(), (Words{"send 2@7.0#1", "send 3@7.1#1", "send 1@7.2#1", "send 4@7.3#1"}));
}

TEST_F(LedgerTest, IdleLanesComeBeforeSecondCredits) {
  ready(7);
  ready(8);
  const RequestId first = admit(1);
  admit(2);
  admit(3);
  EXPECT_EQ(words(), (Words{"send 1@7.0#1", "send 2@8.0#1", "send 3@7.0#1"}));
  admit(4);  // worker 8 holds the fewest
  EXPECT_EQ(words(), Words{"send 4@8.0#1"});
  admit(5);  // both workers have used their two credits
  EXPECT_TRUE(words().empty());
  answer(first, {7, 0});
  EXPECT_EQ(words(), (Words{"forward 1", "send 5@7.0#1"}));
}

TEST_F(LedgerTest, AParkedRequestTakesUpNoCreditOfItsLane) {
  ready(7);
  const RequestId first = admit(1), second = admit(2);
  admit(3);
  words();  // both credits are used; 3 waits
  EXPECT_TRUE(ledger_.lane_parked({7, 0}, first, 1, now_));
  EXPECT_EQ(words(), Words{"send 3@7.0#1"});
  EXPECT_FALSE(ledger_.lane_parked({7, 0}, first, 1, now_)) << "the second notice gives no more credit";
  admit(4);
  EXPECT_TRUE(words().empty());
  EXPECT_EQ(ledger_.held_by(7), 3u);
  EXPECT_TRUE(answer(first, {7, 0}));
  EXPECT_EQ(words(), Words{"forward 1"});  // its answer frees no credit
  EXPECT_TRUE(answer(second, {7, 0}));
  EXPECT_EQ(words(), (Words{"forward 2", "send 4@7.0#1"}));
}

// A worker may say anything of its own requests, too.
TEST_F(LedgerTest, ARunTakesNoLongerThanTheTimeSinceItWasSent) {
  ready(7);
  const RequestId first = admit(1);
  now_ += 2 * kMs;
  taken();
  EXPECT_TRUE(ledger_.lane_parked({7, 0}, first, 1, now_));
  EXPECT_TRUE(ledger_.lane_replied({.lane = {7, 0}, .request = first, .attempt = 1, .compute_ns = ~std::uint64_t{0}}, now_));
  const std::vector<Action> actions = taken();
  ASSERT_EQ(actions.size(), 1u);
  EXPECT_LE(actions[0].queue_ns, 2 * kMs);
  EXPECT_TRUE(try_admit(2, 0, 100 * kMs).ok()) << "its shape is not taken for one that lasts for ever";
}

TEST_F(LedgerTest, AnAnswerOfItsOwnSaysWhetherTheRequestMayHaveRun) {
  ready(7);
  const RequestId running = admit(1);
  admit(2), admit(3);  // 3 waits: both credits are used
  taken();
  ledger_.cancel(1, 3, now_);
  ledger_.cancel(1, 1, now_);
  const std::vector<Action> actions = taken();
  ASSERT_EQ(actions.size(), 2u);
  EXPECT_EQ(actions[0].ran, Ran::kNo);
  EXPECT_EQ(actions[1].ran, Ran::kMaybe);
  EXPECT_EQ(actions[1].request, running);
}

TEST_F(LedgerTest, AParkedNoticeThatMatchesNoLeaseIsIgnored) {
  ready(7);
  ready(8);
  const RequestId first = admit(1);
  words();
  EXPECT_FALSE(ledger_.lane_parked({8, 0}, first, 1, now_));
  EXPECT_FALSE(ledger_.lane_parked({7, 0}, first, 2, now_));
  EXPECT_FALSE(ledger_.lane_parked({9, 0}, first, 1, now_));
  EXPECT_TRUE(answer(first, {7, 0}));
  EXPECT_FALSE(ledger_.lane_parked({7, 0}, first, 1, now_));
  EXPECT_EQ(words(), Words{"forward 1"});
  EXPECT_TRUE(ledger_.idle());
}

TEST_F(LedgerTest, FastModelsGetMoreCreditsUpToTheMost) {
  ready(7);
  for (std::uint64_t seq = 1; seq <= 200; ++seq) {  // each took 1 ns, so the estimate falls
    const RequestId request = admit(seq);
    ledger_.lane_replied({.lane = {7, 0}, .request = request, .attempt = 1, .compute_ns = 1}, now_ += kMs);
    words();
  }
  Words sent;
  for (std::uint64_t seq = 1000; seq < 1064; ++seq) admit(seq);
  EXPECT_EQ(words().size(), Ledger::kMaxCredits);
  admit(2000);
  EXPECT_TRUE(words().empty());
}

class LedgerMessageTest : public LedgerTest {
 protected:
  LedgerMessageTest() : LedgerTest({.queue_limit = 64, .lane_message_bytes = 1000}) {}
  RequestId bring(std::uint64_t seq, std::uint64_t message_bytes) {
    const RequestId request =
        ledger_.admit({.client = 1, .seq = seq, .model = model_, .message_bytes = message_bytes}, now_).value();
    ledger_.dispatch(model_, now_);
    return request;
  }
};

// A worker has memory for two of the largest messages in each lane.
TEST_F(LedgerMessageTest, ALaneHoldsAtMostTwiceWhatOneMessageMayBring) {
  ready(7);
  for (std::uint64_t seq = 1; seq <= 200; ++seq) {  // so short that the lane has all its credits
    const RequestId request = bring(seq, 900);
    ledger_.lane_replied({.lane = {7, 0}, .request = request, .attempt = 1, .compute_ns = 1}, now_ += kMs);
  }
  words();
  const RequestId largest = bring(1001, 1000);
  bring(1002, 1);
  EXPECT_EQ(words(), (Words{"send 1001@7.0#1", "send 1002@7.0#1"}));
  bring(1003, 1);
  EXPECT_EQ(words(), Words{}) << "the lane has 1001 bytes";
  ledger_.lane_replied({.lane = {7, 0}, .request = largest, .attempt = 1, .compute_ns = 1}, now_);
  EXPECT_EQ(words(), (Words{"forward 1001", "send 1003@7.0#1"}));
  bring(1004, 998);
  EXPECT_EQ(words(), Words{"send 1004@7.0#1"});
  bring(1005, 1000);
  EXPECT_EQ(words(), Words{"send 1005@7.0#1"}) << "it had 1000 bytes";
  bring(1006, 0);
  EXPECT_EQ(words(), Words{}) << "it has 2000 bytes";
}

TEST_F(LedgerTest, AFullQueueSaysOverloadedAtOnce) {
  for (std::uint64_t seq = 1; seq <= 4; ++seq) admit(seq);
  const auto refused = try_admit(5);
  EXPECT_EQ(refused.status().code(), StatusCode::kOverloaded);
  EXPECT_GE(ledger_.retry_after_ms(model_, 1, 0, now_), 1u);
  EXPECT_EQ(counts().refused, 1u);
  EXPECT_TRUE(words().empty());
}

TEST_F(LedgerTest, RepliesThatMatchNoLeaseAreCountedLateAndDropped) {
  ready(7);
  ready(8);
  const RequestId request = admit(1);
  words();
  EXPECT_FALSE(answer(request, {7, 0}, 2));   // another attempt
  EXPECT_FALSE(answer(request, {8, 0}));      // another worker
  EXPECT_FALSE(answer(request + 1, {7, 0}));  // never existed
  EXPECT_TRUE(answer(request, {7, 0}));
  EXPECT_FALSE(answer(request, {7, 0}));  // a second time
  EXPECT_EQ(counts().late, 4u);
  EXPECT_EQ(words(), Words{"forward 1"});
}

TEST_F(LedgerTest, RequestIdsAreNeverUsedTwice) {
  ready(7);
  const RequestId first = admit(1);
  answer(first, {7, 0});
  const RequestId second = admit(2);
  EXPECT_EQ(slot_of(first), slot_of(second));
  EXPECT_NE(first, second);
  EXPECT_FALSE(answer(first, {7, 0}));  // a second reply to the first request does not answer the second one
  EXPECT_TRUE(answer(second, {7, 0}));
}

TEST_F(LedgerTest, NoRequestHasTheIdThatMeansNoneWhenTheGenerationsOfItsSlotAreUsedUp) {
  ready(7);
  const RequestId first = admit(1);
  ASSERT_EQ(slot_of(first), 0u);
  answer(first, {7, 0});
  LedgerState::set_generation(ledger_, 0, 0xfffffffd);
  for (std::uint64_t seq = 2; seq <= 6; ++seq) {
    const RequestId request = admit(seq);
    EXPECT_EQ(slot_of(request), 0u);
    EXPECT_NE(request, 0u) << "the status line of a lane and its crash record say 'none' with it";
    words();
    die(seq + 5, {crashed(request)});  // the record names the request by its id
    ready(seq + 6);
    EXPECT_EQ(words(), Words{format("send {}@{}.0#2 alone", seq, seq + 6)});
    EXPECT_TRUE(answer(request, {seq + 6, 0}, 2));
    EXPECT_EQ(words(), Words{format("forward {}", seq)});
  }
}

TEST_F(LedgerTest, ARequestThatWasLeasedManyTimesIsStillKnownAsLeasedBefore) {
  ready(1);
  const RequestId request = admit(1);
  Incarnation worker = 1;
  for (int i = 0; i < (1 << 16) + 1; ++i) {
    die(worker);  // before it began
    ready(++worker);
    words();
  }
  EXPECT_EQ(counts().rerun, (1u << 16) + 1u);
  EXPECT_TRUE(answer(request, {worker, 0}));
}

TEST_F(LedgerTest, AWaitingRequestPastItsDeadlineIsAnsweredAndReleased) {
  admit(1, 0, 50 * kMs);
  now_ += 49 * kMs;
  ledger_.tick(now_);
  EXPECT_TRUE(words().empty());
  now_ += 6 * kMs;
  ledger_.tick(now_);
  EXPECT_EQ(words(), Words{"reply 1 DEADLINE_EXCEEDED"});
  EXPECT_TRUE(ledger_.idle());
  EXPECT_FALSE(ledger_.next_tick_ns(now_).has_value());
}

TEST_F(LedgerTest, ARunningRequestPastItsDeadlineIsReleasedWhenTheLaneReplies) {
  ready(7);
  const RequestId request = admit(1, 0, 50 * kMs);
  words();
  now_ += 60 * kMs;
  ledger_.tick(now_);
  EXPECT_EQ(words(), Words{"reply 1 DEADLINE_EXCEEDED held"});
  EXPECT_TRUE(answer(request, {7, 0}));
  EXPECT_EQ(words(), Words{"release 1"});
  EXPECT_TRUE(ledger_.idle());
}

TEST_F(LedgerTest, ARunningRequestPastItsDeadlineIsReleasedWhenItsWorkerDies) {
  ready(7);
  const RequestId request = admit(1, 0, 50 * kMs);
  now_ += 60 * kMs;
  ledger_.tick(now_);
  words();
  die(7, {running(request)});
  EXPECT_EQ(words(), Words{"release 1"});
  EXPECT_EQ(counts().deaths_rerun, 0u);
}

TEST_F(LedgerTest, TheModelsTimeoutHoldsWhenTheClientNamesNone) {
  Ledger ledger;
  const ModelIndex model = ledger.add_model("m", {.timeout_ns = 10 * kMs});
  (void)ledger.admit({.client = 1, .seq = 1, .model = model}, now_);
  ledger.tick(now_ + 15 * kMs);
  ASSERT_FALSE(ledger.actions().empty());
  EXPECT_EQ(ledger.actions()[0].status, StatusCode::kDeadlineExceeded);
}

TEST_F(LedgerTest, AWaitingRequestCanBeCancelled) {
  admit(1);
  ledger_.cancel(2, 1, now_);  // another client has no such request
  EXPECT_TRUE(words().empty());
  ledger_.cancel(1, 1, now_);
  EXPECT_EQ(words(), Words{"reply 1 CANCELLED"});
  EXPECT_TRUE(ledger_.idle());
}

TEST_F(LedgerTest, ARunningRequestCanBeCancelledOnce) {
  ready(7);
  const RequestId request = admit(1);
  words();
  ledger_.cancel(1, 1, now_);
  ledger_.cancel(1, 1, now_);
  EXPECT_EQ(words(), Words{"reply 1 CANCELLED held"});
  answer(request, {7, 0}, 1, StatusCode::kCancelled);
  EXPECT_EQ(words(), Words{"release 1"});
}

TEST_F(LedgerTest, ADeadClientsWaitingRequestsAreDroppedAndRunningOnesDiscarded) {
  ready(7);
  const RequestId running_one = admit(1, 0, 0, 5);
  admit(2, 0, 0, 5);
  admit(3, 0, 0, 5);  // beyond the two credits
  const RequestId other = admit(4, 0, 0, 6);
  words();
  ledger_.client_gone(5);
  EXPECT_TRUE(words().empty());
  answer(running_one, {7, 0});
  EXPECT_EQ(words(), Words{"send 4@7.0#1"});  // the dead client gets no reply
  EXPECT_EQ(counts().orphaned, 3u);
  die(7, {running(other)});
  ready(8);
  EXPECT_EQ(words(), Words{"send 4@8.0#2"});  // the requests of the dead client do not run again
}

TEST_F(LedgerTest, DrainingRefusesNewRequestsAndFinishesOldOnes) {
  ready(7);
  const RequestId request = admit(1);
  words();
  ledger_.drain();
  EXPECT_EQ(try_admit(2).status().code(), StatusCode::kUnavailable);
  EXPECT_FALSE(ledger_.idle());
  answer(request, {7, 0});
  EXPECT_TRUE(ledger_.idle());
}

TEST_F(LedgerTest, ADrainedModelFinishesWhatItHasAndRunsItAgainWhereThatMustBe) {
  ready(7);
  const RequestId request = admit(1);
  words();
  ledger_.drain_model(model_, "replaced by version 2");
  const auto refused = try_admit(2);
  EXPECT_EQ(refused.status().code(), StatusCode::kUnavailable);
  EXPECT_NE(refused.status().message().find("replaced by version 2"), std::string::npos);
  die(7, {running(request)});
  ready(8);
  EXPECT_EQ(words(), Words{"send 1@8.0#2"});
  EXPECT_FALSE(ledger_.model_idle(model_));
  ledger_.cancel(1, 1, now_);  // it is answered, but the worker still uses its slots
  EXPECT_FALSE(ledger_.model_idle(model_));
  answer(request, {8, 0}, 2, StatusCode::kCancelled);
  EXPECT_TRUE(ledger_.model_idle(model_));
}

TEST_F(LedgerTest, TheNumberOfARemovedModelGoesToTheNextOne) {
  ready(7);
  answer(admit(1), {7, 0});
  words();
  const ModelIndex other = ledger_.add_model("other", {});
  ledger_.remove_model(model_);
  EXPECT_FALSE(answer(1, {7, 0}));  // replies of its workers are ignored
  EXPECT_EQ(ledger_.add_model("next", {.queue_limit = 1}), model_);
  EXPECT_EQ(counts().admitted, 0u);
  EXPECT_TRUE(try_admit(2).ok());
  EXPECT_TRUE(words().empty());  // the old worker does not serve the new model
  EXPECT_EQ(ledger_.add_model("last", {}), other + 1);
}

TEST_F(LedgerTest, FailingEverythingAnswersWaitingAndRunningOnce) {
  ready(7);
  const RequestId request = admit(1);
  admit(2);
  admit(3);
  words();
  ledger_.fail_everything(StatusCode::kUnavailable, "shutting down", now_);
  EXPECT_EQ(words().size(), 3u);
  ledger_.fail_everything(StatusCode::kUnavailable, "shutting down", now_);
  EXPECT_TRUE(words().empty());
  answer(request, {7, 0});
  EXPECT_EQ(words(), Words{"release 1"});
}

TEST_F(LedgerTest, AFailedModelAnswersWhatWaitsAndRefusesMore) {
  admit(1);
  ledger_.fail_model(model_, "no such file");
  const auto actions = taken();
  ASSERT_EQ(actions.size(), 1u);
  EXPECT_EQ(actions[0].status, StatusCode::kUnavailable);
  EXPECT_NE(actions[0].message.find("no such file"), std::string::npos);
  EXPECT_EQ(try_admit(2).status().code(), StatusCode::kUnavailable);
}

TEST_F(LedgerTest, AnUndeliveredRequestWaitsAgainInFrontAndItsWorkerRests) {
  ready(7);
  const RequestId first = admit(1);
  admit(2);
  admit(3);
  words();
  ledger_.undelivered(first);
  ledger_.dispatch(model_, now_);
  EXPECT_TRUE(words().empty());
  ready(8);
  EXPECT_EQ(words(), (Words{"send 1@8.0#1", "send 3@8.0#1"}));
  ledger_.retry(7, now_);
  admit(4);
  EXPECT_EQ(words(), Words{"send 4@7.0#1"});
}

TEST_F(LedgerTest, AWorkerThatIsBeingEndedGetsNothingNewAndItsEndIsADeath) {
  ready(7);
  const RequestId request = admit(1);
  words();
  ledger_.undelivered(request);
  ledger_.condemn(7);
  ledger_.retry(7, now_);
  EXPECT_TRUE(words().empty());
  die(7);
  EXPECT_EQ(counts().worker_deaths, 1u);
  ready(8);
  EXPECT_EQ(words(), Words{"send 1@8.0#1"});
}

TEST_F(LedgerTest, AWorkerThatIsDismissedFinishesWhatItHoldsAndItsEndIsNoDeath) {
  ready(7);
  const RequestId first = admit(1);
  words();
  ledger_.dismiss(7);
  admit(2);
  ledger_.retry(7, now_);
  EXPECT_TRUE(words().empty()) << "it gets nothing new";
  EXPECT_TRUE(answer(first, {7, 0}));
  EXPECT_EQ(words(), Words{"forward 1"});
  EXPECT_EQ(ledger_.held_by(7), 0u);
  die(7);
  EXPECT_EQ(counts().worker_deaths, 0u);
  ready(8);
  EXPECT_EQ(words(), Words{"send 2@8.0#1"});
}

TEST_F(LedgerTest, AnErrorOfTheLaneIsTerminal) {
  ready(7);
  const RequestId request = admit(1);
  answer(request, {7, 0}, 1, StatusCode::kInvalidArgument);
  EXPECT_EQ(words(), (Words{"send 1@7.0#1", "forward 1"}));
  EXPECT_EQ(counts().answered[static_cast<std::size_t>(StatusCode::kInvalidArgument)], 1u);
}

TEST_F(LedgerTest, WaitingForAProgramIsWaiting) {
  ready(7);
  const RequestId request = admit(1);
  words();
  ledger_.lane_parked({7, 0}, request, 1, now_);
  now_ += 50 * kMs;
  EXPECT_TRUE(answer(request, {7, 0}));  // after 1 ms of computing
  EXPECT_EQ(taken().at(0).queue_ns, 49 * kMs);
}

}  // namespace
}  // namespace shoal::supervisor
