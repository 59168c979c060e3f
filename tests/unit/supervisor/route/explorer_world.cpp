// The world of the explorer: which events may happen, and what each one does.
#include "tests/unit/supervisor/route/explorer_world.hpp"

#include <algorithm>

namespace shoal::supervisor {

namespace {

constexpr std::uint64_t kRunNs = 1'000'000;

}  // namespace

World::World(const Plan& plan, Sabotage sabotage) : plan_(&plan), sabotage_(sabotage) {
  ledger_.add_model("m", plan.limits);
  ledger_.set_client_shares(plan.shares);
  const LaneEvidence crash[] = {{.crashed = true, .what = "signal 11"}};
  for (Incarnation life = 100; plan.shaky && life < 104; ++life) {
    ledger_.worker_ready(0, life, 1, now_ns_);
    ledger_.worker_died(life, crash, now_ns_);
  }
}

void World::possible(std::vector<Event>& events) const {
  events.clear();
  const auto add = [&](EventKind kind, std::size_t a = 0, std::size_t b = 0) {
    events.push_back({kind, static_cast<std::uint8_t>(a), static_cast<std::uint8_t>(b)});
  };
  for (std::size_t i = 0; i < plan_->requests.size(); ++i) {
    const TrackedRequest& request = requests_[i];
    const bool gone = gone_[plan_->requests[i].client];
    if (!request.submitted && !gone) add(EventKind::kSubmit, i);
    if (plan_->cancels && request.admitted && !request.answered && !gone) add(EventKind::kCancel, i);
    if (!leased(i)) continue;
    if (request.phase == Phase::kRunning) {
      if (!is_first_left(i)) continue;
      add(EventKind::kAnswer, i, 0);
      add(EventKind::kAnswer, i, 1);
    } else if (request.leader == i) {
      if (may_begin(i)) add(EventKind::kBegin, i);
      if (plan_->parks && request.phase == Phase::kSent && may_begin(i)) add(EventKind::kPark, i);
      if (plan_->undelivered && request.phase == Phase::kSent) add(EventKind::kUndelivered, i);
    }
  }
  for (ClientId client = 1; plan_->clients_die && client < gone_.size(); ++client) {
    if (!gone_[client]) add(EventKind::kClientDies, client);
  }
  if (ticks_ < plan_->ticks) add(EventKind::kTime);
  int alive = 0;
  for (std::size_t at = 0; at < lives_; ++at) {
    if (!workers_[at].alive) continue;
    ++alive;
    bool runs = false, compiles = false, elsewhere = false;
    for (std::size_t i = 0; i < kMaxRequests; ++i) {
      const bool here = leased(i) && requests_[i].worker == at;
      runs |= here && requests_[i].phase == Phase::kRunning;
      compiles |= here && requests_[i].phase == Phase::kParked;
      elsewhere |= leased(i) && !here;
    }
    for (std::size_t kind = 0; kind < kEvidences; ++kind) {
      const auto evidence = static_cast<Evidence>(kind);
      if (evidence == Evidence::kNothing || evidence == Evidence::kElsewhere ||
          (evidence == Evidence::kCompiling ? compiles
           : evidence == Evidence::kLie     ? plan_->lies && elsewhere
                                            : runs))
        add(EventKind::kWorkerDies, at, kind);
    }
    if (!workers_[at].routable) add(EventKind::kRoutable, at);
    if (plan_->dismisses && !workers_[at].dismissed) add(EventKind::kDismiss, at);
  }
  if (alive < plan_->workers && lives_ < plan_->lives) add(EventKind::kWorkerStarts);
  if (LedgerState::prober(ledger_)) {
    add(EventKind::kProbed, 0, 0);
    add(EventKind::kProbed, 0, 1);
  }
  if (plan_->operators) {
    if (!failed_) add(EventKind::kFail);
    if (!drained_) add(EventKind::kDrain);
    if (!given_up_) add(EventKind::kGiveUp);
  }
}

// A lane runs one group at a time, in the order in which they were sent. It may run a parked group at any time after its program
// is compiled.
bool World::may_begin(std::size_t number) const {
  const TrackedRequest& request = requests_[number];
  for (const TrackedRequest& other : requests_) {
    if (other.phase == Phase::kNone || other.worker != request.worker || other.lane != request.lane ||
        other.group == request.group)
      continue;
    if (other.phase == Phase::kRunning) return false;
    if (other.phase == Phase::kSent && request.phase == Phase::kSent && other.group < request.group) return false;
  }
  return true;
}

bool World::is_first_left(std::size_t number) const {
  return std::ranges::none_of(requests_, [&](const TrackedRequest& other) {
    return other.phase != Phase::kNone && other.group == requests_[number].group && other.index < requests_[number].index;
  });
}

std::size_t World::number_of(RequestId id) const {
  return static_cast<std::size_t>(std::ranges::find(requests_, id, &TrackedRequest::id) - requests_.begin());
}

void World::happen(const Event& event, Coverage* coverage) {
  std::array<Place, kMaxRequests> before{};
  for (std::size_t i = 0; i < kMaxRequests; ++i) before[i] = LedgerState::place_of(ledger_, requests_[i].id);
  const std::size_t a = event.a;
  switch (event.kind) {
    case EventKind::kSubmit: {
      const Plan::Submission& plan = plan_->requests[a];
      TrackedRequest& request = requests_[a];
      request.submitted = true;
      const auto id = ledger_.admit({.client = plan.client,
                                     .flow = plan.flow,
                                     .seq = a + 1,
                                     .model = 0,
                                     .priority = plan.priority,
                                     .timeout_ns = plan.timeout_ns,
                                     .shape = LedgerState::kShape,
                                     .rows = plan.rows,
                                     .joinable = plan.joinable},
                                    now_ns_);
      if (!id.ok()) {
        request.answered = request.released = request.forgotten = true;
        if (coverage)
          coverage->answers.set(static_cast<std::size_t>(event.kind) * 16 + static_cast<std::size_t>(id.status().code()));
        break;
      }
      request.admitted = true;
      request.id = *id;
      ledger_.dispatch(0, now_ns_);
      break;
    }
    case EventKind::kBegin:
      for (TrackedRequest& other : requests_) {
        if (other.phase != Phase::kNone && other.group == requests_[a].group) other.phase = Phase::kRunning;
      }
      break;
    case EventKind::kAnswer: {
      const TrackedRequest lease = requests_[a];
      // A run that nobody waits for may be stopped; it has taken all the time so far.
      const bool is_stopped = event.b && (lease.answered || gone_[plan_->requests[a].client]);
      const LaneReply reply{.lane = {workers_[lease.worker].incarnation, lease.lane},
                            .request = lease.id,
                            .attempt = lease.attempt,
                            .status = is_stopped ? StatusCode::kCancelled
                                      : event.b  ? StatusCode::kInternal
                                                 : StatusCode::kOk,
                            .compute_ns = is_stopped ? plan_->step_ns : kRunNs};
      drop_lease(a);
      answering_ = a;
      if (!ledger_.lane_replied(reply, now_ns_)) broken("a lane's answer to a request that it was sent is ignored");
      break;
    }
    case EventKind::kPark:
      for (TrackedRequest& other : requests_) {
        if (other.phase != Phase::kNone && other.group == requests_[a].group) other.phase = Phase::kParked;
      }
      ledger_.lane_parked({workers_[requests_[a].worker].incarnation, requests_[a].lane}, requests_[a].id, requests_[a].attempt,
                          now_ns_);
      break;
    case EventKind::kCancel:
      ledger_.cancel(plan_->requests[a].client, a + 1, now_ns_);
      if (!requests_[a].answered && ledger_.actions().empty()) broken("a request cannot be cancelled");
      break;
    case EventKind::kClientDies:
      gone_[a] = true;
      ledger_.client_gone(a);
      break;
    case EventKind::kTime:
      ++ticks_;
      now_ns_ += plan_->step_ns;
      ledger_.tick(now_ns_);
      break;
    case EventKind::kWorkerStarts:
      workers_[lives_] = {.incarnation = lives_ + 1u, .alive = true};
      ledger_.worker_ready(0, ++lives_, static_cast<std::uint32_t>(plan_->lanes), now_ns_);
      break;
    case EventKind::kWorkerDies: {
      const std::vector<LaneEvidence> evidence = evidence_of(event.a, static_cast<Evidence>(event.b));
      workers_[a].alive = false;
      for (TrackedRequest& request : requests_) {
        if (request.phase == Phase::kNone || request.worker != a) continue;
        request.has_old_lease = true;
        request.old_lane = {workers_[a].incarnation, request.lane};
        request.old_attempt = request.attempt;
        request.phase = Phase::kNone;
      }
      ledger_.worker_died(workers_[a].incarnation, evidence, now_ns_);
      break;
    }
    case EventKind::kUndelivered: {
      const std::uint16_t group = requests_[a].group;
      workers_[requests_[a].worker].routable = false;
      for (TrackedRequest& other : requests_) {
        if (other.group == group) other.phase = Phase::kNone;
      }
      ledger_.undelivered(requests_[a].id);
      ledger_.dispatch(0, now_ns_);
      break;
    }
    case EventKind::kRoutable:
      workers_[a].routable = !workers_[a].dismissed;
      ledger_.retry(workers_[a].incarnation, now_ns_);
      break;
    case EventKind::kProbed:
      ledger_.probed(*LedgerState::prober(ledger_), event.b == 1, now_ns_);
      break;
    case EventKind::kFail:
      failed_ = true;
      ledger_.fail_model(0, "broken");
      break;
    case EventKind::kDrain:
      drained_ = true;
      ledger_.drain_model(0, "replaced");
      break;
    case EventKind::kGiveUp:
      given_up_ = true;
      ledger_.drain();
      ledger_.fail_everything(StatusCode::kUnavailable, "shutting down", now_ns_);
      break;
    case EventKind::kDismiss:
      workers_[a].dismissed = true;
      workers_[a].routable = false;
      ledger_.dismiss(workers_[a].incarnation);
      ledger_.end_turn(now_ns_);
      break;
  }
  settle(event, coverage);
  answering_ = kMaxRequests;
  check();
  if (!coverage) return;
  for (std::size_t i = 0; i < kMaxRequests; ++i) {
    const Place after = LedgerState::place_of(ledger_, requests_[i].id);
    const auto from = static_cast<std::size_t>(before[i]), to = static_cast<std::size_t>(after);
    if (from != to) coverage->transitions.set((static_cast<std::size_t>(event.kind) * kPlaces + from) * kPlaces + to);
    if (event.kind == EventKind::kWorkerDies && requests_[i].has_old_lease &&
        requests_[i].old_lane.incarnation == workers_[a].incarnation)
      coverage->evidence.set(event.b * kPlaces + to);
  }
}

// Returns what the lanes of a dead worker say, and notes what is true of its requests.
std::vector<LaneEvidence> World::evidence_of(std::uint8_t worker, Evidence kind) {
  std::vector<LaneEvidence> lines(static_cast<std::size_t>(plan_->lanes));
  std::vector<std::size_t> accused;
  bool crashed = false;
  for (std::size_t i = 0; i < kMaxRequests; ++i) {
    const TrackedRequest& request = requests_[i];
    if (request.phase == Phase::kNone || request.worker != worker || !is_first_left(i)) continue;
    LaneEvidence& line = lines[request.lane];
    const TrackedRequest& leader = requests_[request.leader];
    const auto members = [&] {
      for (std::size_t j = 0; j < kMaxRequests; ++j) {
        if (leased(j) && requests_[j].group == request.group) accused.push_back(j);
      }
    };
    if (request.phase == Phase::kParked && kind == Evidence::kCompiling && !crashed) {
      crashed = true;
      line.crashed = line.on_lane = true;
      line.crash_request = request.id;
      members();
    }
    if (request.phase != Phase::kRunning || kind == Evidence::kNothing) continue;
    // The lane names the first request of a batch as long as the batch runs, even if that request has been answered.
    line.running_request = leader.id;
    line.running_attempt = leader.attempt;
    line.running_count = 0;
    for (const TrackedRequest& other : requests_) line.running_count += other.group == request.group && other.id != 0;
    if (request.lone) line.running_hash = 100 + i;
    if (kind == Evidence::kElsewhere) members();
    const bool own =
        kind == Evidence::kCrash || kind == Evidence::kCrashUnnamed || kind == Evidence::kKilled || kind == Evidence::kMemory;
    if (!own || crashed) continue;
    crashed = true;
    line.crashed = line.on_lane = true;
    line.sent_by_process = kind == Evidence::kKilled;
    line.out_of_memory = kind == Evidence::kMemory;
    line.crash_request = leader.id;
    if (kind == Evidence::kCrashUnnamed) line.running_request = 0;
    if (kind != Evidence::kKilled) members();
  }
  if (kind == Evidence::kElsewhere) lines[0].crashed = true;
  if (kind == Evidence::kLie) {
    const auto other = std::ranges::find_if(
        requests_, [&](const TrackedRequest& request) { return request.phase != Phase::kNone && request.worker != worker; });
    lines[0] = {.running_request = other->id,
                .running_attempt = other->attempt,
                .crashed = true,
                .on_lane = true,
                .crash_request = other->id};
  }
  for (LaneEvidence& line : lines) line.what = "signal 11";
  for (const std::size_t i : accused) {
    requests_[i].crashes = static_cast<std::uint8_t>(std::min(requests_[i].crashes + 1, 3));
    if (!requests_[i].lone) continue;
    requests_[i].crashed_alone = true;
    requests_[i].out_of_memory = kind == Evidence::kMemory;
  }
  return lines;
}

std::uint64_t World::hash() const {
  StateHash hash;
  std::array<RequestId, kMaxRequests> ids{};
  for (std::size_t i = 0; i < kMaxRequests; ++i) {
    const TrackedRequest& request = requests_[i];
    ids[i] = request.id;
    hash.add(request.submitted | request.admitted << 1 | request.answered << 2 | request.released << 3 | request.forgotten << 4 |
             (leased(i) && request.lone) << 5 | static_cast<std::uint64_t>(request.phase) << 6 |
             std::uint64_t{request.forgotten ? 0u : request.crashes} << 9 | (!request.forgotten && request.crashed_alone) << 12 |
             (!request.forgotten && request.out_of_memory) << 13);
  }
  int alive = 0;
  for (const Worker& worker : workers_) alive += worker.alive;
  hash.add(static_cast<std::uint64_t>(lives_) | std::uint64_t{ticks_} << 8 | gone_[1] << 16 | gone_[2] << 17 | failed_ << 18 |
           drained_ << 19 | given_up_ << 20 | static_cast<std::uint64_t>(alive) << 24);
  LedgerState::hash(ledger_, std::span(ids).first(plan_->requests.size()), now_ns_, hash);
  return hash.value();
}

}  // namespace shoal::supervisor
