// A ledger with one model, and its decisions as words.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "shm/base/format.hpp"
#include "supervisor/route/ledger.hpp"

namespace shoal::supervisor {

class LedgerTest : public testing::Test {
 protected:
  static constexpr std::uint64_t kMs = 1'000'000;

  explicit LedgerTest(ModelLimits limits = {.queue_limit = 4}) { model_ = ledger_.add_model("m", limits); }

  Result<RequestId> try_admit(std::uint64_t seq, std::int8_t priority = 0, std::uint64_t timeout_ns = 0, ClientId client = 1) {
    auto admitted =
        ledger_.admit({.client = client, .seq = seq, .model = model_, .priority = priority, .timeout_ns = timeout_ns}, now_);
    if (admitted.ok()) ledger_.dispatch(model_, now_);
    return admitted;
  }
  RequestId admit(std::uint64_t seq, std::int8_t priority = 0, std::uint64_t timeout_ns = 0, ClientId client = 1) {
    return try_admit(seq, priority, timeout_ns, client).value();
  }
  /// Admits a request that may run together with others.
  RequestId join(std::uint64_t seq, Admission admission = {}) {
    admission.client = admission.client ? admission.client : 1;
    admission.seq = seq;
    admission.model = model_;
    admission.shape = admission.shape ? admission.shape : 77;
    admission.joinable = true;
    const RequestId request = ledger_.admit(admission, now_).value();
    ledger_.dispatch(model_, now_);
    return request;
  }
  void ready(Incarnation incarnation, std::uint32_t lanes = 1) { ledger_.worker_ready(model_, incarnation, lanes, now_); }
  bool answer(RequestId request, LaneRef lane, std::uint16_t attempt = 1, StatusCode status = StatusCode::kOk) {
    return ledger_.lane_replied({.lane = lane, .request = request, .attempt = attempt, .status = status, .compute_ns = kMs},
                                now_);
  }
  /// Answers what is sent, and what is sent then, one run of a millisecond after the other. Drops all decisions.
  void serve_all() {
    for (std::size_t at = 0; at < ledger_.actions().size(); ++at) {
      const Action action = ledger_.actions()[at];
      if (action.kind == Action::Kind::kSend)
        ledger_.lane_replied({.lane = action.lane, .request = action.request, .attempt = 1, .compute_ns = kMs}, now_ += kMs);
    }
    ledger_.actions().clear();
    ledger_.tick(now_);
  }
  std::vector<DeathOutcome> die(Incarnation incarnation, std::vector<LaneEvidence> evidence = std::vector<LaneEvidence>(1)) {
    return ledger_.worker_died(incarnation, evidence, now_);
  }
  static LaneEvidence running(RequestId request, std::uint64_t attempt = 1) {
    return {.running_request = request, .running_attempt = attempt};
  }
  static LaneEvidence crashed(RequestId request, std::uint64_t attempt = 1) {
    return {.running_request = request,
            .running_attempt = attempt,
            .crashed = true,
            .on_lane = true,
            .crash_request = request,
            .what = "signal 11"};
  }

  /// Returns the decisions since the last call, without kForget and kCancelRun.
  std::vector<Action> taken() {
    std::vector<Action> actions = std::move(ledger_.actions());
    ledger_.actions().clear();
    for (const Action& action : actions) forgotten_ += action.kind == Action::Kind::kForget;
    std::erase_if(actions, [](const Action& action) {
      return action.kind == Action::Kind::kForget || action.kind == Action::Kind::kCancelRun;
    });
    return actions;
  }
  /// The same as texts: "send 2@7.0#1" (seq, worker, lane, attempt; then " 1/3" in a batch of three, " alone" for a suspect),
  /// "forward 2", "reply 2 POISON", "release 2", "quarantine", "probe 7".
  std::vector<std::string> words() {
    std::vector<std::string> texts;
    for (const Action& action : taken()) texts.push_back(word(action));
    return texts;
  }
  static std::string word(const Action& action) {
    const std::string seq = std::to_string(action.seq);
    switch (action.kind) {
      case Action::Kind::kSend:
        return format("send {}@{}.{}#{}{}{}", seq, action.lane.incarnation, action.lane.lane, action.attempt,
                      action.batch_size > 1 ? format(" {}/{}", action.batch_index + 1, action.batch_size) : "",
                      action.alone ? " alone" : "");
      case Action::Kind::kForward:
        return "forward " + seq;
      case Action::Kind::kReply:
        return "reply " + seq + " " + std::string(status_code_name(action.status)) + (action.released ? "" : " held");
      case Action::Kind::kRelease:
        return "release " + seq;
      case Action::Kind::kQuarantine:
        return action.lane.incarnation ? format("quarantine {}", action.lane.incarnation) : "quarantine";
      case Action::Kind::kProbe:
        return "probe " + std::to_string(action.lane.incarnation);
      default:
        return "?";
    }
  }
  const ModelCounts& counts() { return ledger_.model(model_).counts; }

  Ledger ledger_;
  ModelIndex model_ = 0;
  std::uint64_t now_ = 1'000 * kMs;
  int forgotten_ = 0;
};

using Words = std::vector<std::string>;

}  // namespace shoal::supervisor
