#include <random>
#include <set>

#include "shm/wire/status_page.hpp"
#include "tests/unit/supervisor/route/ledger_fixture.hpp"

namespace shoal::supervisor {
namespace {

class LedgerDeathTest : public LedgerTest {
 protected:
  LedgerDeathTest() : LedgerTest({.queue_limit = 64}) {}
  /// Workers crash one after the other while nothing runs, until the breaker opens.
  void open_breaker() {
    LaneEvidence crash;
    crash.crashed = true;
    for (Incarnation worker = 1; worker <= Breaker::kCrashes; ++worker) {
      ready(worker);
      die(worker, {crash});
    }
  }
};

TEST_F(LedgerTest, ParkedRequestsOfADeadWorkerRunAgainWithoutBlame) {
  ready(7);
  const RequestId parked = admit(1);
  admit(2);
  ledger_.lane_parked({7, 0}, parked, 1, now_);
  words();
  die(7);
  EXPECT_TRUE(words().empty());
  ready(8);
  EXPECT_EQ(words(), (Words{"send 1@8.0#1", "send 2@8.0#1"}));
  EXPECT_EQ(counts().rerun, 2u);
  ledger_.lane_parked({8, 0}, parked, 1, now_);  // parks the new lease
  EXPECT_TRUE(answer(parked, {8, 0}));
  EXPECT_EQ(words(), Words{"forward 1"});
}

TEST_F(LedgerTest, AParkedRequestWhoseCompilationCrashesTwiceIsPoison) {
  for (const Incarnation worker : {7, 8}) {
    ready(worker);
    if (worker == 7) admit(1);
    const auto sent = taken();
    ASSERT_EQ(sent.size(), 1u);
    ledger_.lane_parked({worker, 0}, sent[0].request, sent[0].attempt, now_);
    // Another request may run on the lane meanwhile. The record names the one whose program was being compiled.
    LaneEvidence evidence = crashed(sent[0].request);
    evidence.running_request = 0;
    die(worker, {evidence});
  }
  EXPECT_EQ(words(), Words{"reply 1 POISON"});
}

TEST_F(LedgerDeathTest, RequestsOfADeadWorkerRunElsewhereOldestFirst) {
  ready(7, 2);
  const RequestId first = admit(1);
  now_ += 1;
  const RequestId second = admit(2);
  now_ += 1;
  admit(3);
  now_ += 1;
  admit(4);
  now_ += 1;
  admit(5);  // waits
  words();
  die(7, {running(first), running(second)});
  EXPECT_TRUE(words().empty());
  ready(8, 5);
  // Only begun runs count as attempts.
  EXPECT_EQ(words(), (Words{"send 1@8.0#2", "send 2@8.1#2", "send 3@8.2#1", "send 4@8.3#1", "send 5@8.4#1"}));
  EXPECT_EQ(counts().worker_deaths, 1u);
  EXPECT_EQ(counts().rerun, 4u);
  EXPECT_EQ(counts().deaths_rerun, 1u);
}

TEST_F(LedgerDeathTest, ADeathTellsWhatBecameOfEachRequest) {
  using Fate = DeathOutcome::Fate;
  ready(7, 3);
  const RequestId guilty = admit(1), innocent = admit(2), expired = admit(3, 0, kMs);
  const RequestId waiting = admit(4);
  now_ += 2 * kMs;
  ledger_.tick(now_);
  const auto first = die(7, {crashed(guilty), running(innocent), running(expired)});
  ASSERT_EQ(first.size(), 4u);  // oldest first
  EXPECT_EQ(first[0].request, guilty);
  EXPECT_EQ(first[0].seq, 1u);
  EXPECT_EQ(first[0].fate, Fate::kRunsAlone);
  EXPECT_EQ(first[0].blamed, 1u);
  EXPECT_TRUE(first[0].was_running);
  EXPECT_EQ(first[1].request, innocent);
  EXPECT_EQ(first[1].fate, Fate::kRunsAgain);
  EXPECT_EQ(first[1].blamed, 0u);
  EXPECT_EQ(first[1].begun, 1u);
  EXPECT_EQ(first[2].request, expired);
  EXPECT_EQ(first[2].fate, Fate::kWasAnswered);
  EXPECT_EQ(first[3].request, waiting);
  EXPECT_FALSE(first[3].was_running);
  EXPECT_EQ(first[3].begun, 0u);
  ready(8, 3);
  const auto second = die(8, {crashed(guilty, 2)});
  ASSERT_EQ(second.size(), 1u);
  EXPECT_EQ(second[0].fate, Fate::kAnsweredPoison);
  EXPECT_EQ(second[0].begun, 2u);
  EXPECT_TRUE(die(8).empty());  // it is already dead
}

TEST_F(LedgerDeathTest, DeathsDuringACompilationAreAttemptsOfTheRequestItIsFor) {
  const RequestId compiled_for = admit(1), parked = admit(2);
  Words last;
  for (Incarnation worker = 1; worker <= 10; ++worker) {
    ready(worker);
    for (auto sent = taken(); !sent.empty(); sent = taken())  // parking one makes room for the next
      ledger_.lane_parked({worker, 0}, sent[0].request, sent[0].attempt, now_);
    die(worker, {{.compiling_request = compiled_for}});
    last = words();
  }
  EXPECT_EQ(last, Words{"reply 1 ABORTED"});
  ready(11);  // the request that only waited runs
  const auto sent = taken();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].request, parked);
  die(11, {{.compiling_request = compiled_for}});  // that request is over, and the ledger believes only what matches a lease
  EXPECT_TRUE(words().empty());
}

