// Decides which lane runs which request: workers and their lanes, groups, the order of waiting requests.
#include <algorithm>
#include <tuple>
#include <utility>

#include "shm/base/check.hpp"
#include "shm/base/errors.hpp"
#include "supervisor/route/ledger.hpp"

namespace shoal::supervisor {

void Ledger::worker_ready(ModelIndex index, Incarnation incarnation, std::uint32_t lanes, std::uint64_t now_ns) {
  ModelRecord& model = models_[index];
  model.workers.push_back({.incarnation = incarnation, .lanes = std::vector<Lane>(lanes)});
  if (!model.quarantine.empty()) act(Action::Kind::kQuarantine, index, incarnation);
  probe_if_due(index, now_ns);
  dispatch(index, now_ns);
}

// If it was the ward, another worker may take the next suspect.
void Ledger::condemn(Incarnation incarnation) {
  ModelIndex index = 0;
  Worker* worker = find_worker(incarnation, &index);
  if (!worker) return;
  worker->routable = false;
  worker->condemned = true;
  touch(index);
}

void Ledger::dismiss(Incarnation incarnation) {
  condemn(incarnation);
  if (Worker* worker = find_worker(incarnation)) worker->dismissed = true;
}

void Ledger::retry(Incarnation incarnation, std::uint64_t now_ns) {
  ModelIndex index = 0;
  Worker* worker = find_worker(incarnation, &index);
  if (!worker || worker->condemned) return;
  worker->routable = true;
  probe_if_due(index, now_ns);
  dispatch(index, now_ns);
}

void Ledger::undelivered(RequestId request) {
  const Entry* entry = find(request);
  if (!entry || entry->state != State::kLeased) return;
  Worker* worker = find_worker(models_[entry->model], entry->lease.incarnation);
  SHOAL_CHECK(worker != nullptr);
  worker->routable = false;
  std::vector<std::uint32_t> members = members_of(groups_[entry->group], kNoSlot);
  std::ranges::reverse(members);  // each one is put before the others
  const bool has_paid = !groups_[entry->group].isolated;
  for (const std::uint32_t slot : members) {
    end_lease(slot, *worker, entries_[slot].leased_ns);
    if (entries_[slot].answered) {
      run_ended_answered(slot);
      continue;
    }
    enqueue(slot);
    if (has_paid) models_[entries_[slot].model].queue.settle(waiting_[slot], 0);  // it pays again when it is sent again
  }
}

bool Ledger::lane_parked(LaneRef lane, RequestId request, std::uint16_t attempt, std::uint64_t now_ns) {
  Entry* entry = find(request);
  if (!entry || entry->state != State::kLeased || entry->lease != lane || entry->attempt != attempt) return false;
  if (std::exchange(entry->is_parked, true)) return false;
  Group& group = groups_[entry->group];
  Worker* worker = find_worker(models_[entry->model], lane.incarnation);
  SHOAL_CHECK(worker != nullptr);
  Lane& leased = worker->lanes[lane.lane];
  if (group.parked) return true;
  take_from_credit(leased, entry->group, now_ns);
  leased.parked.push_back(group_links_, entry->group);
  ++leased.parked_count;
  group.parked = true;
  ModelRecord& model = models_[entry->model];
  const std::uint32_t asker = waiting_[slot_of(request)].asker;
  group.parked_for = asker;
  count_parked(model, group, true);
  if (model.queue.is_held_asker(asker) && model.queue.apart() > places_apart(model)) {
    for (const std::uint32_t youngest : model.queue.youngest_apart(waiting_, model.queue.apart() - places_apart(model))) {
      const Status why = waits_for_shapes(model);
      give_up(youngest, why.code(), why.message(), now_ns);
    }
  }
  dispatch(entry->model, now_ns);
  return true;
}

// The programs that one asker asks for are compiled one after the other, which takes long. Others go on meanwhile.
void Ledger::count_parked(ModelRecord& model, Group& group, bool is_parked) {
  const std::uint32_t asker = group.parked_for;
  if (asker == kNoSlot) return;
  if (asker >= model.parked.size()) model.parked.resize(asker + 1);
  std::uint32_t& count = model.parked[asker];
  if (is_parked && ++count == kMaxParked) model.queue.hold(waiting_, asker);
  if (!is_parked && count-- == kMaxParked) model.queue.release(waiting_, asker);
  if (!is_parked) group.parked_for = kNoSlot;
}

// A group may outlast the requests of the asker that it is counted for, and then the asker's place may go to another one.
bool Ledger::has_member_of(const Group& group, std::uint32_t asker) const {
  for (std::uint32_t slot = group.members.front(); slot != kNoSlot; slot = lists_[slot].next) {
    if (waiting_[slot].asker == asker) return true;
  }
  return false;
}

void Ledger::end_turn(std::uint64_t now_ns) {
  in_turn_ = false;
  for (const ModelIndex index : touched_) {
    models_[index].is_touched = false;
    give_to_lanes(index, now_ns);
  }
  touched_.clear();
}

void Ledger::dispatch(ModelIndex index, std::uint64_t now_ns) {
  ModelRecord& model = models_[index];
  // If the queue is more than half full, what lanes can take now makes room: others might be refused for it.
  if (!in_turn_ || model.queue.size() * 2 > model.limits.queue_limit) return give_to_lanes(index, now_ns);
  touch(index);
}

void Ledger::touch(ModelIndex index) {
  if (!std::exchange(models_[index].is_touched, true)) touched_.push_back(index);
}

void Ledger::give_to_lanes(ModelIndex index, std::uint64_t now_ns) {
  ModelRecord& model = models_[index];
  model.wait_until_ns = kNoDeadline;
  if (!model.breaker.closed()) return;
  dispatch_suspects(model, now_ns);
  while (!model.queue.empty()) {
    const Seat seat = choose_lane(model, now_ns);
    if (!seat.worker) return;
    std::uint32_t slot = model.queue.next(waiting_);
    if (slot == kNoSlot) return;
    // Part of a batch waits for an idle lane, because it may become whole until then.
    if (!is_whole(model, entries_[slot]) && seat.worker->lanes[seat.lane].count > 0) return;
    if (is_too_late(slot, seat.free_ns, now_ns)) {
      // A lane that has no room now may finish before that one.
      if (!is_too_late(slot, now_ns + lane_work(model, now_ns, true).least_ns, now_ns)) return;
      give_up_late(slot, now_ns);
      continue;
    }
    if (waits_for_members(model, slot, now_ns)) slot = next_whole(model, seat);
    if (slot == kNoSlot) return;
    lease_group(model, slot, seat, now_ns);
  }
}

void Ledger::give_up_late(std::uint32_t slot, std::uint64_t now_ns) {
  const Entry& entry = entries_[slot];
  ModelRecord& model = models_[entry.model];
  ++model.counts.too_late;
  give_up(slot, StatusCode::kDeadlineExceeded,
          format("model '{}': the request cannot finish before its deadline anymore, after {} ms in the queue", model.name,
                 (now_ns - entry.admitted_ns) / 1'000'000),
          now_ns);
}

// Whether the request waits for others that may join it. Notes until when.
bool Ledger::waits_for_members(ModelRecord& model, std::uint32_t slot, std::uint64_t now_ns) {
  const Entry& entry = entries_[slot];
  if (is_whole(model, entry) || model.urgent > 0) return false;
  const std::uint64_t latest_ns = std::max(latest_start_ns(slot, entry.rows), kTimerNs) - kTimerNs;
  const std::uint64_t until_ns = std::min(entry.admitted_ns + model.limits.max_delay_ns, latest_ns);
  if (now_ns >= until_ns) return false;
  model.wait_until_ns = until_ns;
  return true;
}

// A whole batch need not wait for one that is not. kNoSlot if there is none.
std::uint32_t Ledger::next_whole(ModelRecord& model, const Seat& seat) {
  return model.queue.next_like(waiting_, [&](std::uint32_t other) {
    return is_whole(model, entries_[other]) && can_finish(other, entries_[other].rows, seat.free_ns);
  });
}

// Suspects run one at a time, on a worker that holds nothing else, and their askers take turns. When no suspect is left, the
// worker serves everybody again.
void Ledger::dispatch_suspects(ModelRecord& model, std::uint64_t now_ns) {
  Worker* ward = find_worker(model, model.ward);
  if (model.suspects.empty()) {
    if (!ward || ward->held == 0) model.ward = 0;
    return;
  }
  if (!ward || ward->condemned || (!ward->routable && ward->held == 0)) {
    ward = nullptr;
    for (Worker& worker : model.workers) {
      if (worker.routable && (!ward || worker.held < ward->held)) ward = &worker;
    }
    if (!ward) return;
    model.ward = ward->incarnation;
  }
  if (ward->held > 0 || !ward->routable) return;
  const std::uint32_t asker = waiting_[model.suspects.front()].asker;
  lease_group(model, model.suspects.front(), {.worker = ward, .lane = 0, .free_ns = now_ns}, now_ns);
  // The other suspects of its asker go behind those of other askers.
  std::uint32_t slot = model.suspects.front();
  for (std::uint32_t left = model.suspected; left > 0; --left) {
    const std::uint32_t next = lists_[slot].next;
    if (waiting_[slot].asker == asker) {
      model.suspects.remove(lists_, slot);
      model.suspects.push_back(lists_, slot);
    }
    slot = next;
  }
}

// Chooses an idle lane or, if there is none, the lane that will finish first. Among equal lanes it chooses the one with the
// fewest parked groups, because the lane will run those, too.
Ledger::Seat Ledger::choose_lane(ModelRecord& model, std::uint64_t now_ns) {
  Seat seat;
  std::tuple<std::uint64_t, std::uint32_t, std::uint32_t> least{~std::uint64_t{0}, 0, 0};
  for (Worker& worker : model.workers) {
    if (!serves_all(model, worker)) continue;
    for (std::uint32_t at = 0; at < worker.lanes.size(); ++at) {
      const Lane& lane = worker.lanes[at];
      if (lane.count == 0 && lane.parked.empty()) return {&worker, at, now_ns};
      if (!has_room(model, lane)) continue;
      const std::tuple load{left_ns(lane, now_ns), lane.count, lane.parked_count};
      if (load >= least) continue;
      least = load;
      seat = {&worker, at, now_ns + std::get<0>(load)};
    }
  }
  return seat;
}

std::uint64_t Ledger::left_ns(const Lane& lane, std::uint64_t now_ns) const {
  if (lane.count == 0) return 0;
  return lane.work_ns - std::min(now_ns - std::min(now_ns, lane.since_ns), groups_[lane.held[0]].cost_ns);
}

Ledger::LaneWork Ledger::lane_work(const ModelRecord& model, std::uint64_t now_ns, bool exact) const {
  LaneWork work;
  for (const Worker& worker : model.workers) {
    if (!serves_all(model, worker)) continue;
    for (const Lane& lane : worker.lanes) {
      const std::uint64_t left = exact ? left_ns(lane, now_ns) : lane.work_ns;
      work.idle += lane.count == 0 && lane.parked.empty();
      work.least_ns = std::min(work.least_ns, left);
      work.sum_ns += left;
      ++work.lanes;
    }
  }
  return work;
}

std::uint64_t Ledger::latest_start_ns(std::uint32_t slot, std::uint32_t rows) const {
  const std::uint64_t deadline_ns = waiting_[slot].deadline_ns;
  if (deadline_ns == kNoDeadline) return kNoDeadline;
  const Entry& entry = entries_[slot];
  return deadline_ns - std::min(deadline_ns, models_[entry.model].costs.of(entry.shape, rows).most_ns());
}

bool Ledger::is_too_late(std::uint32_t slot, std::uint64_t start_ns, std::uint64_t now_ns) const {
  const std::uint64_t deadline_ns = waiting_[slot].deadline_ns;
  const Entry& entry = entries_[slot];
  return deadline_ns != kNoDeadline &&
         start_ns + models_[entry.model].costs.refusing_ns(entry.shape, entry.rows, now_ns) > deadline_ns;
}

// Takes the leader from the queue, and the requests that run with it: those of its shape, in the order of turns, as long as all
// end in time.
std::uint32_t Ledger::form_group(ModelRecord& model, std::uint32_t leader, const Seat& seat) {
  const std::uint32_t at = new_group();
  Group& group = groups_[at];
  group.shape = entries_[leader].shape;
  group.isolated = entries_[leader].state == State::kSuspected;
  if (group.isolated) {
    unqueue(leader);
  } else {
    left_queue(leader);
    model.queue.take(waiting_, leader);
  }
  add_to_group(at, leader);
  if (!group.isolated && joins(model, entries_[leader])) {
    std::uint32_t tightest = leader;
    const auto fits = [&](std::uint32_t slot) {
      const Entry& entry = entries_[slot];
      const std::uint32_t rows = group.rows + entry.rows;
      return joins(model, entry) && entry.shape == group.shape && rows <= model.limits.max_batch &&
             can_finish(slot, rows, seat.free_ns) && can_finish(tightest, rows, seat.free_ns);
    };
    for (std::uint32_t slot = 0;
         group.rows < model.limits.max_batch && (slot = model.queue.next_like(waiting_, fits)) != kNoSlot;) {
      left_queue(slot);
      model.queue.take_along(waiting_, slot);
      add_to_group(at, slot);
      if (waiting_[slot].deadline_ns < waiting_[tightest].deadline_ns) tightest = slot;
    }
  }
  group.cost_ns = model.costs.guess_ns(group.shape, group.rows);
  // A lane is given only few groups of a shape that was not measured, even if the runs of other shapes are short.
  if (!model.costs.is_measured(group.shape, group.rows)) group.cost_ns = std::max(group.cost_ns, kCreditNs);
  return at;
}

void Ledger::give_credit(ModelRecord& model, std::uint32_t at, const Seat& seat, std::uint64_t now_ns) {
  const Group& group = groups_[at];
  Lane& lane = seat.worker->lanes[seat.lane];
  if (lane.count == 0) lane.since_ns = now_ns;
  lane.held[lane.count++] = at;
  lane.work_ns += group.cost_ns;
  lane.message_bytes += group.message_bytes;
  seat.worker->held += group.count;
  model.running += group.count;
  if (group.count > 1) {
    ++model.counts.groups;
    model.counts.grouped += group.count;
  }
}

// Leases the leader and its group to the lane. The attempt tells this lease from earlier ones of the same request.
void Ledger::lease_group(ModelRecord& model, std::uint32_t leader, const Seat& seat, std::uint64_t now_ns) {
  const std::uint32_t at = form_group(model, leader, seat);
  const Group& group = groups_[at];
  give_credit(model, at, seat, now_ns);
  std::uint16_t index = 0;
  for (std::uint32_t slot = group.members.front(); slot != kNoSlot; slot = lists_[slot].next) {
    Entry& entry = entries_[slot];
    entry.state = State::kLeased;
    entry.is_parked = false;
    entry.lease = {seat.worker->incarnation, seat.lane};
    entry.leased_ns = now_ns;
    entry.attempt = static_cast<std::uint16_t>(entry.begun + 1);
    if (std::exchange(entry.was_leased, true)) ++model.counts.rerun;
    if (entry.counts_death) ++model.counts.deaths_rerun;
    entry.counts_death = false;
    Action& send = act(Action::Kind::kSend, slot);
    send.attempt = entry.attempt;
    send.batch_size = static_cast<std::uint16_t>(group.count);
    send.batch_index = index++;
    send.alone = group.isolated;
    send.hash_inputs = group.isolated && entry.is_hashed;
    send.quarantine = model.quarantine.empty() ? std::uint8_t{0} : model.quarantine_number;
  }
}

std::uint32_t Ledger::new_group() {
  if (free_groups_.empty()) {
    free_groups_.push_back(static_cast<std::uint32_t>(groups_.size()));
    groups_.emplace_back();
    group_links_.emplace_back();
  }
  const std::uint32_t at = free_groups_.back();
  free_groups_.pop_back();
  groups_[at] = {};
  return at;
}

void Ledger::add_to_group(std::uint32_t at, std::uint32_t slot) {
  Group& group = groups_[at];
  group.members.push_back(lists_, slot);
  ++group.count;
  group.rows += entries_[slot].rows;
  group.message_bytes += entries_[slot].message_bytes;
  entries_[slot].group = at;
}

void Ledger::end_lease(std::uint32_t slot, Worker& worker, std::uint64_t now_ns) {
  Entry& entry = entries_[slot];
  ModelRecord& model = models_[entry.model];
  const std::uint32_t at = std::exchange(entry.group, kNoSlot);
  Group& group = groups_[at];
  group.members.remove(lists_, slot);
  --worker.held;
  --model.running;
  if (group.parked_for == waiting_[slot].asker && !has_member_of(group, group.parked_for)) count_parked(model, group, false);
  if (--group.count > 0) return;
  Lane& lane = worker.lanes[entry.lease.lane];
  if (group.parked) {
    lane.parked.remove(group_links_, at);
    --lane.parked_count;
  } else {
    take_from_credit(lane, at, now_ns);
  }
  if (group.compute_ns) {
    model.costs.add(group.shape, group.ran_rows, group.compute_ns, now_ns);
  } else if (group.cut_ns) {
    model.costs.at_least(group.shape, group.rows, group.cut_ns, now_ns);
  }
  free_groups_.push_back(at);
}

void Ledger::take_from_credit(Lane& lane, std::uint32_t group, std::uint64_t now_ns) {
  const auto end = lane.held.begin() + lane.count;
  const auto held = std::find(lane.held.begin(), end, group);
  SHOAL_CHECK(held != end);
  if (held == lane.held.begin()) lane.since_ns = now_ns;
  std::copy(held + 1, end, held);
  --lane.count;
  lane.work_ns -= groups_[group].cost_ns;
  lane.message_bytes -= groups_[group].message_bytes;
}

std::vector<std::uint32_t> Ledger::members_of(const Group& group, std::uint32_t first) const {
  std::vector<std::uint32_t> members;
  for (std::uint32_t slot = first == kNoSlot ? group.members.front() : first; slot != kNoSlot; slot = lists_[slot].next)
    members.push_back(slot);
  return members;
}

// A request that was leased before goes before the others of its asker. A suspect goes behind the other suspects.
void Ledger::enqueue(std::uint32_t slot) {
  Entry& entry = entries_[slot];
  ModelRecord& model = models_[entry.model];
  if (entry.suspect) {
    entry.state = State::kSuspected;
    model.suspects.push_back(lists_, slot);
    ++model.suspected;
    return;
  }
  entry.state = State::kQueued;
  WaitingEntry& waiting = waiting_[slot];
  waiting.rerun = entry.was_leased;
  entry.urgent = waiting.rerun || !can_finish(slot, entry.rows, entry.admitted_ns + model.limits.max_delay_ns + kTimerNs);
  model.urgent += entry.urgent;
  rows_like(model, entry) += joining_rows(model, entry);
  model.queue.push(waiting_, slot);
}

void Ledger::unqueue(std::uint32_t slot) {
  ModelRecord& model = models_[entries_[slot].model];
  if (entries_[slot].state == State::kSuspected) {
    model.suspects.remove(lists_, slot);
    --model.suspected;
    return;
  }
  left_queue(slot);
  model.queue.remove(waiting_, slot);
}

void Ledger::left_queue(std::uint32_t slot) {
  const Entry& entry = entries_[slot];
  ModelRecord& model = models_[entry.model];
  model.urgent -= entry.urgent;
  rows_like(model, entry) -= joining_rows(model, entry);
}

void Ledger::busy_lanes(std::vector<BusyLane>& lanes) const {
  lanes.clear();
  for (ModelIndex index = 0; index < models_.size(); ++index) {
    for (const Worker& worker : models_[index].workers) {
      for (std::uint32_t at = 0; at < worker.lanes.size(); ++at) {
        const Lane& lane = worker.lanes[at];
        const bool parked = lane.count == 0;
        if (parked && lane.parked.empty()) {
          const Breaker& breaker = models_[index].breaker;
          if (at == 0 && breaker.prober() == worker.incarnation && breaker.owed_since_ns() != 0)
            lanes.push_back({index, {worker.incarnation, at}, kProbe, breaker.owed_since_ns()});
          continue;
        }
        const std::uint32_t oldest = groups_[parked ? lane.parked.front() : lane.held[0]].members.front();
        lanes.push_back({index, {worker.incarnation, at}, id_of(oldest), entries_[oldest].leased_ns, parked});
      }
    }
  }
}

bool Ledger::has_busy_lanes() const {
  return !idle() || std::ranges::any_of(models_, [](const ModelRecord& model) {
    return !model.breaker.closed() && model.breaker.owed_since_ns() != 0 && !model.workers.empty();
  });
}

}  // namespace shoal::supervisor
