// How workers die, and who is to blame. What the ledger must conclude is worked out here a second time, from what really happened
// and from what supervisor/route/README.md says.
#include <signal.h>
#include <unistd.h>

#include <algorithm>

#include "shm/base/format.hpp"
#include "tests/sim/world.hpp"

namespace shoal::test {

using namespace supervisor;

// All requests that the ledger has leased to a lane: those that it has taken, those that it has not read,
// those that did not reach it, and in a turn those that will be sent at its end.
std::vector<World::Leased> World::leased_by(SimWorker& worker, std::size_t lane) {
  std::vector<Leased> leased;
  for (const Held& held : worker.lanes()[lane].held)
    leased.push_back({held.header.request_id, held.header.client_id, held.header.seq, held.group, held.state});
  const wire::PeerId peer = LaneAt{&worker, lane}.peer();
  if (!lane_transport_.is_connected(peer)) return leased;
  std::uint64_t group = worker.lanes()[lane].groups;
  for (const auto* messages : {&lane_transport_.unread(peer), &lane_transport_.lost(peer), &lane_transport_.pushed(peer)}) {
    for (const SimMessage& message : *messages) {
      const wire::RequestHeader header = wire::decode_request(message.at(0)).value().header;
      group += header.batch_index == 0;
      leased.push_back({header.request_id, header.client_id, header.seq, group, Held::State::kWaits});
    }
  }
  return leased;
}

// ---- what happens ----

// One that was told to end does so.
bool World::worker_ends(SimProcesses& model, std::uint64_t incarnation) {
  const WorkerProcess* worker = model.find_watched(incarnation);
  SimWorker* its_side = processes_.find(incarnation);
  if (!worker || !its_side || !SimProcesses::is_told_to_end(*worker)) return false;
  if (worker->ended == EndReason::kNone && its_side->is_stopped) return false;
  const pid_t aborted = model.aborted_thread(incarnation);
  if (aborted < 0) return dies(model, incarnation, worker->ended == EndReason::kNone ? Death::kExited : Death::kKilled, {}, 0);
  // SIGABRT makes that thread leave a record. It does so unless it cannot run any more.
  Crash crash{.lane = 0, .by_watchdog = true};
  for (std::size_t i = 0; i < its_side->lanes().size(); ++i) {
    if (aborted == its_side->lane_thread(i)) crash.lane = i;
    if (aborted == its_side->compiler_thread() && its_side->line(i).compiling_request != 0) crash.lane = i, crash.compiles = true;
  }
  const bool leaves_record = !its_side->is_stopped && (aborted != its_side->compiler_thread() || crash.compiles);
  return (leaves_record && dies(model, incarnation, Death::kCrashed, crash, 1)) ||
         dies(model, incarnation, Death::kKilled, {}, 1);
}

// SIGKILL from outside. Half of them hit the request that has been hit most.
bool World::worker_killed(std::uint64_t draw) {
  const bool aims = pick(draw, 2) == 0;
  std::uint16_t most = 0;
  for (auto& [incarnation, worker] : processes_.workers) {
    for (const SimLane& lane : worker.lanes()) {
      for (const Held& held : lane.held) {
        if (held.state == Held::State::kRuns) most = std::max(most, held.header.attempt);
      }
    }
  }
  return for_some_worker(draw, [&](SimProcesses& model, std::uint64_t id) {
    SimWorker& worker = processes_.workers.at(id);
    const auto is_aim = [&](const Held& held) { return held.state == Held::State::kRuns && held.header.attempt == most; };
    if (aims && most > 0 &&
        std::ranges::none_of(worker.lanes(), [&](const SimLane& lane) { return std::ranges::any_of(lane.held, is_aim); }))
      return false;
    return dies(model, id, Death::kKilled, {}, draw);
  });
}

// A guilty request crashes the worker that runs it, or compiles for it.
bool World::worker_crashes(std::uint64_t draw) {
  Crash crash{.out_of_memory = pick(draw, 8) == 0};
  const bool on_lane = pick(draw, 4) != 0;
  const LaneAt lane = some_lane(pick(draw, 64), [](LaneAt at) {
    const std::uint64_t compiled = at.worker->line(at.lane).compiling_request;
    return at->runs_guilty() ||
           std::ranges::any_of(at->held, [&](const Held& held) { return held.is_guilty && held.header.request_id == compiled; });
  });
  if (!lane) return false;
  crash.compiles = !lane->runs_guilty();
  if (on_lane || crash.compiles) crash.lane = lane.lane;
  return dies(*processes_.all.at(lane.worker->unit), lane.worker->incarnation(), Death::kCrashed, crash, draw);
}

// A crash with evidence that no input has caused.
bool World::accident(std::uint64_t draw) {
  return for_some_worker(draw, [&](SimProcesses& model, std::uint64_t id) {
    SimWorker& worker = processes_.workers.at(id);
    std::uint64_t rest = draw / 256;
    Crash crash;
    if (pick(rest, 3) != 0) crash.lane = pick(rest, worker.lanes().size());
    if (crash.lane && pick(rest, 3) == 0) crash.compiles = true;
    return worker.is_ready && dies(model, id, Death::kCrashed, crash, rest);
  });
}

bool World::worker_vanishes(std::uint64_t draw) {
  return for_some_worker(draw, [&](SimProcesses& model, std::uint64_t id) {
    std::uint64_t rest = draw / 256;
    constexpr Death kHow[] = {Death::kExited, Death::kTorn, Death::kSignalled, Death::kScribbled};
    const Death how = kHow[pick(rest, 4)];
    Crash crash;
    if (pick(rest, 2) == 0) crash.lane = 0;
    return dies(model, id, how, crash, rest);
  });
}

bool World::dies(SimProcesses& model, std::uint64_t incarnation, Death death, Crash crash, std::uint64_t draw) {
  const WorkerProcess* known = model.find_watched(incarnation);
  SimWorker* worker = processes_.find(incarnation);
  if (!known || !worker || known->state == WorkerProcess::State::kForking) return false;
  std::vector<Leased> begun, accused;
  bool had_begun_nothing = false;
  for (std::size_t lane = 0; lane < worker->lanes().size(); ++lane)
    had_begun_nothing |= note_lane(*worker, lane, death, crash, begun, accused);
  if (would_blame_again(accused)) return false;
  constexpr std::string_view kHow[] = {"killed", "exits", "leaves a torn record", "is signalled", "scribbles", "crashes"};
  words_ = format("worker {} of {} {}{}", incarnation, model.options().name, kHow[static_cast<std::size_t>(death)],
                  accused.empty() ? "" : ", which accuses");
  for (const Leased& one : accused) words_ += format(" {}", one.request);
  write_record(*worker, death, crash, draw);
  if (pick(draw, 4) == 0) say_last_words(*worker);
  blame(*worker, begun, accused, crash);
  const bool is_evidence =
      (death == Death::kCrashed && !had_begun_nothing) || (death == Death::kScribbled && worker->line(0).crash.valid == 1);
  if (Serving* serving = serving_of(model); serving && is_evidence && accused.empty())
    serving->crashes_ns.push_back(clock_.now_ns());
  const int status = death == Death::kExited ? 0 : death == Death::kKilled ? SIGKILL : SIGABRT;
  return model.dies(incarnation, status, pick(draw, 4) == 0);
}

// What the death of its worker means for the requests of one lane.
// Returns whether the watchdog ended the lane before it had begun anything.
bool World::note_lane(SimWorker& worker, std::size_t lane, Death death, const Crash& crash, std::vector<Leased>& begun,
                      std::vector<Leased>& accused) {
  if (death == Death::kScribbled) return false;  // what the page says means nothing
  const std::vector<Leased> leased = leased_by(worker, lane);
  const bool is_lane = death == Death::kCrashed && crash.lane == lane;
  const auto add_group = [&](std::vector<Leased>& to, std::uint64_t group) {
    for (const Leased& one : leased) {
      if (one.group == group && std::ranges::count(to, one.request, &Leased::request) == 0) to.push_back(one);
    }
  };
  bool runs = false;
  for (const Leased& one : leased) {
    if (one.state != Held::State::kRuns) continue;
    runs = true;
    begun.push_back(one);
    if (death == Death::kCrashed && (!crash.lane || (is_lane && !crash.compiles))) accused.push_back(one);
  }
  const std::uint64_t compiled = worker.line(lane).compiling_request;
  const auto compiles_for = std::ranges::find(leased, compiled, &Leased::request);
  if (compiled != 0 && compiles_for != leased.end()) {
    add_group(begun, compiles_for->group);
    if (is_lane && crash.compiles) add_group(accused, compiles_for->group);
  }
  if (!is_lane || crash.compiles || runs) return false;
  // It crashed while it received, or while it answered: what it was sent first is to blame.
  const auto first =
      std::ranges::find_if(leased, [&](const Leased& one) { return !worker.lanes()[lane].parked_groups.contains(one.group); });
  if (first == leased.end()) return false;
  if (!crash.by_watchdog) add_group(accused, first->group);  // perhaps the message never came
  add_group(begun, first->group);
  return crash.by_watchdog;
}

// The same innocent request must not be hit by two accidents: nobody could know that it is innocent.
bool World::would_blame_again(const std::vector<Leased>& accused) {
  return std::ranges::any_of(accused, [&](const Leased& one) {
    const Asked* asked = find_asked(one.client, one.seq);
    return asked && !asked->is_guilty && (asked->accused > 0 || asked->beside >= Ledger::kMaxDeathsBesideOthers);
  });
}

void World::write_record(SimWorker& worker, Death death, const Crash& crash, std::uint64_t draw) {
  if (death == Death::kKilled || death == Death::kExited) return;
  const std::size_t at = crash.lane.value_or(0);
  wire::LaneLine& line = worker.line(at);
  wire::CrashRecord& record = line.crash;
  if (death == Death::kScribbled) {
    for (std::size_t i = 0; i < worker.lanes().size(); ++i) {
      wire::LaneLine& each = worker.line(i);
      each.running_request = stirred(draw + i), each.running_attempt = stirred(draw + i + 1), each.running_count = stirred(draw);
      each.compiling_request = stirred(draw + i + 2), each.crash.request_id = stirred(draw + i + 3);
    }
    record.on_lane = static_cast<std::uint32_t>(draw % 3);
    record.valid = draw % 2;
    return;
  }
  record.request_id = crash.compiles ? (line.compiling_request != 0 ? line.compiling_request.load() : wire::kBlamesNoRequest)
                      : crash.lane   ? line.running_request.load()
                                     : 0;
  record.signal = crash.by_watchdog ? SIGABRT : SIGSEGV;
  record.code = crash.by_watchdog || death == Death::kSignalled ? -6 : 1;
  record.sender_pid = crash.by_watchdog            ? ::getpid()
                      : death == Death::kSignalled ? (draw % 2 == 0 ? 1 : wire::kUnknownSender)
                                                   : 0;
  record.on_lane = crash.lane ? 1 : 0;
  record.cause = static_cast<std::uint32_t>(crash.out_of_memory ? wire::CrashCause::kOutOfMemory : wire::CrashCause::kSignal);
  record.valid = death == Death::kTorn ? 0 : 1;
}

// An answer that is on its way when the worker dies comes after its death is known.
void World::say_last_words(SimWorker& worker) {
  for (std::size_t lane = 0; lane < worker.lanes().size(); ++lane) {
    for (const Held& held : worker.lanes()[lane].held) {
      if (held.state == Held::State::kRuns && !held.is_guilty) return say(LaneAt{&worker, lane}, held, StatusCode::kOk, kMs, 1);
    }
  }
}

void World::blame(SimWorker& worker, const std::vector<Leased>& begun, const std::vector<Leased>& accused, const Crash& crash) {
  for (const Leased& one : begun) {
    Asked* asked = find_asked(one.client, one.seq);
    if (!asked) continue;
    ++asked->begun;
    const bool is_accused = std::ranges::count(accused, one.request, &Leased::request) > 0;
    const bool ran_alone = is_accused && (asked->accused > 0 || asked->beside >= Ledger::kMaxDeathsBesideOthers);
    asked->accused += is_accused;
    asked->beside += !is_accused && !accused.empty();
    asked->unexplained += accused.empty();
    const bool was_hashed = asked->is_hashed;
    asked->is_hashed |= is_accused && !crash.out_of_memory;
    if (ran_alone && was_hashed && !crash.out_of_memory && one.state == Held::State::kRuns) {
      const ModelVersion* version = nullptr;
      if (Serving* serving = serving_of(*processes_.all.at(worker.unit), &version))
        serving->quarantined[SimWorker::hash_of(asked->content)] = clock_.now_ns() + version->served().config.quarantine_ms * kMs;
    }
    if (asked->is_answered) continue;
    if (ran_alone)
      asked->due = crash.out_of_memory ? StatusCode::kAborted : StatusCode::kPoison;
    else if (asked->unexplained >= Ledger::kMaxUnexplainedDeaths)
      asked->due = StatusCode::kAborted;
    if (asked->due) due_.emplace_back(one.client, one.seq);
  }
}

// What a death has decided is answered at once.
void World::check_blame() {
  for (const auto& [client, seq] : std::exchange(due_, {})) {
    const Asked* asked = find_asked(client, seq);
    if (asked && asked->due)
      breaks(format("request {} of client {} is not answered {} after {} deaths, {} of them with evidence against it", seq,
                    client, status_code_name(*asked->due), asked->begun, asked->accused));
  }
}

}  // namespace shoal::test