TEST_F(LedgerDeathTest, BusyLanesNameWhatTheyHaveHadForLongest) {
  std::vector<BusyLane> busy;
  ready(7, 2);
  ledger_.busy_lanes(busy);
  EXPECT_TRUE(busy.empty());
  const std::uint64_t began = now_;
  const RequestId first = admit(1);
  now_ += kMs;
  const RequestId second = admit(2), third = admit(3);  // behind the first
  ledger_.busy_lanes(busy);
  ASSERT_EQ(busy.size(), 2u);
  EXPECT_EQ(busy[0].lane, (LaneRef{7, 0}));
  EXPECT_EQ(busy[0].oldest, first);
  EXPECT_EQ(busy[0].leased_ns, began);
  EXPECT_EQ(busy[1].oldest, second);
  EXPECT_TRUE(answer(first, {7, 0}));
  ledger_.busy_lanes(busy);
  ASSERT_EQ(busy.size(), 2u);
  EXPECT_EQ(busy[0].oldest, third);
  EXPECT_FALSE(busy[1].parked);
  ledger_.lane_parked({7, 1}, second, 1, now_);
  const RequestId fourth = admit(4);  // a running request is named before a parked one
  ledger_.busy_lanes(busy);
  ASSERT_EQ(busy.size(), 2u);
  EXPECT_EQ(busy[1].oldest, fourth);
  EXPECT_FALSE(busy[1].parked);
  EXPECT_TRUE(answer(fourth, {7, 1}));
  ledger_.busy_lanes(busy);
  ASSERT_EQ(busy.size(), 2u);
  EXPECT_EQ(busy[1].oldest, second);
  EXPECT_EQ(busy[1].leased_ns, began + kMs);
  EXPECT_TRUE(busy[1].parked);
}

TEST_F(LedgerDeathTest, OldRepliesOfADeadWorkerAreLate) {
  ready(7);
  const RequestId request = admit(1);
  die(7, {running(request)});
  ready(8);
  words();
  EXPECT_FALSE(answer(request, {7, 0}));
  EXPECT_TRUE(answer(request, {8, 0}, 2));
  const auto actions = taken();
  ASSERT_EQ(actions.size(), 1u);
  EXPECT_EQ(actions[0].attempts, 2);
}

