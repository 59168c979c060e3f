// What a worker's death does to the requests it held: blame on evidence only, everything else runs again.
#include <algorithm>

#include "shm/base/errors.hpp"
#include "supervisor/route/ledger.hpp"

namespace shoal::supervisor {

// What the lines of a dead worker say of the requests leased to it.
struct Ledger::Verdicts {
  std::vector<std::uint32_t> begun;     // slots that were running
  std::vector<std::uint32_t> guilty;    // blamed by their own lane's record, or alone when another thread faulted
  std::vector<std::uint32_t> suspects;  // ran when a thread that is no lane faulted
  std::string what;                     // of the crash
};

namespace {
bool contains(const std::vector<std::uint32_t>& slots, std::uint32_t slot) {
  return std::ranges::find(slots, slot) != slots.end();
}
}  // namespace

void Ledger::judge(const Worker& worker, std::span<const LaneEvidence> evidence, Verdicts& verdicts) {
  bool other_thread_faulted = false;
  const std::size_t lanes = std::min(worker.lanes.size(), evidence.size());
  for (std::uint32_t lane = 0; lane < lanes; ++lane) {
    const LaneEvidence& line = evidence[lane];
    const LaneRef here{worker.incarnation, lane};
    const bool own_fault = line.crashed && line.on_lane && !line.sent_by_process && is_leased(line.crash_request, here);
    if (line.crashed && !line.on_lane && !line.sent_by_process) other_thread_faulted = true;
    if (line.crashed && !line.sent_by_process && verdicts.what.empty()) verdicts.what = line.what;
    if (own_fault) verdicts.guilty.push_back(slot_of(line.crash_request));
    const bool named =
        is_leased(line.running_request, here) && entries_[slot_of(line.running_request)].attempt == line.running_attempt;
    if (named) verdicts.begun.push_back(slot_of(line.running_request));
    // A lane that faulted before it named its request has begun it all the same.
    if (own_fault && !contains(verdicts.begun, slot_of(line.crash_request)))
      verdicts.begun.push_back(slot_of(line.crash_request));
  }
  if (!other_thread_faulted) return;
  (verdicts.begun.size() == 1 ? verdicts.guilty : verdicts.suspects) = verdicts.begun;
}

std::vector<DeathOutcome> Ledger::worker_died(Incarnation incarnation, std::span<const LaneEvidence> evidence,
                                              std::uint64_t now_ns) {
  ModelIndex index = 0;
  Worker* worker = find_worker(incarnation, &index);
  if (!worker) return {};
  Model& model = models_[index];
  ++model.counts.worker_deaths;
  Verdicts verdicts;
  judge(*worker, evidence, verdicts);

  std::vector<std::uint32_t> held;
  for (const Lane& lane : worker->lanes) {
    held.insert(held.end(), lane.held.begin(), lane.held.begin() + lane.count);
    held.insert(held.end(), lane.parked.begin(), lane.parked.end());
  }
  model.workers.erase(model.workers.begin() + (worker - model.workers.data()));
  model.running -= static_cast<std::uint32_t>(held.size());
  if (model.ward == incarnation) model.ward = 0;
  for (const std::uint32_t slot : verdicts.begun) {
    if (entries_[slot].answered) continue;
    entries_[slot].counts_death = true;  // one request stands for this death
    break;
  }
  // The youngest first: each goes before the others, so that the oldest ends up in front.
  std::ranges::sort(held, [&](std::uint32_t a, std::uint32_t b) { return entries_[a].arrival > entries_[b].arrival; });
  std::vector<DeathOutcome> outcomes;
  for (const std::uint32_t slot : held) {
    const Entry& entry = entries_[slot];
    DeathOutcome outcome{
        .request = id_of(slot), .client = entry.client, .seq = entry.seq, .was_running = contains(verdicts.begun, slot)};
    outcome.fate = after_death(slot, verdicts, now_ns);
    outcome.begun = entry.begun;  // of a forgotten one, too: its slot has no new owner before this returns
    outcome.blamed = entry.blamed;
    outcomes.push_back(outcome);
  }
  std::ranges::reverse(outcomes);
  dispatch(index, now_ns);
  return outcomes;
}

DeathOutcome::Fate Ledger::after_death(std::uint32_t slot, const Verdicts& verdicts, std::uint64_t now_ns) {
  Entry& entry = entries_[slot];
  entry.parked = false;
  const Model& model = models_[entry.model];
  if (contains(verdicts.begun, slot)) ++entry.begun;
  if (contains(verdicts.guilty, slot)) ++entry.blamed;
  if (contains(verdicts.suspects, slot)) entry.suspect = true;
  if (entry.answered) {
    run_ended_answered(slot);
    return DeathOutcome::Fate::kWasAnswered;
  }
  const auto answer = [&](DeathOutcome::Fate fate, StatusCode status, std::string message) {
    reply(slot, status, std::move(message), true, now_ns);
    actions_.back().ran = entry.begun > 0 ? Ran::kYes : Ran::kMaybe;
    forget(slot);
    return fate;
  };
  if (entry.blamed >= kBlamesForPoison) {
    return answer(DeathOutcome::Fate::kAnsweredPoison, StatusCode::kPoison,
                  format("model '{}': the request crashed its worker {} times, last by {}; do not send it again", model.name,
                         entry.blamed, verdicts.what));
  }
  if (entry.begun >= kMaxBegunAttempts) {
    return answer(DeathOutcome::Fate::kAnsweredAborted, StatusCode::kAborted,
                  format("model '{}': {} workers died running the request, none left a reason", model.name, entry.begun));
  }
  if (!model.failure.empty()) {
    return answer(DeathOutcome::Fate::kAnsweredUnavailable, StatusCode::kUnavailable,
                  format("model '{}' is not available: {}", model.name, model.failure));
  }
  enqueue(slot, true);
  return entry.suspect ? DeathOutcome::Fate::kRunsAlone : DeathOutcome::Fate::kRunsAgain;
}

}  // namespace shoal::supervisor
