// Which requests are blamed for a crash: suspects run alone, and who crashes again is poison and quarantined.
#include <algorithm>
#include <vector>

#include "shm/wire/status_page.hpp"
#include "tests/unit/supervisor/route/ledger_death_fixture.hpp"

namespace shoal::supervisor {
namespace {

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

// Somebody whose requests crash workers could otherwise have a long request of another given up, or keep it from ever ending.
TEST_F(LedgerDeathTest, ARequestBesideWhichOthersCrashRunsAloneInTheEndAndIsAnswered) {
  using Fate = DeathOutcome::Fate;
  Incarnation worker = 1;
  std::uint16_t attempt = 1;
  const RequestId innocent = admit(1);
  for (int deaths = 1; deaths <= Ledger::kMaxDeathsBesideOthers; ++deaths, ++attempt) {
    ready(worker, 2);
    const RequestId guilty = admit(2);
    EXPECT_EQ(words(), (Words{format("send 1@{}.0#{}", worker, attempt), format("send 2@{}.1#1", worker)}));
    const auto outcomes = die(worker++, {running(innocent, attempt), crashed(guilty)});
    ASSERT_EQ(outcomes.size(), 2u);
    EXPECT_EQ(outcomes[0].fate, deaths < Ledger::kMaxDeathsBesideOthers ? Fate::kRunsAgain : Fate::kRunsAlone);
    EXPECT_EQ(outcomes[0].blamed, 0u);
    if (deaths == Ledger::kMaxDeathsBesideOthers) break;
    ready(worker, 2);
    EXPECT_EQ(words(), Words{format("send 2@{}.0#2 alone", worker)});
    die(worker++, {crashed(guilty, 2), LaneEvidence{}});
    EXPECT_EQ(words(), Words{"reply 2 POISON"});
  }
  ready(worker, 2);
  ++attempt;
  const auto sent = taken();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_TRUE(sent[0].request == innocent && sent[0].alone);
  EXPECT_FALSE(sent[0].hash_inputs) << "nothing accuses it, and a copy of its inputs takes memory";
  EXPECT_TRUE(answer(innocent, {worker, 0}, attempt));
  EXPECT_EQ(words(), (Words{"forward 1", format("send 2@{}.0#2 alone", worker)}));
}

TEST_F(LedgerDeathTest, ADeathBesideTheCrashOfAnotherIsNotUnexplained) {
  using Fate = DeathOutcome::Fate;
  Incarnation worker = 1;
  std::uint16_t attempt = 1;
  ready(worker, 2);
  const RequestId request = admit(1), guilty = admit(2);
  die(worker, {running(request, attempt), crashed(guilty)});
  ledger_.cancel(1, 2, now_);
  for (int deaths = 1; deaths <= Ledger::kMaxUnexplainedDeaths; ++deaths) {
    ready(++worker, 2);
    const auto outcomes = die(worker, {running(request, ++attempt), LaneEvidence{}});
    ASSERT_EQ(outcomes.size(), 1u) << deaths;
    EXPECT_EQ(outcomes[0].fate, deaths < Ledger::kMaxUnexplainedDeaths ? Fate::kRunsAgain : Fate::kAnsweredAborted) << deaths;
  }
}

// A thread of the daemon may have stood still with the message. But a message that stops each lane must not stop all of them.
TEST_F(LedgerDeathTest, AWatchdogThatSawNothingBegunBlamesNobody) {
  const LaneEvidence receiving{.crashed = true, .on_lane = true, .by_watchdog = true, .what = "no step"};
  ready(6);
  admit(1);
  words();
  Incarnation worker = 6;
  for (int deaths = 1; deaths < Ledger::kMaxUnexplainedDeaths; ++deaths) {
    die(worker, {receiving});
    EXPECT_TRUE(ledger_.model(model_).breaker.closed()) << deaths;
    ready(++worker);
    EXPECT_EQ(words(), (Words{format("send 1@{}.0#{}", worker, deaths + 1)})) << "not alone";
  }
  die(worker, {receiving});
  EXPECT_EQ(words(), Words{"reply 1 ABORTED"});
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
  const LaneEvidence receiving{.crashed = true, .on_lane = true, .what = "out of memory"};
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

TEST_F(LedgerDeathTest, AWardThatWasKilledAndDoesNotDieKeepsNoOtherSuspectWaiting) {
  ready(7, 2);
  const RequestId first = admit(1), second = admit(2);
  LaneEvidence line = running(first);
  line.crashed = true;
  words();
  die(7, {line, running(second)});
  ready(8, 2);
  EXPECT_EQ(words(), Words{"send 1@8.0#2 alone"});
  ready(9, 2);
  EXPECT_TRUE(words().empty());
  ledger_.condemn(8);  // the first one hangs
  ledger_.end_turn(now_);
  EXPECT_EQ(words(), Words{"send 2@9.0#2 alone"});
  answer(second, {9, 0}, 2);
  die(8, {running(first, 2)});
  EXPECT_EQ(words(), (Words{"forward 2", "send 1@9.0#3 alone"}));
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
  admit(100);
  const std::vector<Action> sent = taken();
  ASSERT_FALSE(sent.empty());
  EXPECT_NE(sent.back().quarantine, 0) << "its lane waits for the newest list";
  EXPECT_TRUE(answer(sent.back().request, {worker, 0}));
  taken();
  ASSERT_TRUE(ledger_.next_tick_ns(now_).has_value());
  EXPECT_LE(*ledger_.next_tick_ns(now_), now_ + ModelLimits{}.quarantine_ns);
  now_ += ModelLimits{}.quarantine_ns;
  ledger_.tick(now_);
  EXPECT_EQ(words(), Words{"quarantine"});
  EXPECT_TRUE(ledger_.quarantined(model_).empty());
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
  words();
  LaneEvidence evidence = crashed(request);
  evidence.out_of_memory = true;
  evidence.what = "no 12 MiB of memory_mb = 64";
  evidence.running_hash = 5;
  die(7, {evidence});
  ready(8);
  const auto sent = taken();
  const auto again = std::ranges::find(sent, Action::Kind::kSend, &Action::kind);
  ASSERT_NE(again, sent.end());
  EXPECT_TRUE(again->alone && !again->hash_inputs) << "a copy of its inputs would take more memory";
  evidence.running_attempt = 2;
  die(8, {evidence});
  const auto actions = taken();
  ASSERT_EQ(actions.size(), 1u);
  EXPECT_EQ(actions[0].status, StatusCode::kAborted);
  EXPECT_NE(actions[0].message.find("memory_mb = 64"), std::string::npos);
  EXPECT_TRUE(ledger_.quarantined(model_).empty());
}

}  // namespace
}  // namespace shoal::supervisor