TEST_F(LedgerDeathTest, ADeathWhoseLaneNamedNothingIsNotCountedAsSurvived) {
  ready(7);
  admit(1);
  die(7);
  ready(8);
  EXPECT_EQ(counts().deaths_rerun, 0u);
  EXPECT_EQ(words(), (Words{"send 1@7.0#1", "send 1@8.0#1"}));
}

TEST_F(LedgerDeathTest, ARequestThatCrashesTwoWorkersIsPoison) {
  ready(7);
  const RequestId request = admit(1);
  die(7, {crashed(request)});
  ready(8);
  EXPECT_EQ(words(), (Words{"send 1@7.0#1", "send 1@8.0#2 alone"}));
  die(8, {crashed(request, 2)});
  const auto actions = taken();
  ASSERT_EQ(actions.size(), 1u);
  EXPECT_EQ(actions[0].status, StatusCode::kPoison);
  EXPECT_EQ(actions[0].attempts, 2);
  EXPECT_EQ(actions[0].ran, Ran::kYes);
  EXPECT_TRUE(actions[0].released);
  EXPECT_NE(actions[0].message.find("signal 11"), std::string::npos);
  EXPECT_TRUE(ledger_.idle());
}

TEST_F(LedgerDeathTest, RequestsOnOtherLanesRunAgainWithoutBlame) {
  ready(7, 2);
  const RequestId guilty = admit(1), innocent = admit(2);
  words();
  die(7, {crashed(guilty), running(innocent)});
  ready(8, 2);
  ready(9, 2);
  EXPECT_EQ(words(), (Words{"send 1@8.0#2 alone", "send 2@9.0#2"}));
  die(8, {crashed(guilty, 2), LaneEvidence{}});
  EXPECT_EQ(words(), Words{"reply 1 POISON"});
  EXPECT_TRUE(answer(innocent, {9, 0}, 2));
  EXPECT_EQ(words(), Words{"forward 2"});
}

TEST_F(LedgerDeathTest, ASignalFromOutsideBlamesNobody) {
  Incarnation worker = 7;
  ready(worker);
  const RequestId request = admit(1);
  for (std::uint16_t attempt = 1; attempt <= 5; ++attempt) {
    LaneEvidence sent = crashed(request, attempt);
    sent.sent_by_process = true;
    die(worker, {sent});
    ready(++worker);
  }
  EXPECT_EQ(words().back(), "send 1@12.0#6");
}

TEST_F(LedgerDeathTest, ARecordThatNamesARequestOfAnotherLaneIsNotBelieved) {
  ready(7, 2);
  const RequestId first = admit(1);
  const RequestId second = admit(2);
  words();
  for (Incarnation worker = 7; worker < 10; ++worker) {
    LaneEvidence liar = crashed(second);  // lane 0 holds the first
    liar.running_request = first;
    die(worker, {liar, LaneEvidence{}});
    ready(worker + 1, 2);
  }
  for (const std::string& said : words()) EXPECT_EQ(said.find("POISON"), std::string::npos) << said;
}

// For example, the frames of its message find no memory.
TEST_F(LedgerDeathTest, AMessageThatNoLaneCanReceiveEndsTwoWorkersAtMost) {
  using Fate = DeathOutcome::Fate;
  const LaneEvidence receiving{.crashed = true, .on_lane = true, .what = "hung"};
  ready(7);
  admit(1);
  admit(2);
  const auto first = die(7, {receiving});
  ASSERT_EQ(first.size(), 2u);
  EXPECT_EQ(first[0].fate, Fate::kRunsAlone);
  EXPECT_EQ(first[1].fate, Fate::kRunsAgain);
  EXPECT_EQ(first[1].blamed, 0u);
  words();
  ready(8);
  EXPECT_EQ(words(), Words{"send 1@8.0#2 alone"});
  const auto second = die(8, {receiving});
  ASSERT_EQ(second.size(), 1u);
  EXPECT_EQ(second[0].fate, Fate::kAnsweredPoison);
  EXPECT_TRUE(ledger_.model(model_).breaker.closed());
  words();
  ready(9);
  EXPECT_EQ(words(), Words{"send 2@9.0#1"});
}

