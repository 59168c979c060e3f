// The flows of a gateway are treated like clients: turns, limits, debts, suspects and statistics go by flow.
#include <algorithm>
#include <deque>
#include <map>
#include <vector>

#include "tests/support/allocations.hpp"
#include "tests/unit/supervisor/route/ledger_fixture.hpp"
#include "tests/unit/supervisor/route/ledger_state.hpp"

namespace shoal::supervisor {
namespace {

constexpr ClientId kFlowsGateway = 1, kFlowsOther = 2;
constexpr std::uint64_t kFlowsGreedy = 81, kModest = 82;                // flows
enum : std::uint64_t { kFlowsShort = 11, kFlowsLong = 12, kNew = 13 };  // shapes

class LedgerFlowsTest : public LedgerTest {
 protected:
  explicit LedgerFlowsTest(ModelLimits limits = {.queue_limit = 2048}) : LedgerTest(limits) {}

  Result<RequestId> ask(ClientId client, std::uint64_t flow, Admission admission = {}) {
    admission.client = client;
    admission.flow = flow;
    admission.seq = ++seq_;
    admission.model = model_;
    admission.shape = admission.shape ? admission.shape : std::uint64_t{kFlowsShort};
    const auto admitted = ledger_.admit(admission, now_);
    if (admitted.ok()) ledger_.dispatch(model_, now_);
    return admitted;
  }
  void reply(RequestId request, LaneRef lane, std::uint64_t compute_ns, std::uint16_t attempt = 1,
             StatusCode status = StatusCode::kOk) {
    EXPECT_TRUE(ledger_.lane_replied(
        {.lane = lane, .request = request, .attempt = attempt, .status = status, .compute_ns = compute_ns, .batch = 1}, now_));
  }
  void teach(std::uint64_t shape, std::uint64_t ns) {
    for (int i = 0; i < 10; ++i) {
      const RequestId request = ask(99, 0, {.shape = shape}).value();
      now_ += ns;
      reply(request, {7, 0}, ns);
    }
    words();
  }
  /// The lane of worker 7 runs what it was sent, each request for cost_ns(action), until `until_ns` or until nothing is left.
  /// Returns the time that it spent on each client and flow.
  template <class Cost>
  std::map<std::pair<ClientId, std::uint64_t>, std::uint64_t> serve(std::uint64_t until_ns, const Cost& cost_ns) {
    std::map<std::pair<ClientId, std::uint64_t>, std::uint64_t> served_ns;
    std::deque<Action> sent;
    while (now_ < until_ns) {
      for (const Action& action : taken()) {
        if (action.kind == Action::Kind::kSend) sent.push_back(action);
      }
      if (sent.empty()) break;
      const Action run = sent.front();
      sent.pop_front();
      const std::uint64_t took_ns = cost_ns(run);
      now_ += took_ns;
      served_ns[{run.client, run.flow}] += took_ns;
      reply(run.request, run.lane, took_ns);
    }
    return served_ns;
  }
  const FlowStatistics::Row* row_of(ClientId client, std::uint64_t flow) {
    const auto rows = ledger_.model(model_).flows.rows();
    const auto row = std::ranges::find_if(rows, [&](const auto& each) { return each.client == client && each.flow == flow; });
    return row == rows.end() ? nullptr : &*row;
  }
  std::size_t places() const { return LedgerState::askers(ledger_).places(); }

