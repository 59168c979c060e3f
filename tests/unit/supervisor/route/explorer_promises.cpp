// The promises that the explorer checks, when the ledger's decisions are obeyed and after each event.
#include "tests/unit/supervisor/route/explorer_world.hpp"

#include <algorithm>

namespace shoal::supervisor {

void World::broken(const std::string& promise) {
  if (violation_.empty()) violation_ = promise;
}

void World::settle(const Event& event, Coverage* coverage) {
  std::vector<Action>& actions = ledger_.actions();
  for (std::size_t at = 0; at < actions.size(); ++at) {
    Action& action = actions[at];
    if (coverage) {
      coverage->decisions.set(static_cast<std::size_t>(event.kind) * 16 + static_cast<std::size_t>(action.kind));
      if (action.kind == Action::Kind::kReply)
        coverage->answers.set(static_cast<std::size_t>(event.kind) * 16 + static_cast<std::size_t>(action.status));
    }
    if (sabotage_ == Sabotage::kForgetsReleases && action.kind == Action::Kind::kRelease) continue;
    if (sabotage_ == Sabotage::kReleasesEarly && action.kind == Action::Kind::kReply) action.released = true;
    if (sabotage_ == Sabotage::kAnswersTwice && action.kind == Action::Kind::kForward) obey(action, nullptr);
    obey(action, at > 0 ? &actions[at - 1] : nullptr);
  }
  actions.clear();
}

void World::obey(const Action& action, const Action* before) {
  using Kind = Action::Kind;
  if (action.kind == Kind::kQuarantine) return;
  if (action.kind == Kind::kProbe) {
    const auto worker = std::ranges::find(workers_, action.lane.incarnation, &Worker::incarnation);
    if (worker == workers_.end() || !worker->alive || !worker->routable)
      broken("a worker is probed that does not exist or is not routable");
    return;
  }
  const std::size_t number = number_of(action.request);
  if (number == kMaxRequests) return broken("a decision about a request that nobody sent");
  TrackedRequest& request = requests_[number];
  const Plan::Submission& plan = plan_->requests[number];
  if (request.forgotten) return broken("a decision about a request that is over");
  if (action.client != plan.client || action.flow != plan.flow || action.seq != number + 1)
    return broken("a decision names another client, flow or number");
  const bool gone = gone_[plan.client];
  const bool is_answer = action.kind == Kind::kForward || action.kind == Kind::kReply;
  if (is_answer && request.answered) return broken("a request is answered twice");
  if ((is_answer || action.kind == Kind::kRelease) && gone) return broken("something is sent to a dead client");
  switch (action.kind) {
    case Kind::kSend:
      return obey_send(action, before);
    case Kind::kForward:
      if (answering_ != number) return broken("an answer is forwarded that no lane gave");
      request.answered = request.released = true;
      return;
    case Kind::kReply: {
      const StatusCode status = action.status;
      if (action.released == leased(number))
        return broken(action.released ? "slots are released while a lane uses them" : "slots are held that nobody uses");
      if (status == StatusCode::kPoison && (!request.crashed_alone || request.crashes < 2 || request.out_of_memory))
        return broken("POISON without two crashes, the last of them alone on a worker");
      if (status == StatusCode::kAborted && !(request.crashed_alone && request.out_of_memory))
        return broken("ABORTED without a reason");
      if (status == StatusCode::kUnavailable && !failed_ && !given_up_) return broken("UNAVAILABLE without a reason");
      if (status == StatusCode::kDeadlineExceeded && plan.timeout_ns == 0) return broken("DEADLINE_EXCEEDED without a deadline");
      request.answered = true;
      request.released = action.released;
      return;
    }
    case Kind::kRelease:
      if (!request.answered || request.released) return broken("slots are released twice, or before the answer");
      if (leased(number)) return broken("slots are released while a lane uses them");
      request.released = true;
      return;
    case Kind::kCancelRun:
      if (!leased(number)) broken("a run is cancelled that does not exist");
      return;
    case Kind::kForget:
      if (leased(number)) return broken("a request is forgotten while a lane has it");
      if (!gone && !(request.answered && request.released))
        return broken("a request is forgotten before it is answered and released");
      request.forgotten = true;
      return;
    default:
      return;
  }
}

void World::obey_send(const Action& action, const Action* before) {
  const std::size_t number = number_of(action.request);
  TrackedRequest& request = requests_[number];
  if (request.answered || gone_[plan_->requests[number].client]) return broken("a request is sent although nobody waits for it");
  if (leased(number)) return broken("a request is sent although a lane has it already");
  const auto worker = std::ranges::find(workers_, action.lane.incarnation, &Worker::incarnation);
  if (worker == workers_.end() || !worker->alive || !worker->routable ||
      action.lane.lane >= static_cast<std::uint32_t>(plan_->lanes))
    return broken("a request is sent to a lane that does not exist or is not routable");
  if (!ledger_.is_leased(action.request, action.lane)) return broken("a request is sent without a lease");
  if (action.batch_index > 0 && (!before || before->kind != Action::Kind::kSend || before->lane != action.lane ||
                                 before->batch_index + 1 != action.batch_index || before->batch_size != action.batch_size))
    return broken("the requests of a batch are not sent one after the other");
  const auto place = static_cast<std::uint8_t>(worker - workers_.begin());
  for (std::size_t i = 0; i < kMaxRequests; ++i) {
    if (!leased(i) || requests_[i].worker != place) continue;
    if (action.alone || requests_[i].lone) return broken("a suspect is not alone on its worker");
  }
  if (action.alone && action.batch_size != 1) return broken("a suspect is in a batch");
  if (action.batch_index == 0) ++groups_;
  std::uint32_t rows = plan_->requests[number].rows;
  std::uint8_t leader = static_cast<std::uint8_t>(number);
  for (std::size_t i = 0; i < kMaxRequests; ++i) {
    if (!leased(i) || requests_[i].group != groups_) continue;
    rows += plan_->requests[i].rows;
    if (requests_[i].index == 0) leader = static_cast<std::uint8_t>(i);
    if (!plan_->requests[i].joinable || !plan_->requests[number].joinable)
      return broken("requests run together although one of them is not joinable");
  }
  if (action.batch_size > 1 && rows > plan_->limits.max_batch) return broken("a batch has more rows than max_batch");
  request.phase = Phase::kSent;
  request.lone = action.alone;
  request.worker = place;
  request.lane = static_cast<std::uint8_t>(action.lane.lane);
  request.leader = leader;
  request.index = static_cast<std::uint8_t>(action.batch_index);
  request.group = groups_;
  request.attempt = action.attempt;
  request.has_old_lease = request.has_old_lease && request.old_lane.incarnation != action.lane.incarnation;
}

void World::check() {
  if (!violation_.empty()) return;
  if (const std::string why = LedgerState::inconsistency(ledger_); !why.empty()) return broken(why);
  bool all_over = true;
  std::array<std::uint32_t, kMaxLives> held{};
  for (std::size_t i = 0; i < kMaxRequests; ++i) {
    TrackedRequest& request = requests_[i];
    if (!request.admitted) continue;
    all_over &= request.forgotten;
    const Place place = LedgerState::place_of(ledger_, request.id);
    if ((place == Place::kNowhere) != request.forgotten) return broken("a request is lost, or was never forgotten");
    if (leased(i)) {
      ++held[request.worker];
      if (!ledger_.is_leased(request.id, {workers_[request.worker].incarnation, request.lane}))
        return broken("a lane has a request that is not leased to it");
    } else if (place == Place::kLeased || place == Place::kParked || place == Place::kAlone || place == Place::kEnding) {
      return broken("a request is leased to a lane that does not have it");
    }
    // Let the dead lane answer.
    if (!request.has_old_lease) continue;
    if (ledger_.lane_replied({.lane = request.old_lane, .request = request.id, .attempt = request.old_attempt}, now_ns_) ||
        !ledger_.actions().empty())
      return broken("a dead lane's answer is accepted");
  }
  if (ledger_.idle() != all_over)
    return broken("the ledger is idle although requests are under way, or not idle although none are");
  for (std::size_t at = 0; at < lives_; ++at) {
    if (workers_[at].alive && ledger_.held_by(workers_[at].incarnation) != held[at])
      return broken("a worker does not hold the number of requests that it was sent");
  }
}

}  // namespace shoal::supervisor