TEST_F(LedgerDeathTest, ACompilationThatNobodyOrderedBlamesNoRequest) {
  const LaneEvidence compiling{.crashed = true, .on_lane = true, .crash_request = wire::kBlamesNoRequest, .what = "signal 11"};
  Incarnation worker = 7;
  ready(worker);
  admit(1);
  for (std::size_t i = 0; i < Breaker::kCrashes; ++i) {
    const auto outcomes = die(worker, {compiling});
    ASSERT_EQ(outcomes.size(), 1u);
    EXPECT_EQ(outcomes[0].fate, DeathOutcome::Fate::kRunsAgain);
    EXPECT_EQ(outcomes[0].blamed, 0u);
    ready(++worker);
  }
  EXPECT_FALSE(ledger_.model(model_).breaker.closed());
}

TEST_F(LedgerDeathTest, TenBegunAttemptsWithoutEvidenceAreAborted) {
  Incarnation worker = 7;
  ready(worker);
  const RequestId request = admit(1);
  for (std::uint16_t attempt = 1; attempt <= 10; ++attempt) {
    EXPECT_EQ(words(), Words{"send 1@" + std::to_string(worker) + ".0#" + std::to_string(attempt)});
    die(worker, {running(request, attempt)});
    if (attempt < 10) ready(++worker);
  }
  const auto actions = taken();
  ASSERT_EQ(actions.size(), 1u);
  EXPECT_EQ(actions[0].status, StatusCode::kAborted);
  EXPECT_EQ(actions[0].attempts, 10);
}

TEST_F(LedgerDeathTest, DeathsBeforeTheRequestBeganDoNotCount) {
  Incarnation worker = 7;
  ready(worker);
  admit(1);
  for (int i = 0; i < 50; ++i) {
    die(worker);
    ready(++worker);
  }
  EXPECT_EQ(words().back(), "send 1@57.0#1");
}

TEST_F(LedgerDeathTest, AFaultOfAnotherThreadWithOneRunningRequestBlamesIt) {
  for (Incarnation worker = 7; worker < 9; ++worker) {
    ready(worker);
    if (worker == 7) admit(1);
    const auto sent = taken();
    LaneEvidence line = running(sent.back().request, sent.back().attempt);
    line.crashed = true;
    die(worker, {line});
  }
  EXPECT_EQ(words(), Words{"reply 1 POISON"});
}

TEST_F(LedgerDeathTest, SeveralSuspectsRunAloneOneAtATime) {
  ready(7, 2);
  const RequestId first = admit(1);
  const RequestId second = admit(2);
  LaneEvidence line = running(first);
  line.crashed = true;
  words();
  die(7, {line, running(second)});
  const RequestId bystander = admit(3);
  ready(8, 2);
  // Only the first suspect runs on worker 8. Neither the second suspect nor the bystander may share it.
  EXPECT_EQ(words(), Words{"send 1@8.0#2 alone"});
  ready(9, 2);
  EXPECT_EQ(words(), Words{"send 3@9.0#1"});
  answer(first, {8, 0}, 2);
  EXPECT_EQ(words(), (Words{"forward 1", "send 2@8.0#2 alone"}));
  die(8);                        // no evidence: the request is still a suspect
  EXPECT_TRUE(words().empty());  // worker 9 is chosen, but busy with the bystander
  answer(bystander, {9, 0});
  EXPECT_EQ(words(), (Words{"forward 3", "send 2@9.0#2 alone"}));
  LaneEvidence alone = running(second, 2);
  alone.crashed = true;  // another thread crashed, and nothing else ran there
  die(9, {alone, LaneEvidence{}});
  EXPECT_EQ(words(), Words{"reply 2 POISON"});
}

