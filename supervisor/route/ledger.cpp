// Admission, dispatch and answers. What a worker's death does is in ledger_death.cpp.
#include "supervisor/route/ledger.hpp"

#include <algorithm>

#include "shm/base/check.hpp"
#include "shm/base/errors.hpp"

namespace shoal::supervisor {

ModelIndex Ledger::add_model(std::string name, ModelLimits limits) {
  const auto vacant = std::ranges::find(models_, false, &Model::in_use);
  const auto index = static_cast<ModelIndex>(vacant - models_.begin());
  if (vacant == models_.end()) models_.emplace_back();
  models_[index] = Model{};
  models_[index].name = std::move(name);
  models_[index].limits = limits;
  return index;
}

void Ledger::drain_model(ModelIndex index, std::string reason) { models_[index].draining = std::move(reason); }

void Ledger::remove_model(ModelIndex index) {
  SHOAL_CHECK(models_[index].in_use && model_idle(index));
  models_[index] = Model{};
  models_[index].in_use = false;
}

void Ledger::fail_model(ModelIndex index, const std::string& reason) {
  Model& model = models_[index];
  model.failure = reason.empty() ? "no reason is known" : reason;
  for (std::uint32_t slot = 0; slot < entries_.size(); ++slot) {
    const Entry& entry = entries_[slot];
    if (entry.model == index && (entry.state == State::kQueued || entry.state == State::kSuspected)) {
      give_up(slot, StatusCode::kUnavailable, format("model '{}' is not available: {}", model.name, model.failure),
              entry.admitted_ns);
    }
  }
}

void Ledger::restore_model(ModelIndex index) { models_[index].failure.clear(); }

ModelView Ledger::model(ModelIndex index) const {
  const Model& model = models_[index];
  return {model.counts, model.queue_ns, model.compute_ns, model.total_ns, model.queue.size(), model.running};
}

Result<RequestId> Ledger::admit(const Admission& admission, std::uint64_t now_ns) {
  Model& model = models_[admission.model];
  Status refusal;
  if (draining_) {
    refusal = unavailable("the daemon is shutting down");
  } else if (!model.failure.empty()) {
    refusal = unavailable("model '{}' is not available: {}", model.name, model.failure);
  } else if (!model.draining.empty()) {
    refusal = unavailable("model '{}' takes no more requests: {}", model.name, model.draining);
  } else if (model.queue.size() >= model.limits.queue_limit) {
    refusal = overloaded("model '{}': {} requests wait, the queue holds no more", model.name, model.queue.size());
  }
  if (!refusal.ok()) {
    ++model.counts.refused;
    ++model.counts.answered[static_cast<std::size_t>(refusal.code())];
    return refusal;
  }
  const std::uint32_t slot = new_slot();
  Entry& entry = entries_[slot];
  entry = {.generation = entry.generation,
           .priority = admission.priority,
           .model = admission.model,
           .client = admission.client,
           .seq = admission.seq,
           .arrival = ++arrivals_,
           .admitted_ns = now_ns};
  ++model.live;
  ++model.counts.admitted;
  const std::uint64_t timeout_ns = admission.timeout_ns ? admission.timeout_ns : model.limits.timeout_ns;
  // A timeout that ends beyond the clock's range is none.
  if (timeout_ns && timeout_ns < ~std::uint64_t{0} - now_ns) wheel_.add(slot, now_ns + timeout_ns);
  enqueue(slot, false);
  return id_of(slot);
}

void Ledger::dispatch(ModelIndex index, std::uint64_t now_ns) {
  Model& model = models_[index];
  dispatch_suspects(model, now_ns);
  Worker* worker = nullptr;
  std::uint32_t lane = 0;
  while (!model.queue.empty() && choose_lane(model, worker, lane)) lease(model.queue.front(), *worker, lane, now_ns);
}

// Suspects run one at a time on a worker that holds nothing else; it is given up when there are none left.
void Ledger::dispatch_suspects(Model& model, std::uint64_t now_ns) {
  Worker* ward = find_worker(model, model.ward);
  if (model.suspects.empty()) {
    if (!ward || ward->held == 0) model.ward = 0;
    return;
  }
  if (!ward) {
    for (Worker& worker : model.workers) {
      if (worker.routable && (!ward || worker.held < ward->held)) ward = &worker;
    }
    if (!ward) return;
    model.ward = ward->incarnation;
  }
  if (ward->held == 0 && ward->routable) lease(model.suspects.front(), *ward, 0, now_ns);
}

std::uint32_t Ledger::credits(const Model& model) {
  return static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>(kCreditNs / std::max<std::uint64_t>(model.cost_ns, 1), kMinCredits, kMaxCredits));
}

