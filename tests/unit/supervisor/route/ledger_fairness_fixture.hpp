// A ledger with two clients, of which one is greedy.
#pragma once

#include <array>
#include <deque>

#include "tests/unit/supervisor/route/ledger_fixture.hpp"

namespace shoal::supervisor {

class LedgerFairnessTest : public LedgerTest {
 protected:
  static constexpr ClientId kGreedy = 1, kOther = 2;
  enum : std::uint64_t { kShort = 11, kLong = 12 };  // shapes

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

}  // namespace shoal::supervisor