TEST_F(LedgerDeathTest, AWardIsChosenAmongBusyWorkersAndTakesNothingElse) {
  ready(7, 2);
  const RequestId first = admit(1), second = admit(2);
  LaneEvidence line = running(first);
  line.crashed = true;
  ready(9, 2);
  const RequestId bystander = admit(3);
  words();
  die(7, {line, running(second)});
  EXPECT_TRUE(words().empty());
  admit(4);  // worker 9 has been chosen, but is busy with the bystander
  EXPECT_TRUE(words().empty());
  answer(bystander, {9, 0});
  EXPECT_EQ(words(), (Words{"forward 3", "send 1@9.0#2 alone"}));
}

// ---- batches ----

class LedgerBatchDeathTest : public LedgerTest {
 protected:
  LedgerBatchDeathTest() : LedgerTest({.queue_limit = 64, .max_batch = 4}) {}
  /// Four requests that run together on worker 7.
  std::vector<RequestId> batch() {
    std::vector<RequestId> requests;
    for (std::uint64_t seq = 1; seq <= 4; ++seq) requests.push_back(join(seq));
    ready(7);
    EXPECT_EQ(words(), (Words{"send 1@7.0#1 1/4", "send 2@7.0#1 2/4", "send 3@7.0#1 3/4", "send 4@7.0#1 4/4"}));
    return requests;
  }
  static LaneEvidence batch_crashed(RequestId first, std::uint64_t count) {
    LaneEvidence evidence = crashed(first);
    evidence.running_count = count;
    return evidence;
  }
};

TEST_F(LedgerBatchDeathTest, OneGuiltyOfABatchCostsTwoDeathsAndTheOthersAreAnswered) {
  const auto requests = batch();
  die(7, {batch_crashed(requests[0], 4)});
  EXPECT_TRUE(words().empty());
  ready(8);
  EXPECT_EQ(words(), Words{"send 1@8.0#2 alone"});
  answer(requests[0], {8, 0}, 2);
  EXPECT_EQ(words(), (Words{"forward 1", "send 2@8.0#2 alone"}));
  LaneEvidence alone = crashed(requests[1], 2);
  alone.running_hash = 0xabcd;
  const auto outcomes = die(8, {alone});
  ASSERT_EQ(outcomes.size(), 1u);
  EXPECT_EQ(outcomes[0].fate, DeathOutcome::Fate::kAnsweredPoison);
  EXPECT_EQ(words(), (Words{"quarantine", "reply 2 POISON"}));
  EXPECT_EQ(ledger_.quarantined(model_), std::vector<std::uint64_t>{0xabcd});
  ready(9);
  EXPECT_EQ(words(), (Words{"quarantine 9", "send 3@9.0#2 alone"}));
  answer(requests[2], {9, 0}, 2);
  answer(requests[3], {9, 0}, 2);
  EXPECT_EQ(words(), (Words{"forward 3", "send 4@9.0#2 alone", "forward 4"}));
  EXPECT_TRUE(ledger_.idle());
}

TEST_F(LedgerBatchDeathTest, AKilledBatchRunsAgainTogetherAndWithoutBlame) {
  const auto requests = batch();
  LaneEvidence line = running(requests[0]);
  line.running_count = 4;
  die(7, {line});
  ready(8);
  EXPECT_EQ(words(), (Words{"send 1@8.0#2 1/4", "send 2@8.0#2 2/4", "send 3@8.0#2 3/4", "send 4@8.0#2 4/4"}));
  EXPECT_EQ(counts().deaths_rerun, 1u);
}

