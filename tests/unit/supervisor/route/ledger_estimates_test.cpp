// A client cannot change the estimates for the requests of other clients without running requests of its own.
#include "tests/support/says.hpp"
#include "tests/unit/supervisor/route/ledger_fairness_fixture.hpp"

namespace shoal::supervisor {
namespace {

TEST_F(LedgerFairnessTest, RefusedRequestsDoNotChangeWhatIsPredictedForOthers) {
  ready(7);
  teach(kLong, 400 * kMs, kGreedy);
  teach(kShort, 10 * kMs);
  for (int i = 0; i < 300; ++i) ASSERT_TRUE(is_refused(kGreedy, kLong, 1));
  ask(kGreedy, kLong).value();
  EXPECT_TRUE(is_refused(kOther, kShort, 300 * kMs)) << "the lane is busy for 400 ms";
  EXPECT_FALSE(is_refused(kOther, kShort, 600 * kMs));
}

TEST_F(LedgerFairnessTest, ARefusalTellsTimesBelowAMillisecond) {
  ready(7);
  teach(kLong, 2 * kMs);
  const auto refused = ask(kOther, kLong, kMs - 50'000);
  EXPECT_EQ(refused.status().code(), StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(test::says(refused.status().message(), {"0.95 ms are left", "wait about 0 ms"}));
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

TEST_F(LedgerFairnessTest, InventedRowsDoNotMakeOthersWait) {
  ready(7);
  teach(kShort, 10 * kMs);
  ask(kGreedy, 1'000, 0, 1u << 30).value();
  EXPECT_FALSE(is_refused(kOther, kShort, 100 * kMs));
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

}  // namespace
}  // namespace shoal::supervisor
