// What becomes of the requests of a worker that dies.
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "tests/unit/supervisor/route/ledger_death_fixture.hpp"

namespace shoal::supervisor {
namespace {

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