TEST_F(LedgerBatchDeathTest, OnlyThoseThatRanAreSuspects) {
  const auto requests = batch();
  for (std::uint64_t seq = 5; seq <= 8; ++seq) join(seq);  // the second credit
  words();
  die(7, {batch_crashed(requests[1], 2)});  // the lane ran the second and the third of its batch
  ready(8);
  ready(9);
  const auto sent = words();
  EXPECT_EQ(sent.front(), "send 2@8.0#2 alone");
  EXPECT_EQ(std::ranges::count_if(sent, [](const std::string& word) { return word.ends_with("alone"); }), 1);
  EXPECT_EQ(ledger_.model(model_).suspected, 1u);
}

TEST_F(LedgerBatchDeathTest, AFaultAtTheMemoryLimitMakesNobodyPoison) {
  ready(7);
  const RequestId request = join(1);
  LaneEvidence evidence = crashed(request);
  evidence.out_of_memory = true;
  evidence.what = "no 12 MiB of memory_mb = 64";
  evidence.running_hash = 5;
  die(7, {evidence});
  ready(8);
  evidence.running_attempt = 2;
  words();
  die(8, {evidence});
  const auto actions = taken();
  ASSERT_EQ(actions.size(), 1u);
  EXPECT_EQ(actions[0].status, StatusCode::kAborted);
  EXPECT_NE(actions[0].message.find("memory_mb = 64"), std::string::npos);
  EXPECT_TRUE(ledger_.quarantined(model_).empty());
}

TEST_F(LedgerDeathTest, QuarantineEndsAfterItsTimeAndHoldsSoManyHashes) {
  Incarnation worker = 7;
  ready(worker);
  for (std::uint64_t n = 1; n <= Ledger::kMaxQuarantined + 3; ++n) {
    const RequestId request = admit(n);
    die(worker, {crashed(request)});
    ready(++worker);
    LaneEvidence alone = crashed(request, 2);
    alone.running_hash = n;
    die(worker, {alone});
    ready(++worker);
  }
  words();
  const auto hashes = ledger_.quarantined(model_);
  ASSERT_EQ(hashes.size(), Ledger::kMaxQuarantined);
  EXPECT_EQ(hashes.front(), 4u);
  ASSERT_TRUE(ledger_.next_tick_ns(now_).has_value());
  EXPECT_LE(*ledger_.next_tick_ns(now_), now_ + ModelLimits{}.quarantine_ns);
  now_ += ModelLimits{}.quarantine_ns;
  ledger_.tick(now_);
  EXPECT_EQ(words(), Words{"quarantine"});
  EXPECT_TRUE(ledger_.quarantined(model_).empty());
}

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
  EXPECT_EQ(ledger_.retry_after_ms(model_, 1, now_), 1000u);
  EXPECT_EQ(ledger_.next_tick_ns(now_), now_ + Breaker::kFirstBackoffNs);
  EXPECT_TRUE(words().empty());  // the admitted request waits
  now_ += Breaker::kFirstBackoffNs;
  ledger_.tick(now_);
  EXPECT_EQ(words(), Words{"probe " + std::to_string(worker)});
  die(worker, {crash});  // the back-off doubles
  ready(++worker);
  EXPECT_EQ(ledger_.retry_after_ms(model_, 1, now_), 2000u);
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
  EXPECT_EQ(ledger_.retry_after_ms(model_, 1, now_), 2000u);
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

TEST_F(LedgerDeathTest, TheWardServesEverybodyAgainWhenNoSuspectIsLeft) {
  ready(7, 2);
  const RequestId first = admit(1);
  const RequestId second = admit(2);
  LaneEvidence line = running(first);
  line.crashed = true;
  die(7, {line, running(second)});
  ready(8);
  answer(first, {8, 0}, 2);
  answer(second, {8, 0}, 2);
  words();
  admit(3);
  EXPECT_EQ(words(), Words{"send 3@8.0#1"});
}

TEST_F(LedgerDeathTest, AFailedModelDoesNotRunAgainWhatADeadWorkerHeld) {
  ready(7);
  const RequestId request = admit(1);
  words();
  ledger_.fail_model(model_, "broken");
  EXPECT_TRUE(words().empty());
  die(7, {running(request)});
  EXPECT_EQ(words(), Words{"reply 1 UNAVAILABLE"});
}