  std::uint64_t seq_ = 0;
};

TEST_F(LedgerFlowsTest, TwoFlowsOfAGatewayHaveTheTurnsOfTwoClients) {
  ready(7);
  teach(kFlowsShort, kMs);
  for (int i = 0; i < 600; ++i) {  // one flow sends much more, and each comes first once
    ask(kFlowsGateway, kFlowsGreedy).value();
    ask(kFlowsGateway, kFlowsGreedy).value();
    if (i < 200) ask(kFlowsGateway, kModest).value();
    if (i < 200) ask(kFlowsOther, 0).value();
  }
  auto served_ns = serve(now_ + 300 * kMs, [](const Action&) { return kMs; });
  EXPECT_NEAR(static_cast<double>(served_ns[{kFlowsGateway, kFlowsGreedy}]), 100.0 * kMs, 5.0 * kMs);
  EXPECT_NEAR(static_cast<double>(served_ns[{kFlowsGateway, kModest}]), 100.0 * kMs, 5.0 * kMs);
  EXPECT_NEAR(static_cast<double>(served_ns[{kFlowsOther, 0}]), 100.0 * kMs, 5.0 * kMs);
}

TEST_F(LedgerFlowsTest, TheGatewayItselfIsOneMoreThatTakesTurns) {
  for (int i = 0; i < 3; ++i) {
    ask(kFlowsGateway, kFlowsGreedy).value();
    ask(kFlowsGateway, kFlowsGreedy).value();
    ask(kFlowsGateway, 0).value();
  }
  ready(7);
  std::vector<std::uint64_t> flows;
  while (flows.size() < 6) {
    for (const Action& action : taken()) {
      if (action.kind != Action::Kind::kSend) continue;
      flows.push_back(action.flow);
      now_ += kMs;
      reply(action.request, action.lane, kMs);
    }
  }
  flows.resize(6);
  EXPECT_EQ(std::ranges::count(flows, 0u), 3);
}

TEST_F(LedgerFlowsTest, RefusedRequestsOfOneFlowMakeNoneOfAnotherCheaper) {
  ready(7);
  teach(kFlowsLong, 400 * kMs);
  teach(kFlowsShort, 10 * kMs);
  for (int i = 0; i < 300; ++i)
    ASSERT_EQ(ask(kFlowsGateway, kModest, {.timeout_ns = 1, .shape = kFlowsLong}).status().code(), StatusCode::kDeadlineExceeded);
  for (int i = 0; i < 1000; ++i) {
    if (i < 100) ask(kFlowsGateway, kFlowsGreedy, {.shape = kFlowsLong}).value();
    ask(kFlowsOther, 0).value();
  }
  auto served_ns = serve(now_ + 16'000 * kMs, [](const Action& run) { return run.flow == kFlowsGreedy ? 400 * kMs : 10 * kMs; });
  EXPECT_NEAR(static_cast<double>(served_ns[{kFlowsGateway, kFlowsGreedy}]), static_cast<double>(served_ns[{kFlowsOther, 0}]),
              1'000.0 * kMs);
}

// The request of kFlowsGreedy takes a hundred times as long as the price of its turn.
TEST_F(LedgerFlowsTest, AFlowOwesUntilItsPlaceGoesToAnother) {
  ready(7);
  teach(kFlowsShort, kMs);
  for (int i = 0; i < 500; ++i) ask(kFlowsOther, 0).value();
  const RequestId slow = ask(kFlowsGateway, kFlowsGreedy, {.shape = kNew}).value();
  serve(now_ + 200 * kMs, [&](const Action& run) { return run.request == slow ? 100 * kMs : kMs; });
  const Askers& askers = LedgerState::askers(ledger_);
  const std::uint32_t place = askers.find(kFlowsGateway, kFlowsGreedy);
  EXPECT_EQ(askers.requests(place), 0u);
  EXPECT_GT(LedgerState::owed_ns(ledger_, kFlowsGateway, kFlowsGreedy), static_cast<std::int64_t>(50 * kMs));
  const std::uint64_t last = 1'000 + Askers::kMostIdle - 1;
  for (std::uint64_t flow = 1'000; flow <= last; ++flow) {
    ask(kFlowsGateway, flow).value();
    ledger_.cancel(kFlowsGateway, seq_, now_);
  }
  ASSERT_EQ(askers.find(kFlowsGateway, kFlowsGreedy), kNoSlot) << "it was idle for longest";
  ASSERT_EQ(askers.find(kFlowsGateway, last), place);
  EXPECT_EQ(LedgerState::owed_ns(ledger_, kFlowsGateway, last), 0) << "nobody pays what another one owes";
}

TEST_F(LedgerFlowsTest, EachFlowHasTheLimitsOfAClient) {
  ledger_.set_client_shares({.in_flight = 3});
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(ask(kFlowsGateway, kFlowsGreedy).ok());
  const auto refused = ask(kFlowsGateway, kFlowsGreedy);
  EXPECT_EQ(refused.status().code(), StatusCode::kOverloaded);
  EXPECT_NE(refused.status().message().find("3 requests of this client's flow 81 are under way"), std::string::npos)
      << refused.status().message();
  EXPECT_TRUE(ask(kFlowsGateway, kModest).ok());
  EXPECT_TRUE(ask(kFlowsGateway, 0).ok());
  EXPECT_TRUE(ask(kFlowsOther, kFlowsGreedy).ok()) << "a flow of the same number of another gateway";
}

TEST_F(LedgerFlowsTest, EachFlowHasItsShareOfAQueue) {
  model_ = ledger_.add_model("small", {.queue_limit = 64});
  ledger_.set_client_shares({.of_queue = 0.5});
  for (int i = 0; i < 33; ++i) EXPECT_TRUE(ask(kFlowsGateway, kFlowsGreedy).ok());
  const auto refused = ask(kFlowsGateway, kFlowsGreedy);
  EXPECT_EQ(refused.status().code(), StatusCode::kOverloaded);
  EXPECT_NE(refused.status().message().find("this client's flow 81 has 33 of the 33"), std::string::npos)
      << refused.status().message();
  EXPECT_TRUE(ask(kFlowsGateway, kModest).ok());
}

TEST_F(LedgerFlowsTest, AFlowThatWaitsForItsProgramsHoldsNoOtherFlowBack) {
  ready(7);
  std::vector<RequestId> parked;
  for (int i = 0; i < 80; ++i) ask(kFlowsGateway, kFlowsGreedy, {.shape = 1'000 + seq_}).value();
  for (std::vector<Action> sent = taken(); !sent.empty(); sent = taken()) {
    for (const Action& action : sent) {
      ledger_.lane_parked({7, 0}, action.request, 1, now_);
      parked.push_back(action.request);
    }
  }
  EXPECT_LE(parked.size(), Ledger::kMaxParked + 1) << "then it has no turns";
  EXPECT_GE(ledger_.retry_after_ms(model_, kFlowsGateway, kFlowsGreedy, now_), 100u);
  EXPECT_LT(ledger_.retry_after_ms(model_, kFlowsGateway, kModest, now_), 100u);
  ask(kFlowsGateway, kModest).value();
  EXPECT_EQ(words(), Words{format("send {}@7.0#1", seq_)});
  ledger_.client_gone(kFlowsGateway);
  words();
  for (const RequestId request : parked) reply(request, {7, 0}, 0, 1, StatusCode::kCancelled);
  ask(kFlowsOther, kFlowsGreedy).value();
  EXPECT_EQ(words(), Words{format("send {}@7.0#1", seq_)}) << "whoever has its place now has turns";
}

TEST_F(LedgerFlowsTest, SuspectsOfFlowsTakeTurns) {
  ready(7, 4);
  std::vector<RequestId> requests;
  std::vector<LaneEvidence> evidence;
  for (const std::uint64_t flow : {kFlowsGreedy, kFlowsGreedy, kFlowsGreedy, kModest})
    requests.push_back(ask(kFlowsGateway, flow).value());
  for (const RequestId request : requests) evidence.push_back(running(request));
  evidence[0].crashed = true;  // another thread of the worker
  die(7, evidence);
  words();
  ready(8);
  for (const std::size_t at : {0u, 3u, 1u, 2u}) reply(requests[at], {8, 0}, kMs, 2);
  EXPECT_EQ(words(), (Words{"send 1@8.0#2 alone", "forward 1", "send 4@8.0#2 alone", "forward 4", "send 2@8.0#2 alone",
                            "forward 2", "send 3@8.0#2 alone", "forward 3"}));
}

TEST_F(LedgerFlowsTest, WhenAGatewayIsGoneTheRequestsOfAllItsFlowsEnd) {
  ready(7);
  std::vector<RequestId> running;
  for (const std::uint64_t flow : {0ull, 5ull, 6ull, 7ull, 8ull}) ask(kFlowsGateway, flow).value();
  for (const Action& action : taken()) running.push_back(action.request);
  ASSERT_EQ(running.size(), 2u) << "the others wait";
  ask(kFlowsOther, 0).value();
  ledger_.client_gone(kFlowsGateway);
  EXPECT_EQ(forgotten_, 0);
  EXPECT_TRUE(taken().empty());
  EXPECT_EQ(forgotten_, 3) << "those that waited";
  EXPECT_EQ(counts().orphaned, 5u);
  EXPECT_EQ(LedgerState::askers(ledger_).find(kFlowsGateway, 8), kNoSlot);
  for (const RequestId request : running) reply(request, {7, 0}, 0, 1, StatusCode::kCancelled);
  EXPECT_EQ(words(), Words{format("send {}@7.0#1", seq_)}) << "of the other client";
  EXPECT_EQ(LedgerState::askers(ledger_).first_request(kFlowsGateway), kNoSlot);
  EXPECT_EQ(LedgerState::inconsistency(ledger_), "");
}

TEST_F(LedgerFlowsTest, ARequestIsCancelledInWhateverFlowItIs) {
  for (std::uint64_t flow = 0; flow < 10; ++flow) ask(kFlowsGateway, flow).value();
  ledger_.cancel(kFlowsGateway, 8, now_);
  EXPECT_EQ(words(), Words{"reply 8 CANCELLED"});
  ledger_.cancel(kFlowsOther, 7, now_);
  EXPECT_TRUE(words().empty()) << "not its request";
}

// A gateway with a hundred thousand tenants, each of whom asks once.
TEST_F(LedgerFlowsTest, HoweverManyFlowsComeNothingGrowsAndNothingIsAllocated) {
  ready(7, 2);
  std::uint64_t flow = 0;
  const auto serve_many = [&](std::uint64_t count) {
    for (std::uint64_t done = 0; done < count; done += 8) {
      for (std::uint64_t i = 0; i < 8; ++i) {  // two of eight are of a flow that asks all the time
        const std::uint64_t asks = i < 2 ? kFlowsGreedy : 1'000 + ++flow;
        (void)ledger_.admit({.client = kFlowsGateway, .flow = asks, .seq = i, .model = model_, .timeout_ns = 1000 * kMs}, now_);
      }
      ledger_.dispatch(model_, now_);
      serve_all();
    }
  };
  ledger_.set_client_shares({.in_flight = 100, .of_queue = 0.5});
  serve_many(4 * Askers::kMostIdle);
  const std::uint64_t before = test::allocations();
  const std::size_t places_before = places();
  serve_many(100'000);
  EXPECT_EQ(test::allocations(), before);
  EXPECT_EQ(places(), places_before);
  EXPECT_LE(places(), Askers::kMostIdle + 8);
  EXPECT_TRUE(ledger_.idle());
  EXPECT_LE(ledger_.model(model_).flows.rows().size(), FlowStatistics::kMostFlows + 1);
  EXPECT_EQ(LedgerState::inconsistency(ledger_), "");
}

TEST_F(LedgerFlowsTest, CountsAndLatenciesAreKnownByFlow) {
  ready(7);
  teach(kFlowsShort, 10 * kMs);
  EXPECT_TRUE(ledger_.model(model_).flows.rows().empty()) << "the client asked for itself";
  ask(kFlowsGateway, kFlowsGreedy).value();
  ask(kFlowsGateway, kFlowsGreedy).value();
  ask(kFlowsGateway, kModest).value();
  EXPECT_FALSE(ask(kFlowsGateway, kModest, {.timeout_ns = kMs}).ok());
  serve(now_ + 30 * kMs, [](const Action&) { return 10 * kMs; });
  const FlowStatistics::Row *greedy = row_of(kFlowsGateway, kFlowsGreedy), *modest = row_of(kFlowsGateway, kModest);
  ASSERT_TRUE(greedy && modest);
  EXPECT_EQ(greedy->requests, 2u);
  EXPECT_EQ(greedy->refused, 0u);
  EXPECT_EQ(modest->requests, 1u);
  EXPECT_EQ(modest->refused, 1u);
  EXPECT_EQ(greedy->compute_ns.count(), 2u);
  EXPECT_EQ(greedy->compute_ns.sum(), 20 * kMs);
  EXPECT_EQ(greedy->total_ns.sum() + modest->total_ns.sum(), (10 + 20 + 30) * kMs);
  EXPECT_EQ(greedy->queue_ns.count(), 2u);
  ledger_.client_gone(kFlowsGateway);
  ASSERT_EQ(ledger_.model(model_).flows.rows().size(), 1u);
  EXPECT_EQ(ledger_.model(model_).flows.rows()[0].requests, 3u);
}

class LedgerFlowBatchTest : public LedgerFlowsTest {
 protected:
  LedgerFlowBatchTest() : LedgerFlowsTest({.queue_limit = 64, .max_batch = 4}) {}
};

TEST_F(LedgerFlowBatchTest, TheMembersOfABatchComeFromFlowsInTurns) {
  for (int i = 0; i < 4; ++i) ask(kFlowsGateway, kFlowsGreedy, {.joinable = true}).value();
  for (int i = 0; i < 2; ++i) ask(kFlowsGateway, kModest, {.joinable = true}).value();
  ready(7);
  EXPECT_EQ(words(), (Words{"send 1@7.0#1 1/4", "send 2@7.0#1 2/4", "send 5@7.0#1 3/4", "send 3@7.0#1 4/4"}))
      << "in turns, after the one whose turn it was";
}

}  // namespace
}  // namespace shoal::supervisor
