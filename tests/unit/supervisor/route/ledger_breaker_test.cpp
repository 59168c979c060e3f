// Crashes that nobody is to blame for open the breaker of their model, until a probe is answered.
#include <vector>

#include "tests/unit/supervisor/route/ledger_death_fixture.hpp"

namespace shoal::supervisor {
namespace {

TEST_F(LedgerDeathTest, CrashesThatNobodyIsToBlameForOpenTheBreakerUntilAProbeIsAnswered) {
  LaneEvidence crash;  // a thread that is no lane crashed, and nothing ran
  crash.crashed = true;
  crash.what = "signal 11";
  Incarnation worker = 7;
  ready(worker);
  admit(1);
  for (std::size_t i = 0; i < Breaker::kCrashes; ++i) {
    now_ += 100 * kMs;
    die(worker, {crash});
    ready(++worker);
  }
  words();
  const auto refused = try_admit(2);
  EXPECT_EQ(refused.status().code(), StatusCode::kUnavailable);
  EXPECT_NE(refused.status().message().find("signal 11"), std::string::npos);
  EXPECT_EQ(ledger_.retry_after_ms(model_, 1, 0, now_), 1000u);
  EXPECT_EQ(ledger_.next_tick_ns(now_), now_ + Breaker::kFirstBackoffNs);
  EXPECT_TRUE(words().empty());  // the admitted request waits
  now_ += Breaker::kFirstBackoffNs;
  ledger_.tick(now_);
  EXPECT_EQ(words(), Words{"probe " + std::to_string(worker)});
  die(worker, {crash});  // the back-off doubles
  ready(++worker);
  EXPECT_EQ(ledger_.retry_after_ms(model_, 1, 0, now_), 2000u);
  now_ += 2 * Breaker::kFirstBackoffNs;
  ledger_.tick(now_);
  EXPECT_EQ(words(), Words{"probe " + std::to_string(worker)});
  ledger_.probed(worker - 1, true, now_);  // a worker that was not probed
  EXPECT_TRUE(words().empty());
  ledger_.probed(worker, true, now_);
  EXPECT_EQ(words(), Words{"send 1@" + std::to_string(worker) + ".0#1"});
  EXPECT_TRUE(try_admit(3).ok());
}

TEST_F(LedgerDeathTest, KillsFromOutsideAndCrashesFarApartDoNotOpenTheBreaker) {
  LaneEvidence crash;
  crash.crashed = true;
  Incarnation worker = 7;
  ready(worker);
  for (int i = 0; i < 20; ++i) {
    now_ += 3'000 * kMs;
    die(worker, {i % 2 ? crash : LaneEvidence{}});
    ready(++worker);
  }
  for (int i = 0; i < 20; ++i) {
    LaneEvidence killed = crash;
    killed.sent_by_process = true;
    die(worker, {killed});
    ready(++worker);
  }
  EXPECT_TRUE(try_admit(2).ok());
}

TEST_F(LedgerDeathTest, AProbeWithoutAnAnswerIsGivenUp) {
  open_breaker();
  now_ += Breaker::kFirstBackoffNs;
  ledger_.tick(now_);  // nobody to probe
  EXPECT_FALSE(ledger_.next_tick_ns(now_).has_value());
  ready(100);
  EXPECT_EQ(words(), Words{"probe 100"});
  now_ += Breaker::kProbeLimitNs;
  ledger_.tick(now_);
  EXPECT_EQ(ledger_.retry_after_ms(model_, 1, 0, now_), 2000u);
}

// A model may need longer than the limit for one answer.
TEST_F(LedgerDeathTest, AProbeThatIsAnsweredLateEndsTheRestAndOneThatFailsLateDoesNot) {
  open_breaker();
  ready(100);
  for (const bool answered : {false, true}) {
    now_ = *ledger_.next_tick_ns(now_);
    ledger_.tick(now_);
    EXPECT_EQ(words(), Words{"probe 100"});
    now_ += Breaker::kProbeLimitNs;
    ledger_.tick(now_);
    now_ += 1'000 * kMs;
    ledger_.probed(100, answered, now_);
    EXPECT_FALSE(ledger_.has_busy_lanes());
    EXPECT_EQ(try_admit(1).ok(), answered);
  }
}

TEST_F(LedgerDeathTest, AWorkerThatDiesWhileItIsProbedOwesNoAnswer) {
  open_breaker();
  for (const Incarnation worker : {7, 8}) ready(worker);
  now_ += Breaker::kFirstBackoffNs;
  ledger_.tick(now_);
  now_ += Breaker::kProbeLimitNs;
  ledger_.tick(now_);
  EXPECT_TRUE(ledger_.has_busy_lanes());
  die(7, {});
  EXPECT_FALSE(ledger_.has_busy_lanes());
}

TEST_F(LedgerDeathTest, WorkersAreProbedInTurnsAndWatchedUntilTheyAnswer) {
  open_breaker();
  for (const Incarnation worker : {7, 8}) ready(worker);
  EXPECT_FALSE(ledger_.has_busy_lanes());
  std::vector<BusyLane> busy;
  for (const Incarnation worker : {7, 8, 7}) {
    now_ = *ledger_.next_tick_ns(now_);
    ledger_.tick(now_);
    EXPECT_EQ(words(), Words{"probe " + std::to_string(worker)});
    EXPECT_TRUE(ledger_.has_busy_lanes());
    ledger_.busy_lanes(busy);
    ASSERT_EQ(busy.size(), 1u);
    EXPECT_EQ(busy[0].lane, (LaneRef{worker, 0}));
    EXPECT_EQ(busy[0].oldest, kProbe);
    EXPECT_EQ(busy[0].leased_ns, now_);
    now_ += Breaker::kProbeLimitNs;
    ledger_.tick(now_);  // the probe is given up, but the worker still owes its answer
    EXPECT_TRUE(ledger_.has_busy_lanes());
  }
  ledger_.probed(7, true, now_);
  EXPECT_FALSE(ledger_.has_busy_lanes());
  ledger_.busy_lanes(busy);
  EXPECT_TRUE(busy.empty());
}

}  // namespace
}  // namespace shoal::supervisor