// In any order of events every request gets one terminal reply, and nothing is left in the ledger.
TEST_F(LedgerDeathTest, EveryRequestIsAnsweredExactlyOnceInRandomHistories) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](std::size_t limit) { return static_cast<std::size_t>(random() % limit); };
    Ledger ledger;
    const ModelIndex model = ledger.add_model("m", {.queue_limit = 32});
    std::vector<Incarnation> workers;
    Incarnation next_worker = 1;
    std::uint64_t now = 1'000'000'000, next_seq = 1;
    std::set<std::uint64_t> waiting;
    std::vector<Action> leased;  // the kSend actions of requests that may be running
    const auto settle = [&] {
      const std::vector<Action> actions = std::exchange(ledger.actions(), {});
      for (const Action& action : actions) {
        if (action.kind == Action::Kind::kSend) leased.push_back(action);
        if (action.kind != Action::Kind::kForward && action.kind != Action::Kind::kReply) continue;
        ASSERT_EQ(waiting.erase(action.seq), 1u) << "answered twice: " << action.seq << " seed " << seed;
      }
    };
    const auto kill = [&](std::size_t which) {
      const Incarnation dead = workers[which];
      std::vector<LaneEvidence> evidence(2);
      for (const Action& lease : leased) {
        if (lease.lane.incarnation != dead || !ledger.is_leased(lease.request, lease.lane) || below(2)) continue;
        LaneEvidence& line = evidence[lease.lane.lane];
        line = {.running_request = lease.request,
                .running_attempt = lease.attempt,
                .crashed = below(3) == 0,
                .on_lane = below(2) == 0,
                .crash_request = lease.request};
      }
      workers.erase(workers.begin() + static_cast<std::ptrdiff_t>(which));
      std::erase_if(leased, [&](const Action& lease) { return lease.lane.incarnation == dead; });
      ledger.worker_died(dead, evidence, now);
    };
    const auto reply = [&] {
      const std::size_t which = below(leased.size());
      const Action lease = leased[which];
      leased.erase(leased.begin() + static_cast<std::ptrdiff_t>(which));
      ledger.lane_replied(
          {.lane = lease.lane, .request = lease.request, .attempt = lease.attempt, .compute_ns = below(1'000'000)}, now);
    };
    for (int step = 0; step < 400; ++step) {
      now += below(3'000'000);
      const std::size_t what = below(10);
      if (what < 4) {
        const std::uint64_t seq = next_seq++;
        if (ledger
                .admit({.client = 1,
                        .seq = seq,
                        .model = model,
                        .priority = static_cast<std::int8_t>(below(3)),
                        .timeout_ns = below(2) ? 20'000'000 : 0u},
                       now)
                .ok())
          waiting.insert(seq);
        ledger.dispatch(model, now);
      } else if (what < 7 && !leased.empty()) {
        reply();
      } else if (what == 7 && workers.size() < 4) {
        workers.push_back(next_worker);
        ledger.worker_ready(model, next_worker++, 2, now);
      } else if (what == 8 && !workers.empty() && below(3) == 0) {
        kill(below(workers.size()));
      } else {
        ledger.tick(now);
        if (!waiting.empty() && below(8) == 0) ledger.cancel(1, *waiting.begin(), now);
      }
      settle();
    }
    while (!workers.empty()) kill(0);
    settle();
    workers.push_back(next_worker);
    ledger.worker_ready(model, next_worker, 2, now);
    settle();
    while (!leased.empty()) {
      reply();
      settle();
    }
    EXPECT_TRUE(waiting.empty()) << "seed " << seed;
    EXPECT_TRUE(ledger.idle()) << "seed " << seed;
  }
}

}  // namespace
}  // namespace shoal::supervisor
