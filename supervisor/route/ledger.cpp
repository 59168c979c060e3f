// Admission, answers and the end of requests. ledger_dispatch.cpp decides which lane runs which request, ledger_death.cpp handles
// the deaths of workers.
#include "supervisor/route/ledger.hpp"

#include <algorithm>

#include "shm/base/check.hpp"
#include "shm/base/errors.hpp"

namespace shoal::supervisor {
namespace {

// With microseconds while they matter.
double in_ms(std::uint64_t ns) {
  return ns < 10'000'000 ? static_cast<double>(ns / 1'000) / 1'000 : static_cast<double>(ns / 1'000'000);
}

}  // namespace

ModelIndex Ledger::add_model(std::string name, ModelLimits limits) {
  const auto vacant = std::ranges::find(models_, false, &ModelRecord::in_use);
  const auto index = static_cast<ModelIndex>(vacant - models_.begin());
  if (vacant == models_.end()) models_.emplace_back();
  models_[index] = ModelRecord{};
  models_[index].name = std::move(name);
  models_[index].limits = limits;
  return index;
}

void Ledger::drain_model(ModelIndex index, std::string reason) { models_[index].draining = std::move(reason); }

void Ledger::remove_model(ModelIndex index) {
  SHOAL_CHECK(models_[index].in_use && model_idle(index));
  models_[index] = ModelRecord{};
  models_[index].in_use = false;
}

void Ledger::fail_model(ModelIndex index, const std::string& reason) {
  ModelRecord& model = models_[index];
  model.failure = reason.empty() ? "no reason is known" : reason;
  for (std::uint32_t slot = 0; slot < entries_.size(); ++slot) {
    const Entry& entry = entries_[slot];
    if (entry.model == index && (entry.state == State::kQueued || entry.state == State::kSuspected)) {
      give_up(slot, StatusCode::kUnavailable, format("model '{}' is not available: {}", model.name, model.failure),
              entry.admitted_ns);
    }
  }
}

ModelView Ledger::model(ModelIndex index) const {
  const ModelRecord& model = models_[index];
  return {model.counts,       model.queue_ns, model.compute_ns, model.total_ns,          model.flows,
          model.queue.size(), model.running,  model.suspected,  model.quarantine.size(), model.breaker};
}

// What decides the turn of a request that arrives now.
Waiting Ledger::newcomer(const ModelRecord& model, const Admission& admission, std::uint64_t now_ns) {
  const std::uint64_t timeout_ns = admission.timeout_ns ? admission.timeout_ns : model.limits.timeout_ns;
  const bool joins = admission.joinable && admission.rows < model.limits.max_batch;
  const CostEstimates::Price price = model.costs.price(admission.shape, admission.rows, joins, now_ns);
  Waiting waiting{.asker = askers_.find(admission.client, admission.flow),
                  .priority = admission.priority,
                  .halvings = price.halvings,
                  .arrival = ++arrivals_,
                  .cost_ns = price.ns};
  // A timeout that ends beyond the range of the clock counts as no timeout.
  if (timeout_ns && timeout_ns < kNoDeadline - now_ns) waiting.deadline_ns = now_ns + timeout_ns;
  return waiting;
}

Result<RequestId> Ledger::admit(const Admission& admission, std::uint64_t now_ns) {
  ModelRecord& model = models_[admission.model];
  Waiting waiting = newcomer(model, admission, now_ns);
  if (Status refusal = check_admission(model, admission, waiting, now_ns); !refusal.ok()) {
    count_refusal(model, admission, refusal.code());
    return refusal;
  }
  const std::uint32_t slot = new_slot();
  if (waiting.asker == kNoSlot) waiting.asker = new_asker(admission.client, admission.flow);
  static_cast<Waiting&>(waiting_[slot]) = waiting;
  entries_[slot] = {.generation = entries_[slot].generation,
                    .joinable = admission.joinable,
                    .model = admission.model,
                    .rows = std::max(admission.rows, 1u),
                    .shape = admission.shape,
                    .seq = admission.seq,
                    .admitted_ns = now_ns,
                    .message_bytes = admission.message_bytes};
  askers_.request_begins(waiting.asker, slot);
  ++model.live;
  ++model.counts.admitted;
  if (admission.flow != 0) ++model.flows.of(admission.client, admission.flow).requests;
  if (waiting.deadline_ns != kNoDeadline) wheel_.add(slot, waiting.deadline_ns);
  enqueue(slot);
  return id_of(slot);
}

Status Ledger::check_admission(const ModelRecord& model, const Admission& admission, const Waiting& waiting,
                               std::uint64_t now_ns) const {
  SHOAL_RETURN_IF_ERROR(check_state(model));
  SHOAL_RETURN_IF_ERROR(check_shares(model, waiting.asker));
  return check_deadline(model, admission, waiting, now_ns);
}

void Ledger::count_refusal(ModelRecord& model, const Admission& admission, StatusCode code) {
  ++model.counts.refused;
  if (code == StatusCode::kDeadlineExceeded) ++model.counts.too_late;
  if (admission.flow != 0) ++model.flows.of(admission.client, admission.flow).refused;
  ++model.counts.answered[static_cast<std::size_t>(code)];
}

Status Ledger::check_state(const ModelRecord& model) const {
  if (draining_) return unavailable("the daemon is shutting down");
  if (!model.failure.empty()) return unavailable("model '{}' is not available: {}", model.name, model.failure);
  if (!model.draining.empty()) return unavailable("model '{}' takes no more requests: {}", model.name, model.draining);
  if (!model.breaker.closed()) {
    return unavailable("model '{}' is resting: {} of its workers crashed within {} s, and no request is to blame (last: {})",
                       model.name, Breaker::kCrashes, Breaker::kWithinNs / 1'000'000'000, model.breaker.reason());
  }
  return {};
}

Status Ledger::check_shares(const ModelRecord& model, std::uint32_t place) const {
  // Requests of askers that are held do not move on, so they take no places from others. They have half as many of their own.
  const bool is_apart = model.queue.is_apart(place);
  const std::size_t limit = is_apart ? places_apart(model) : model.limits.queue_limit;
  const std::size_t queued = is_apart ? model.queue.apart() : model.queue.size() - model.queue.apart();
  if (queued >= limit) {
    return is_apart ? waits_for_shapes(model)
                    : overloaded("model '{}': its queue is full: {} requests wait (queue_limit)", model.name, queued);
  }
  if (place == kNoSlot) return {};
  if (shares_.in_flight && askers_.requests(place) >= shares_.in_flight) {
    return overloaded("model '{}': {} requests of this {} are under way, and it may have no more ([limits] client_requests)",
                      model.name, askers_.requests(place), text_of(place));
  }
  if (queued * 2 <= limit || shares_.of_queue >= 1) return {};
  // The fewer places are free, the fewer one asker may have. An asker that is alone fills its share, and however many askers
  // flood the queue, some places are left for a new one.
  const std::size_t own = model.queue.waiting_of(place);
  const double share = shares_.of_queue / (1 - shares_.of_queue);
  if (static_cast<double>(own) < share * static_cast<double>(limit - queued)) return {};
  return overloaded(
      "model '{}': this {} has {} of the {} waiting requests, which is its share of the queue "
      "([limits] client_queue_percent)",
      model.name, text_of(place), own, queued);
}

std::string Ledger::text_of(std::uint32_t asker) const {
  return askers_.flow(asker) == 0 ? "client" : format("client's flow {}", askers_.flow(asker));
}

std::size_t Ledger::places_apart(const ModelRecord& model) { return std::max<std::size_t>(model.limits.queue_limit / 2, 1); }

Status Ledger::waits_for_shapes(const ModelRecord& model) {
  return overloaded(
      "model '{}': {} requests wait behind new shapes that are being compiled for their clients, and half of queue_limit may",
      model.name, model.queue.apart());
}

// Refuses a request that would be answered too late. The prediction is its wait, an eighth more, and a time in which nearly every
// run ends.
Status Ledger::check_deadline(const ModelRecord& model, const Admission& admission, const Waiting& newcomer,
                              std::uint64_t now_ns) const {
  if (newcomer.deadline_ns == kNoDeadline) return {};
  const std::uint64_t time_ns = newcomer.deadline_ns - now_ns;
  const std::uint64_t run_ns = model.costs.refusing_ns(admission.shape, admission.rows, now_ns);
  std::uint64_t wait = 0;
  if (run_ns <= time_ns) {
    for (const bool exact : {false, true}) {
      wait = wait_ns(model, newcomer, now_ns, exact);
      if (wait + wait / 8 + run_ns <= time_ns) return {};
    }
  }
  return deadline_exceeded(
      "model '{}': the request cannot finish within its timeout, of which {} ms are left: it would wait about {} ms and run for "
      "{} ms",
      model.name, in_ms(time_ns), in_ms(wait), in_ms(run_ns));
}

// The predicted time of the work that runs and waits before the newcomer, divided by the lanes that share it. The result is 0
// without lanes, and if there is an idle lane for the newcomer: what a turn brings waits until its end.
std::uint64_t Ledger::wait_ns(const ModelRecord& model, const Waiting& newcomer, std::uint64_t now_ns, bool exact) const {
  const LaneWork work = lane_work(model, now_ns, exact);
  if (work.lanes == 0 || model.queue.size() - model.queue.apart() < work.idle) return 0;
  const std::uint64_t before_ns = model.queue.work_before_ns(waiting_, newcomer, exact);
  return before_ns == 0 ? work.least_ns : (before_ns + work.sum_ns) / work.lanes;
}

std::uint32_t Ledger::retry_after_ms(ModelIndex index, ClientId client, std::uint64_t flow, std::uint64_t now_ns) const {
  const ModelRecord& model = models_[index];
  const std::uint32_t asker = askers_.find(client, flow);
  std::uint64_t wait = 0;
  if (model.breaker.closed()) {
    wait = wait_ns(model, {.asker = asker, .priority = -128}, now_ns, false);
    if (model.queue.is_held_asker(asker)) wait = std::max(wait, kHeldRetryNs);  // nobody knows how long compiling takes
  } else {
    wait = model.breaker.until_ns() - std::min(now_ns, model.breaker.until_ns());
  }
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(wait / 1'000'000, 1, 30'000));
}

bool Ledger::lane_replied(const LaneReply& reply, std::uint64_t now_ns) {
  Entry* entry = find(reply.request);
  if (!entry || entry->state != State::kLeased || entry->lease != reply.lane || entry->attempt != reply.attempt) {
    ModelIndex index = 0;
    if (find_worker(reply.lane.incarnation, &index)) ++models_[index].counts.late;
    return false;
  }
  const std::uint32_t slot = slot_of(reply.request);
  const ModelIndex index = entry->model;
  ModelRecord& model = models_[index];
  Worker* worker = find_worker(model, reply.lane.incarnation);
  SHOAL_CHECK(worker != nullptr);
  // The worker says so, but it cannot be more than the time since the lease.
  const std::uint64_t compute_ns = std::min(reply.compute_ns, now_ns - std::min(now_ns, entry->leased_ns));
  ++worker->answered;
  ++entry->begun;
  settle_run(slot, reply, compute_ns);
  worker->lanes[reply.lane.lane].replied_ns = now_ns;
  const bool waited_for_program = groups_[entry->group].parked;
  end_lease(slot, *worker, now_ns);
  if (entry->answered) {
    run_ended_answered(slot);
  } else {
    Action& forward = act(Action::Kind::kForward, slot);
    if (waited_for_program)
      forward.queue_ns = now_ns - entry->admitted_ns - compute_ns;  // its wait in the lane counts like one in the queue
    forward.compute_ns = compute_ns;
    forward.status = reply.status;
    forward.ran = reply.status == StatusCode::kOk ? Ran::kYes : Ran::kMaybe;
    count_answer(model, forward, compute_ns, now_ns - entry->admitted_ns);
    forget(slot);
  }
  dispatch(index, now_ns);
  return true;
}

// Its asker pays for the time of the run, even if the run failed or was stopped. The group's times become estimates when it ends.
void Ledger::settle_run(std::uint32_t slot, const LaneReply& reply, std::uint64_t compute_ns) {
  const Entry& entry = entries_[slot];
  ModelRecord& model = models_[entry.model];
  Group& group = groups_[entry.group];
  if (reply.status == StatusCode::kOk) {
    // The members either ran together, or each ran by itself.
    group.compute_ns = reply.batch > 1 ? std::max(group.compute_ns, compute_ns) : group.compute_ns + compute_ns;
    group.ran_rows += entry.rows;
    model.compute_ns.add(compute_ns);
  } else if (reply.status == StatusCode::kCancelled) {
    group.cut_ns = std::max(group.cut_ns, compute_ns);
  }
  if (const std::uint64_t share_ns = reply.batch > 1 ? compute_ns / group.rows * entry.rows : compute_ns; share_ns > 0)
    group.isolated ? model.queue.charge(waiting_[slot], share_ns) : model.queue.settle(waiting_[slot], share_ns);
}

void Ledger::count_answer(ModelRecord& model, const Action& forward, std::uint64_t compute_ns, std::uint64_t total_ns) {
  ++model.counts.answered[std::min<std::size_t>(static_cast<std::size_t>(forward.status), model.counts.answered.size() - 1)];
  model.queue_ns.add(forward.queue_ns);
  model.total_ns.add(total_ns);
  if (forward.flow == 0) return;
  FlowStatistics::Row& row = model.flows.of(forward.client, forward.flow);
  row.queue_ns.add(forward.queue_ns);
  row.total_ns.add(total_ns);
  if (forward.status == StatusCode::kOk) row.compute_ns.add(compute_ns);
}

void Ledger::client_gone(ClientId client) {
  for (std::uint32_t slot = askers_.first_request(client), next = kNoSlot; slot != kNoSlot; slot = next) {
    next = askers_.next_request(slot);
    Entry& entry = entries_[slot];
    entry.client_gone = true;
    if (!entry.answered) ++models_[entry.model].counts.orphaned;
    if (entry.state == State::kLeased) {
      if (!entry.answered) act(Action::Kind::kCancelRun, slot);
      entry.answered = true;
      wheel_.remove(slot);
    } else {
      unqueue(slot);
      forget(slot);
    }
  }
  askers_.client_gone(client);
  for (ModelRecord& model : models_) model.flows.client_gone(client);
}

void Ledger::cancel(ClientId client, std::uint64_t seq, std::uint64_t now_ns) {
  for (std::uint32_t slot = askers_.first_request(client); slot != kNoSlot; slot = askers_.next_request(slot)) {
    if (entries_[slot].seq != seq || entries_[slot].answered) continue;
    return give_up(slot, StatusCode::kCancelled, "canceled by its client", now_ns);
  }
}

void Ledger::tick(std::uint64_t now_ns) {
  wheel_.advance(now_ns, due_);
  for (const std::uint32_t slot : due_) {
    const Entry& entry = entries_[slot];
    const std::uint64_t after_ms = (now_ns - entry.admitted_ns) / 1'000'000;
    give_up(slot, StatusCode::kDeadlineExceeded,
            format("model '{}': the request was not answered before its deadline: after {} ms it was still {}",
                   models_[entry.model].name, after_ms, entry.state == State::kLeased ? "running" : "waiting for a worker"),
            now_ns);
  }
  for (ModelIndex index = 0; index < models_.size(); ++index) tick_model(index, now_ns);
}

std::optional<std::uint64_t> Ledger::next_tick_ns(std::uint64_t now_ns) const {
  std::uint64_t next_ns = wheel_.next_ns(now_ns).value_or(kNoDeadline);
  for (const ModelRecord& model : models_) {
    next_ns = std::min(next_ns, model.wait_until_ns);
    if (!model.quarantine.empty()) next_ns = std::min(next_ns, model.quarantine.front().expires_ns);
    // A probe that is already due waits for a worker, not for a time.
    if (!model.breaker.closed() && !model.breaker.probe_due(now_ns)) next_ns = std::min(next_ns, model.breaker.until_ns());
  }
  return next_ns == kNoDeadline ? std::nullopt : std::optional(next_ns);
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

Ledger::Worker* Ledger::find_worker(ModelRecord& model, Incarnation incarnation) {
  const auto worker = std::ranges::find(model.workers, incarnation, &Worker::incarnation);
  return worker == model.workers.end() ? nullptr : &*worker;
}

std::uint32_t Ledger::new_slot() {
  ++used_;
  if (free_.empty()) {
    free_.push_back(static_cast<std::uint32_t>(entries_.size()));
    entries_.emplace_back();
    waiting_.emplace_back();
    lists_.emplace_back();
  }
  const std::uint32_t slot = free_.back();
  free_.pop_back();
  Entry& entry = entries_[slot];
  if (++entry.generation == 0) entry.generation = 1;  // with 0 the id of slot 0 would be 0, which means "none"
  return slot;
}

// What the tables of the models hold for the place is of the asker that had it before. None of its requests is left.
std::uint32_t Ledger::new_asker(ClientId client, std::uint64_t flow) {
  const std::uint32_t place = askers_.add(client, flow);
  for (ModelRecord& model : models_) model.queue.forget(place);
  return place;
}

Action& Ledger::act(Action::Kind kind, std::uint32_t slot) {
  const Entry& entry = entries_[slot];
  actions_.push_back({.kind = kind,
                      .request = id_of(slot),
                      .client = askers_.client(waiting_[slot].asker),
                      .flow = askers_.flow(waiting_[slot].asker),
                      .seq = entry.seq,
                      .model = entry.model,
                      .lane = entry.lease,
                      .attempts = entry.begun});
  if (entry.was_leased) actions_.back().queue_ns = entry.leased_ns - entry.admitted_ns;
  return actions_.back();
}

Action& Ledger::act(Action::Kind kind, ModelIndex model, Incarnation incarnation) {
  actions_.push_back({.kind = kind, .model = model, .lane = {incarnation, 0}});
  return actions_.back();
}

void Ledger::reply(std::uint32_t slot, StatusCode status, std::string message, bool released, std::uint64_t now_ns) {
  const Entry& entry = entries_[slot];
  Action& action = act(Action::Kind::kReply, slot);
  action.status = status;
  action.message = std::move(message);
  action.released = released;
  action.ran = entry.begun > 0 ? Ran::kYes : entry.state == State::kLeased ? Ran::kMaybe : Ran::kNo;
  if (!entry.was_leased) action.queue_ns = now_ns - entry.admitted_ns;
  ++models_[entry.model].counts.answered[static_cast<std::size_t>(status)];
}

// Sends the terminal reply now, whatever the request is doing. A running request keeps its slots until its run has ended.
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
  askers_.request_ended(waiting_[slot].asker, slot);
  --models_[entries_[slot].model].live;
  free_.push_back(slot);
  --used_;
}

}  // namespace shoal::supervisor