// An idle lane first, then the one with the least predicted work; requests of a model are predicted to cost the same. Of equal
// ones the lane where fewest wait for their programs: it will run those, too.
bool Ledger::choose_lane(Model& model, Worker*& chosen, std::uint32_t& chosen_lane) {
  const std::uint32_t credit = credits(model);
  std::pair<std::size_t, std::size_t> least{credit, 0};
  for (Worker& worker : model.workers) {
    if (!worker.routable || worker.incarnation == model.ward) continue;
    for (std::uint32_t lane = 0; lane < worker.lanes.size(); ++lane) {
      const std::pair<std::size_t, std::size_t> load{worker.lanes[lane].count, worker.lanes[lane].parked.size()};
      if (load >= least) continue;
      least = load;
      chosen = &worker;
      chosen_lane = lane;
      if (load == std::pair<std::size_t, std::size_t>{}) return true;
    }
  }
  return least.first < credit;
}

std::uint32_t Ledger::retry_after_ms(ModelIndex index) const {
  const Model& model = models_[index];
  std::size_t lanes = 0;
  for (const Worker& worker : model.workers) lanes += worker.lanes.size();
  const std::uint64_t wait_ns = (model.queue.size() + model.running) * model.cost_ns / std::max<std::size_t>(lanes, 1);
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(wait_ns / 1'000'000, 1, 10'000));
}

void Ledger::worker_ready(ModelIndex index, Incarnation incarnation, std::uint32_t lanes, std::uint64_t now_ns) {
  Model& model = models_[index];
  model.workers.push_back({.incarnation = incarnation, .lanes = std::vector<Lane>(lanes)});
  dispatch(index, now_ns);
}

void Ledger::set_routable(Incarnation incarnation, bool routable, std::uint64_t now_ns) {
  ModelIndex index = 0;
  Worker* worker = find_worker(incarnation, &index);
  if (!worker) return;
  worker->routable = routable;
  if (routable) dispatch(index, now_ns);
}

void Ledger::undelivered(RequestId request) {
  Entry* entry = find(request);
  if (!entry || entry->state != State::kLeased) return;
  Worker* worker = find_worker(models_[entry->model], entry->lease.incarnation);
  SHOAL_CHECK(worker != nullptr);
  worker->routable = false;
  end_lease(slot_of(request), *worker);
  if (entry->answered) return run_ended_answered(slot_of(request));
  enqueue(slot_of(request), true);
}

bool Ledger::lane_replied(const LaneReply& reply, std::uint64_t now_ns) {
  Entry* entry = find(reply.request);
  ModelIndex index = 0;
  Worker* worker = find_worker(reply.lane.incarnation, &index);
  if (!worker) return false;
  Model& model = models_[index];
  if (!entry || entry->state != State::kLeased || entry->lease != reply.lane || entry->attempt != reply.attempt) {
    ++model.counts.late;
    return false;
  }
  const std::uint32_t slot = slot_of(reply.request);
  const std::uint64_t compute_ns =
      std::min(reply.compute_ns, now_ns - std::min(now_ns, entry->leased_ns));  // a worker's word, as far as it can be true
  ++worker->answered;
  end_lease(slot, *worker);
  ++entry->begun;
  if (reply.status == StatusCode::kOk) {
    model.cost_ns += (static_cast<std::int64_t>(compute_ns) - static_cast<std::int64_t>(model.cost_ns)) / 8;
    model.compute_ns.add(compute_ns);
  }
  if (entry->answered) {
    run_ended_answered(slot);
  } else {
    Action& forward = act(Action::Kind::kForward, slot);
    forward.status = reply.status;
    forward.ran = reply.status == StatusCode::kOk ? Ran::kYes : Ran::kMaybe;
    ++model.counts.answered[std::min<std::size_t>(static_cast<std::size_t>(reply.status), model.counts.answered.size() - 1)];
    model.queue_ns.add(forward.queue_ns);
    model.total_ns.add(now_ns - entry->admitted_ns);
    forget(slot);
  }
  dispatch(index, now_ns);
  return true;
}

void Ledger::lane_parked(LaneRef lane, RequestId request, std::uint16_t attempt, std::uint64_t now_ns) {
  Entry* entry = find(request);
  if (!entry || entry->state != State::kLeased || entry->lease != lane || entry->attempt != attempt || entry->parked) return;
  ModelIndex index = 0;
  Worker* worker = find_worker(lane.incarnation, &index);
  SHOAL_CHECK(worker != nullptr);
  Lane& leased = worker->lanes[lane.lane];
  if (leased.parked.size() >= kMaxParked) return;
  take_from_credit(leased, slot_of(request));
  leased.parked.push_back(slot_of(request));
  entry->parked = true;
  dispatch(index, now_ns);
}

void Ledger::client_gone(ClientId client) {
  for (std::uint32_t slot = 0; slot < entries_.size(); ++slot) {
    Entry& entry = entries_[slot];
    if (entry.state == State::kFree || entry.client != client) continue;
    entry.client_gone = true;
    if (!entry.answered) ++models_[entry.model].counts.orphaned;
    if (entry.state == State::kLeased) {
      if (!entry.answered) act(Action::Kind::kCancelRun, slot);
      entry.answered = true;
    } else {
      unqueue(slot);
      forget(slot);
    }
  }
}

void Ledger::cancel(ClientId client, std::uint64_t seq, std::uint64_t now_ns) {
  for (std::uint32_t slot = 0; slot < entries_.size(); ++slot) {
    const Entry& entry = entries_[slot];
    if (entry.state == State::kFree || entry.client != client || entry.seq != seq || entry.answered) continue;
    give_up(slot, StatusCode::kCancelled, "cancelled by its client", now_ns);
  }
}

void Ledger::tick(std::uint64_t now_ns) {
  wheel_.advance(now_ns, due_);
  for (const std::uint32_t slot : due_) {
    const Entry& entry = entries_[slot];
    const std::uint64_t after_ms = (now_ns - entry.admitted_ns) / 1'000'000;
    give_up(slot, StatusCode::kDeadlineExceeded,
            format("model '{}': not answered within its time ({} ms, {})", models_[entry.model].name, after_ms,
                   entry.state == State::kLeased ? "running" : "waiting for a worker"),
            now_ns);
  }
}

void Ledger::fail_everything(StatusCode status, const std::string& message, std::uint64_t now_ns) {
  for (std::uint32_t slot = 0; slot < entries_.size(); ++slot) {
    if (entries_[slot].state != State::kFree && !entries_[slot].answered) give_up(slot, status, message, now_ns);
  }
}

bool Ledger::is_leased(RequestId request, LaneRef lane) const {
  const Entry* entry = find(request);
  return entry && entry->state == State::kLeased && entry->lease == lane;
}

std::uint64_t Ledger::answered_by(Incarnation incarnation) const {
  const Worker* worker = find_worker(incarnation);
  return worker ? worker->answered : 0;
}

std::uint32_t Ledger::held_by(Incarnation incarnation) const {
  const Worker* worker = find_worker(incarnation);
  return worker ? worker->held : 0;
}

void Ledger::busy_lanes(std::vector<BusyLane>& lanes) const {
  lanes.clear();
  for (ModelIndex index = 0; index < models_.size(); ++index) {
    for (const Worker& worker : models_[index].workers) {
      for (std::uint32_t lane = 0; lane < worker.lanes.size(); ++lane) {
        if (worker.lanes[lane].count == 0) continue;
        const std::uint32_t oldest = worker.lanes[lane].held[0];
        lanes.push_back({index, {worker.incarnation, lane}, id_of(oldest), entries_[oldest].leased_ns});
      }
    }
  }
}

Ledger::Entry* Ledger::find(RequestId request) {
  const std::uint32_t slot = slot_of(request);
  if (slot >= entries_.size() || id_of(slot) != request || entries_[slot].state == State::kFree) return nullptr;
  return &entries_[slot];
}

Ledger::Worker* Ledger::find_worker(Incarnation incarnation, ModelIndex* index) {
  for (ModelIndex i = 0; i < models_.size(); ++i) {
    if (Worker* worker = find_worker(models_[i], incarnation)) {
      if (index) *index = i;
      return worker;
    }
  }
  return nullptr;
}

Ledger::Worker* Ledger::find_worker(Model& model, Incarnation incarnation) {
  const auto worker = std::ranges::find(model.workers, incarnation, &Worker::incarnation);
  return worker == model.workers.end() ? nullptr : &*worker;
}

std::uint32_t Ledger::new_slot() {
  ++used_;
  std::uint32_t slot = 0;
  if (!free_.empty()) {
    slot = free_.back();
    free_.pop_back();
  } else {
    slot = static_cast<std::uint32_t>(entries_.size());
    entries_.emplace_back();
    queue_links_.emplace_back();
  }
  ++entries_[slot].generation;
  return slot;
}

void Ledger::enqueue(std::uint32_t slot, bool at_front) {
  Entry& entry = entries_[slot];
  Model& model = models_[entry.model];
  if (entry.suspect) {
    entry.state = State::kSuspected;
    at_front ? model.suspects.push_front(queue_links_, slot) : model.suspects.push_back(queue_links_, slot);
    return;
  }
  entry.state = State::kQueued;
  at_front ? model.queue.push_front(queue_links_, slot, entry.priority)
           : model.queue.push_back(queue_links_, slot, entry.priority);
}

void Ledger::unqueue(std::uint32_t slot) {
  const Entry& entry = entries_[slot];
  Model& model = models_[entry.model];
  if (entry.state == State::kSuspected) {
    model.suspects.remove(queue_links_, slot);
  } else {
    model.queue.remove(queue_links_, slot, entry.priority);
  }
}

void Ledger::lease(std::uint32_t slot, Worker& worker, std::uint32_t lane, std::uint64_t now_ns) {
  unqueue(slot);
  Entry& entry = entries_[slot];
  Model& model = models_[entry.model];
  entry.state = State::kLeased;
  entry.lease = {worker.incarnation, lane};
  entry.leased_ns = now_ns;
  entry.attempt = static_cast<std::uint16_t>(entry.begun + 1);
  if (entry.leases++ > 0) ++model.counts.rerun;
  if (entry.counts_death) ++model.counts.deaths_rerun;
  entry.counts_death = false;
  Lane& leased = worker.lanes[lane];
  leased.held[leased.count++] = slot;
  ++worker.held;
  ++model.running;
  Action& send = act(Action::Kind::kSend, slot);
  send.lane = entry.lease;
  send.attempt = entry.attempt;
}

void Ledger::end_lease(std::uint32_t slot, Worker& worker) {
  Entry& entry = entries_[slot];
  Lane& lane = worker.lanes[entry.lease.lane];
  if (entry.parked) {
    std::erase(lane.parked, slot);
  } else {
    take_from_credit(lane, slot);
  }
  entry.parked = false;
  --worker.held;
  --models_[entry.model].running;
}

void Ledger::take_from_credit(Lane& lane, std::uint32_t slot) {
  const auto end = lane.held.begin() + lane.count;
  const auto held = std::find(lane.held.begin(), end, slot);
  SHOAL_CHECK(held != end);
  std::copy(held + 1, end, held);
  --lane.count;
}

Action& Ledger::act(Action::Kind kind, std::uint32_t slot) {
  const Entry& entry = entries_[slot];
  actions_.push_back({.kind = kind,
                      .request = id_of(slot),
                      .client = entry.client,
                      .seq = entry.seq,
                      .model = entry.model,
                      .lane = entry.lease,
                      .attempts = entry.begun});
  if (entry.leases > 0) actions_.back().queue_ns = entry.leased_ns - entry.admitted_ns;
  return actions_.back();
}

void Ledger::reply(std::uint32_t slot, StatusCode status, std::string message, bool released, std::uint64_t now_ns) {
  const Entry& entry = entries_[slot];
  Action& action = act(Action::Kind::kReply, slot);
  action.status = status;
  action.message = std::move(message);
  action.released = released;
  action.ran = entry.begun > 0 ? Ran::kYes : entry.state == State::kLeased ? Ran::kMaybe : Ran::kNo;
  if (entry.leases == 0) action.queue_ns = now_ns - entry.admitted_ns;
  ++models_[entry.model].counts.answered[static_cast<std::size_t>(status)];
}

// The terminal reply now, whatever the request is doing; one that runs keeps its slots until the run has ended.
void Ledger::give_up(std::uint32_t slot, StatusCode status, std::string message, std::uint64_t now_ns) {
  Entry& entry = entries_[slot];
  const bool running = entry.state == State::kLeased;
  reply(slot, status, std::move(message), !running, now_ns);
  wheel_.remove(slot);
  if (running) {
    entry.answered = true;
    act(Action::Kind::kCancelRun, slot);
    return;
  }
  unqueue(slot);
  forget(slot);
}

void Ledger::run_ended_answered(std::uint32_t slot) {
  if (!entries_[slot].client_gone) act(Action::Kind::kRelease, slot);
  forget(slot);
}

void Ledger::forget(std::uint32_t slot) {
  act(Action::Kind::kForget, slot);
  wheel_.remove(slot);
  entries_[slot].state = State::kFree;
  --models_[entries_[slot].model].live;
  free_.push_back(slot);
  --used_;
}

}  // namespace shoal::supervisor
