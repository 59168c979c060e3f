// The deaths of workers: requests are blamed only on evidence, all others run again. Also quarantine and the breaker.
#include <algorithm>
#include <functional>

#include "shm/base/errors.hpp"
#include "supervisor/route/ledger.hpp"

namespace shoal::supervisor {

namespace {
bool contains(const std::vector<std::uint32_t>& slots, std::uint32_t slot) {
  return std::ranges::find(slots, slot) != slots.end();
}
}  // namespace

// What the status lines of a dead worker say about the requests leased to it.
struct Ledger::Verdicts {
  std::vector<std::uint32_t> begun;     // requests that were running
  std::vector<std::uint32_t> guilty;    // the only request that ran when its lane, or another thread, crashed
  std::vector<std::uint32_t> suspects;  // one of several requests that ran then
  std::vector<std::uint32_t> poison;    // guilty requests that were alone on the worker
  std::uint64_t poison_hash = 0;
  bool crashed = false;
  bool out_of_memory = false;
  std::string what;  // describes the crash

  bool accuses(std::uint32_t slot) const { return contains(guilty, slot) || contains(suspects, slot); }
  bool accuses_anybody() const { return !guilty.empty() || !suspects.empty(); }
  // Counts the death in a request that the worker held.
  void count_in(Entry& entry, std::uint32_t slot) const {
    const bool was_running = contains(begun, slot);
    entry.begun += was_running;
    entry.blamed += contains(guilty, slot);
    (accuses_anybody() ? entry.beside : entry.unexplained) += was_running && !accuses(slot);
    entry.suspect |= accuses(slot) || entry.beside >= kMaxDeathsBesideOthers;
    entry.is_hashed |= accuses(slot) && !out_of_memory;
  }
  // A single request is guilty; several requests are suspects.
  void accuse(const std::vector<std::uint32_t>& slots) {
    std::vector<std::uint32_t>& list = slots.size() == 1 ? guilty : suspects;
    list.insert(list.end(), slots.begin(), slots.end());
  }
};

// What a request's asker pays for the run that ended with the worker, and whether it has paid the predicted time for it.
struct Ledger::Bill {
  Waiting request;
  std::uint64_t took_ns = 0;
  bool has_paid = true;
};

void Ledger::judge(const Worker& worker, std::span<const LaneEvidence> evidence, Verdicts& verdicts) const {
  bool other_thread_faulted = false;
  const std::size_t lanes = std::min(worker.lanes.size(), evidence.size());
  for (std::uint32_t at = 0; at < lanes; ++at) {
    const LaneEvidence& line = evidence[at];
    const LaneRef here{worker.incarnation, at};
    std::vector<std::uint32_t> ran;
    const std::uint32_t running = slot_of(line.running_request);
    if (is_leased(line.running_request, here) && entries_[running].attempt == line.running_attempt) {
      ran = members_of(groups_[entries_[running].group], running);
      if (ran.size() > line.running_count) ran.resize(std::max<std::uint64_t>(line.running_count, 1));
    }
    const bool had_begun_nothing = line.on_lane && line.crash_request == 0 && ran.empty() && worker.lanes[at].count > 0;
    if (line.crashed && line.by_watchdog && had_begun_nothing) {
      // The lane had begun nothing. Perhaps the message never came, because a thread of this process or the machine stood still.
      // So it is evidence against nobody. But it counts as a run, because the same message might stop one worker after the other.
      const std::vector<std::uint32_t> next = members_of(groups_[worker.lanes[at].held[0]], kNoSlot);
      verdicts.begun.insert(verdicts.begun.end(), next.begin(), next.end());
    } else if (line.crashed && !line.sent_by_process) {
      verdicts.crashed = true;
      verdicts.out_of_memory |= line.out_of_memory;
      if (verdicts.what.empty()) verdicts.what = line.what;
      if (!line.on_lane) {
        other_thread_faulted = true;
      } else if (is_leased(line.crash_request, here)) {
        // The crashed lane may not have named the request: it was being compiled for, or the lane crashed just before naming it.
        if (!contains(ran, slot_of(line.crash_request))) {
          const std::vector<std::uint32_t> others = members_of(groups_[entries_[slot_of(line.crash_request)].group], kNoSlot);
          verdicts.accuse(others);
          verdicts.begun.insert(verdicts.begun.end(), others.begin(), others.end());
        } else {
          verdicts.accuse(ran);
        }
      } else if (had_begun_nothing) {
        // The lane crashed while it received. Without this the same message would end one worker after the other.
        const std::vector<std::uint32_t> next = members_of(groups_[worker.lanes[at].held[0]], kNoSlot);
        verdicts.accuse(next);
        verdicts.begun.insert(verdicts.begun.end(), next.begin(), next.end());
      }
    }
    verdicts.begun.insert(verdicts.begun.end(), ran.begin(), ran.end());
  }
  if (other_thread_faulted) {
    verdicts.guilty.clear();
    verdicts.suspects.clear();
    verdicts.accuse(verdicts.begun);
  }
  // Compiling for a request is an attempt, too. Otherwise a program that takes all memory would be compiled again and again.
  for (std::uint32_t at = 0; at < lanes; ++at) {
    if (!is_leased(evidence[at].compiling_request, {worker.incarnation, at})) continue;
    for (const std::uint32_t slot : members_of(groups_[entries_[slot_of(evidence[at].compiling_request)].group], kNoSlot)) {
      if (!contains(verdicts.begun, slot)) verdicts.begun.push_back(slot);
    }
  }
  for (const std::uint32_t slot : verdicts.guilty) {
    if (!groups_[entries_[slot].group].isolated) continue;
    verdicts.poison.push_back(slot);
    const LaneEvidence& line = evidence[entries_[slot].lease.lane];
    if (line.running_request == id_of(slot) && !verdicts.out_of_memory) verdicts.poison_hash = line.running_hash;
  }
}

// A run that ended with its worker costs its asker as much as one that finished: the time since the last reply of its lane. It
// costs nothing if it was lost to the crash of another request.
std::vector<Ledger::Bill> Ledger::bills_of(const Worker& worker, const std::vector<std::uint32_t>& held, const Verdicts& verdicts,
                                           std::uint64_t now_ns) const {
  std::vector<Bill> bills;
  for (const std::uint32_t slot : held) {
    const Entry& entry = entries_[slot];
    std::uint64_t took_ns = 0;
    if (contains(verdicts.begun, slot) && (verdicts.accuses(slot) || !verdicts.accuses_anybody())) {
      std::uint64_t rows = 0;  // that ran together
      for (const std::uint32_t other : verdicts.begun) rows += entries_[other].group == entry.group ? entries_[other].rows : 0;
      const std::uint64_t began_ns = std::max(entry.leased_ns, worker.lanes[entry.lease.lane].replied_ns);
      took_ns = (now_ns - std::min(now_ns, began_ns)) / rows * entry.rows;
    }
    bills.push_back({.request = waiting_[slot], .took_ns = took_ns, .has_paid = !groups_[entry.group].isolated});
  }
  return bills;
}

// The requests that the worker holds. Its groups are free, but keep their members until one is used again.
std::vector<std::uint32_t> Ledger::take_held(ModelRecord& model, const Worker& worker) {
  std::vector<std::uint32_t> held;
  const auto take = [&](std::uint32_t group) {
    const std::vector<std::uint32_t> members = members_of(groups_[group], kNoSlot);
    held.insert(held.end(), members.begin(), members.end());
    free_groups_.push_back(group);
  };
  for (const Lane& lane : worker.lanes) {
    std::for_each_n(lane.held.begin(), lane.count, take);
    for (std::uint32_t group = lane.parked.front(); group != kNoSlot; group = group_links_[group].next) {
      count_parked(model, groups_[group], false);
      take(group);
    }
  }
  model.running -= static_cast<std::uint32_t>(held.size());
  return held;
}

// What the death means for the model, and which request stands for it when deaths that were survived are counted.
void Ledger::note_death(ModelIndex index, Incarnation incarnation, const Verdicts& verdicts, std::uint64_t now_ns) {
  ModelRecord& model = models_[index];
  if (model.ward == incarnation) model.ward = 0;
  if (verdicts.crashed && !verdicts.accuses_anybody()) model.breaker.crashed(verdicts.what, now_ns);
  if (model.breaker.prober() == incarnation) model.breaker.probe_ended(false, now_ns);
  if (verdicts.poison_hash) quarantine(index, verdicts.poison_hash, now_ns);
  const auto counted = std::ranges::find_if(verdicts.begun, [&](std::uint32_t slot) { return !entries_[slot].answered; });
  if (counted != verdicts.begun.end()) entries_[*counted].counts_death = true;
}

std::vector<DeathOutcome> Ledger::worker_died(Incarnation incarnation, std::span<const LaneEvidence> evidence,
                                              std::uint64_t now_ns) {
  ModelIndex index = 0;
  Worker* worker = find_worker(incarnation, &index);
  if (!worker) return {};
  ModelRecord& model = models_[index];
  if (!worker->dismissed) ++model.counts.worker_deaths;
  Verdicts verdicts;
  judge(*worker, evidence, verdicts);

  std::vector<std::uint32_t> held = take_held(model, *worker);
  const std::vector<Bill> bills = bills_of(*worker, held, verdicts, now_ns);
  model.workers.erase(model.workers.begin() + (worker - model.workers.data()));
  note_death(index, incarnation, verdicts, now_ns);
  // Sort the youngest first: each one is put before the others of its asker, so the oldest ends up in front.
  std::ranges::sort(held, std::greater(), [&](std::uint32_t slot) { return waiting_[slot].arrival; });
  std::vector<DeathOutcome> outcomes;
  for (const std::uint32_t slot : held) outcomes.push_back(after_death(slot, verdicts, now_ns));
  std::ranges::reverse(outcomes);
  for (const DeathOutcome& outcome : outcomes) {  // suspects line up in this order, behind those of earlier deaths
    if (outcome.fate == DeathOutcome::Fate::kRunsAlone) enqueue(slot_of(outcome.request));
  }
  for (const Bill& bill : bills) {  // only now, because requests that were on the worker have waited for that run, too
    bill.has_paid ? model.queue.settle(bill.request, bill.took_ns) : model.queue.charge(bill.request, bill.took_ns);
  }
  dispatch(index, now_ns);
  return outcomes;
}

DeathOutcome Ledger::after_death(std::uint32_t slot, const Verdicts& verdicts, std::uint64_t now_ns) {
  using Fate = DeathOutcome::Fate;
  Entry& entry = entries_[slot];
  entry.group = kNoSlot;
  lists_[slot] = {};
  verdicts.count_in(entry, slot);
  DeathOutcome outcome{.request = id_of(slot),
                       .client = askers_.client(waiting_[slot].asker),
                       .flow = askers_.flow(waiting_[slot].asker),
                       .seq = entry.seq,
                       .begun = entry.begun,
                       .blamed = entry.blamed,
                       .was_running = contains(verdicts.begun, slot)};
  if (entry.answered) {
    outcome.fate = Fate::kWasAnswered;
    run_ended_answered(slot);
  } else if (const Status why = why_not_again(slot, verdicts); !why.ok()) {
    outcome.fate = why.code() == StatusCode::kPoison    ? Fate::kAnsweredPoison
                   : why.code() == StatusCode::kAborted ? Fate::kAnsweredAborted
                                                        : Fate::kAnsweredUnavailable;
    reply(slot, why.code(), why.message(), true, now_ns);
    actions_.back().ran = entry.begun > 0 ? Ran::kYes : Ran::kMaybe;
    forget(slot);
  } else {
    outcome.fate = entry.suspect ? Fate::kRunsAlone : Fate::kRunsAgain;
    if (!entry.suspect) enqueue(slot);  // worker_died() puts it among the suspects
  }
  return outcome;
}

// The answer of a request that does not run again after the death. OK if it does.
Status Ledger::why_not_again(std::uint32_t slot, const Verdicts& verdicts) const {
  const Entry& entry = entries_[slot];
  const ModelRecord& model = models_[entry.model];
  if (contains(verdicts.poison, slot)) {
    if (verdicts.out_of_memory) {
      return aborted(
          "model '{}': the request ran alone on a worker and needed more memory than a worker may have: {}; raise memory_mb or "
          "send a smaller request",
          model.name, verdicts.what);
    }
    return poison(
        "model '{}': the request was part of a crash and then crashed a worker on which it ran alone: {}; do not send it again",
        model.name, verdicts.what);
  }
  if (entry.unexplained >= kMaxUnexplainedDeaths) {
    return aborted("model '{}': {} workers died while they ran the request, and none of them left a reason", model.name,
                   kMaxUnexplainedDeaths);
  }
  if (!model.failure.empty()) return unavailable("model '{}' is not available: {}", model.name, model.failure);
  return {};
}

// ---- quarantine and breaker ----

void Ledger::quarantine(ModelIndex index, std::uint64_t hash, std::uint64_t now_ns) {
  std::vector<Quarantined>& list = models_[index].quarantine;
  std::erase_if(list, [&](const Quarantined& one) { return one.hash == hash; });
  if (list.size() >= kMaxQuarantined) list.erase(list.begin());
  list.push_back({hash, now_ns + models_[index].limits.quarantine_ns});
  quarantine_changed(index);
}

void Ledger::quarantine_changed(ModelIndex index) {
  models_[index].quarantine_number = static_cast<std::uint8_t>(models_[index].quarantine_number % 255 + 1);
  act(Action::Kind::kQuarantine, index, 0);
}

std::vector<std::uint64_t> Ledger::quarantined(ModelIndex index) const {
  std::vector<std::uint64_t> hashes;
  for (const Quarantined& one : models_[index].quarantine) hashes.push_back(one.hash);
  return hashes;
}

void Ledger::tick_model(ModelIndex index, std::uint64_t now_ns) {
  ModelRecord& model = models_[index];
  // The oldest hash expires first, so most calls check only that one.
  const auto living = std::ranges::find_if(model.quarantine, [&](const Quarantined& one) { return one.expires_ns > now_ns; });
  if (living != model.quarantine.begin()) {
    model.quarantine.erase(model.quarantine.begin(), living);
    quarantine_changed(index);
  }
  if (model.breaker.probing() && model.breaker.until_ns() <= now_ns) model.breaker.give_up_probe(now_ns);
  probe_if_due(index, now_ns);
  if (model.wait_until_ns <= now_ns) dispatch(index, now_ns);
}

void Ledger::probe_if_due(ModelIndex index, std::uint64_t now_ns) {
  ModelRecord& model = models_[index];
  if (!model.breaker.probe_due(now_ns)) return;
  // Probe the workers in turns: the others may be able to answer even if this one is not.
  const auto last = std::ranges::find(model.workers, model.breaker.prober(), &Worker::incarnation);
  const auto after_last = last == model.workers.end() ? model.workers.begin() : last + 1;
  auto worker = std::find_if(after_last, model.workers.end(), [](const Worker& each) { return each.routable; });
  if (worker == model.workers.end()) worker = std::ranges::find(model.workers, true, &Worker::routable);
  if (worker == model.workers.end()) return;
  model.breaker.begin_probe(worker->incarnation, now_ns);
  act(Action::Kind::kProbe, index, worker->incarnation);
}

void Ledger::probed(Incarnation incarnation, bool answered, std::uint64_t now_ns) {
  ModelIndex index = 0;
  if (!find_worker(incarnation, &index)) return;
  Breaker& breaker = models_[index].breaker;
  if (breaker.prober() != incarnation) return;
  breaker.probe_ended(answered, now_ns);
  dispatch(index, now_ns);
}

}  // namespace shoal::supervisor
