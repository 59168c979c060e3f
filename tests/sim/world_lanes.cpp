// What lanes do.
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "shm/base/format.hpp"
#include "shm/base/ranges.hpp"
#include "tests/sim/world.hpp"

namespace shoal::test {

using namespace supervisor;

namespace {

bool is_frame(const wire::WireTensor& tensor) { return tensor.location == static_cast<std::uint8_t>(wire::Location::kFrame); }

// What an answer must repeat: the frame, or where the input is.
Bytes content_of(const wire::Request& request, const SimMessage& message) {
  if (request.inputs.empty()) return {};
  if (is_frame(request.inputs[0])) return message.size() > 1 ? message[1] : Bytes();
  const auto view = std::as_bytes(std::span(&request.inputs[0].offset_bytes, 1));
  return {view.begin(), view.end()};
}

Bytes encoded(const wire::ReplyHeader& header) {
  Bytes head;
  wire::encode_reply({.header = header, .outputs = {}}, head);
  return head;
}

}  // namespace

World::LaneAt World::some_lane(std::uint64_t draw, const std::function<bool(LaneAt)>& fits) {
  std::vector<LaneAt> fitting;
  for (auto& [incarnation, worker] : processes_.workers) {
    for (std::size_t lane = 0; worker.is_ready && lane < worker.lanes().size(); ++lane) {
      if (fits({&worker, lane})) fitting.push_back({&worker, lane});
    }
  }
  return fitting.empty() ? LaneAt() : fitting[draw % fitting.size()];
}

// ---- they receive ----

bool World::lane_takes(std::uint64_t draw) {
  const LaneAt lane = some_lane(draw, [&](LaneAt at) {
    return at.worker->can_act(at.lane) && !at.worker->is_deaf() && lane_transport_.is_connected(at.peer()) &&
           !lane_transport_.unread(at.peer()).empty();
  });
  if (!lane) return false;
  read_control(*lane.worker);
  const SimMessage message = *lane_transport_.take(lane.peer());
  const auto decoded = wire::decode_request(message.at(0));
  if (!decoded.ok()) {
    breaks("a lane got something that is no request");
    return true;
  }
  const wire::RequestHeader& header = decoded->header;
  words_ = format("lane {} takes request {}, attempt {}", lane.peer(), header.request_id, header.attempt);
  check_taken(lane, *decoded, message);
  if (header.batch_index == 0) ++lane->groups;
  Held held{.header = header, .content = content_of(*decoded, message), .group = lane->groups};
  if (Asked* asked = find_asked(header.client_id, header.seq)) {
    held.is_guilty = asked->is_guilty;
    if (asked->begun + 1 != header.attempt)
      breaks(format("request {} comes as attempt {} after {} that began", header.request_id, header.attempt, asked->begun));
  }
  lane->held.push_back(std::move(held));
  return true;
}

// A request that runs again must not run anywhere else: its earlier run must have ended with its worker. What it names is there.
void World::check_taken(LaneAt lane, const wire::Request& request, const SimMessage& message) {
  const wire::RequestHeader& header = request.header;
  if (header.attempt < 1 || header.attempt > 1 + Ledger::kMaxUnexplainedDeaths + Ledger::kMaxDeathsBesideOthers)
    breaks(format("request {} has attempt {}", header.request_id, header.attempt));
  if (header.incarnation != lane.worker->incarnation())
    breaks(format("lane {} got a request for worker {}", lane.peer(), header.incarnation));
  for (auto& [incarnation, worker] : processes_.workers) {
    for (const SimLane& other : worker.lanes()) {
      for (const Held& held : other.held) {
        if (held.header.request_id == header.request_id)
          breaks(format("request {} runs on lane {} while worker {} has it", header.request_id, lane.peer(), incarnation));
      }
    }
  }
  std::size_t frames = 1;
  bool needs_arenas = false;
  for (const wire::WireTensor& input : request.inputs) {
    needs_arenas |= !is_frame(input);
    if (input.size_bytes != TensorView{static_cast<DType>(input.dtype), wire::shape_of(input), nullptr}.size_bytes())
      breaks(format("an input of request {} has another size than its shape", header.request_id));
    if (is_frame(input) ? frames >= message.size() || message[frames++].size() != input.size_bytes
                        : !fits(input.offset_bytes, input.size_bytes, kArenaBytes))
      breaks(format("an input of request {} is not where it should be", header.request_id));
  }
  for (const wire::WireTensor& output : request.outputs) {
    needs_arenas |= output.capacity_bytes > 0;
    if (!fits(output.offset_bytes, output.capacity_bytes, kArenaBytes))
      breaks(format("an output of request {} is not where it should be", header.request_id));
  }
  if (frames != message.size()) breaks(format("request {} came with {} frames", header.request_id, message.size()));
  if (needs_arenas && !lane.worker->attached.contains(header.client_id))
    breaks(format("lane {} got request {} of client {}, whose arenas it does not have", lane.peer(), header.request_id,
                  header.client_id));
}

// ---- they run ----

bool World::lane_begins(std::uint64_t draw) {
  const LaneAt lane = some_lane(pick(draw, 64), [](LaneAt at) {
    return at.worker->can_act(at.lane) && !at->held.empty() && !at->has(Held::State::kRuns) && !at->has(Held::State::kRan);
  });
  return lane && begin(lane, draw);
}

// Quarantined inputs do not run. A request that runs alone is answered at once; of a batch, all are answered after the run.
bool World::begin(LaneAt lane, std::uint64_t draw) {
  read_control(*lane.worker);
  if (!lane.worker->begin(lane.lane, pick(draw, 2) == 0, pick(draw, 2) == 0)) return false;
  words_ += format("{}lane {} begins", words_.empty() ? "" : "; ", lane.peer());
  bool is_any_run = false;
  for (Held& held : lane->held) {
    if (held.state != Held::State::kRuns) continue;
    words_ += format(" {}", held.header.request_id);
    held.is_refused = lane.worker->knows_as_poison(held);
    is_any_run |= !held.is_refused;
    if (held.is_guilty) check_quarantine(lane, held);
  }
  if (!is_any_run) lane.worker->finish(lane.lane);
  return true;
}

// An input that was found guilty runs nowhere for a while.
void World::check_quarantine(LaneAt lane, const Held& held) {
  const Asked* asked = find_asked(held.header.client_id, held.header.seq);
  if (!asked || lane.worker->knows_as_poison(held) || lane.worker->was_deaf()) return;
  const ModelVersion* version = nullptr;
  const Serving* serving = serving_of(*processes_.all.at(lane.worker->unit), &version);
  const std::uint64_t hash = SimWorker::hash_of(held.content);
  if (!serving || !serving->quarantined.contains(hash)) return;
  const std::uint64_t until_ns = serving->quarantined.at(hash);
  const std::uint64_t since_ns = until_ns - version->served().config.quarantine_ms * kMs;
  if (asked->asked_ns > since_ns && clock_.now_ns() < until_ns)
    breaks(format("request {} runs, and its input is in quarantine", held.header.request_id));
}

bool World::lane_answers(std::uint64_t draw, StatusCode status) {
  const LaneAt lane = some_lane(pick(draw, 64), [](LaneAt at) {
    return at.worker->can_act(at.lane) && (at->pace != Pace::kSlow || at->has(Held::State::kRan)) && !at->held.empty() &&
           !at->runs_guilty();
  });
  if (!lane) return false;
  read_control(*lane.worker);
  // One that was cancelled, or that the lane refuses, need not run.
  const auto is_refused = [&](const Held& held) {
    return held.state != Held::State::kRuns && held.state != Held::State::kRan &&
           (status != StatusCode::kOk || lane.worker->is_cancelled(held.header.request_id));
  };
  auto chosen = std::ranges::find_if(lane->held, is_refused);
  std::uint16_t batch = 1;
  if (chosen != lane->held.end()) {
    status = status == StatusCode::kOk ? StatusCode::kCancelled : status;
  } else {
    if (!lane->has(Held::State::kRan) && !lane->has(Held::State::kRuns)) {
      begin(lane, draw / 8);
      if (lane->runs_guilty()) return true;
    }
    if (lane->has(Held::State::kRuns)) {
      batch = static_cast<std::uint16_t>(lane.worker->line(lane.lane).running_count.load());
      lane.worker->finish(lane.lane);
    }
    chosen = std::ranges::find(lane->held, Held::State::kRan, &Held::state);
    if (chosen == lane->held.end()) return true;
    if (chosen->is_refused) status = StatusCode::kPoison;
  }
  std::uint64_t compute_ns = 1'000 + pick(draw, 20) * kMs;
  if (rules_.is_even) {
    compute_ns = kMs;
    clock_.advance_ns(kMs);
  }
  answer(lane, Held(*chosen), status, compute_ns, batch);
  return true;
}

void World::say(LaneAt lane, const Held& held, StatusCode status, std::uint64_t compute_ns, std::uint16_t batch) {
  const wire::ReplyHeader header{.kind = static_cast<std::uint16_t>(wire::Kind::kReply),
                                 .seq = held.header.seq,
                                 .request_id = held.header.request_id,
                                 .incarnation = held.header.incarnation,
                                 .attempt = held.header.attempt,
                                 .status = static_cast<std::uint16_t>(status),
                                 .batch = batch,
                                 .retry_after_ms = ~std::uint32_t{0},  // no lane can know that
                                 .compute_ns = compute_ns};
  SimMessage message;
  message.push_back(encoded(header));
  message.emplace_back();
  message.push_back(held.content);
  lane->said = message;
  send(lane.peer(), std::move(message), true);
}

void World::answer(LaneAt lane, const Held& held, StatusCode status, std::uint64_t compute_ns, std::uint16_t batch) {
  words_ += format("{}lane {} answers request {}", words_.empty() ? "" : "; ", lane.peer(), held.header.request_id);
  if (Asked* asked = find_asked(held.header.client_id, held.header.seq)) asked->said = status;
  say(lane, held, status, compute_ns, batch);
  lane.worker->forget(lane.lane, held.header.request_id);
}

bool World::lane_parks(std::uint64_t draw) {
  const LaneAt lane = some_lane(draw, [](LaneAt at) { return at.worker->can_act(at.lane) && at->has(Held::State::kWaits); });
  const Held* parked = lane ? lane.worker->park(lane.lane) : nullptr;
  if (!parked) return false;
  words_ = format("lane {} parks request {}", lane.peer(), parked->header.request_id);
  lane->said = {encoded({.kind = static_cast<std::uint16_t>(wire::Kind::kParked),
                         .request_id = parked->header.request_id,
                         .incarnation = parked->header.incarnation,
                         .attempt = parked->header.attempt})};
  send(lane.peer(), lane->said, true);
  return true;
}

// ---- they lie ----

// It says again what it said; or it answers what it was not asked, or what another one was asked, or an earlier request that had
// the slot of the one it has; or it sends what is no message.
bool World::lane_lies(std::uint64_t draw) {
  const LaneAt lane = some_lane(pick(draw, 64), [](LaneAt) { return true; });
  if (!lane) return false;
  if (lane.worker->is_cut_off) {  // what is right counts no more, either
    const auto held = std::ranges::find_if(lane->held, [](const Held& one) { return !one.is_guilty; });
    if (held == lane->held.end()) return false;
    words_ = format("lane {} answers request {}, too late", lane.peer(), held->header.request_id);
    say(lane, *held, StatusCode::kOk, kMs, 1);
    return true;
  }
  if (pick(draw, 4) == 0) {
    if (lane->said.empty()) return false;
    words_ = format("lane {} says it again", lane.peer());
    send(lane.peer(), lane->said, true);
    return true;
  }
  wire::ReplyHeader header{.kind = static_cast<std::uint16_t>(pick(draw, 2) == 0 ? wire::Kind::kReply : wire::Kind::kParked),
                           .seq = pick(draw, 8),
                           .request_id = (1 + pick(draw, 4)) << 32 | pick(draw, 16),
                           .incarnation = pick(draw, 4) == 0 ? pick(draw, 8) : lane.worker->incarnation(),
                           .attempt = static_cast<std::uint16_t>(1 + pick(draw, 2)),
                           .batch = static_cast<std::uint16_t>(pick(draw, 3)),
                           .compute_ns = pick(draw, 2) == 0 ? ~std::uint64_t{0} : 0};
  if (!lane->held.empty() && pick(draw, 2) == 0) {
    header.request_id = lane->held.front().header.request_id - (std::uint64_t{1} << 32);
    header.attempt = lane->held.front().header.attempt;
  }
  // What it says of its own requests is believed, also of those that it has not read yet and of those that it gets in this turn.
  const auto is_own = [this, lane, request = header.request_id, worker = lane.worker->incarnation()] {
    return processes_.find(worker) && std::ranges::count(leased_by(*lane.worker, lane.lane), request, &Leased::request) > 0;
  };
  if (is_own()) return false;
  Bytes head = encoded(header);
  if (const std::uint64_t how = pick(draw, 32); how < 4) {
    head.resize(pick(draw, head.size()));
  } else if (how == 4) {
    for (std::byte& byte : head) byte = static_cast<std::byte>(draw = stirred(draw + 1));
  } else if (how == 5) {
    head[pick(draw, 8)] ^= std::byte{0x10};  // magic, version or kind
  }
  words_ = format("lane {}, of request {}", lane.peer(), header.request_id);
  SimMessage message;
  message.push_back(std::move(head));
  lane_transport_.arrive(lane.peer(), std::move(message), is_own);
  return true;
}

// ---- what hinders them ----

bool World::lane_is_full(std::uint64_t draw) {
  const LaneAt lane = some_lane(pick(draw, 64), [](LaneAt) { return true; });
  if (!lane) return false;
  const bool is_full = pick(draw, 2) == 0;
  words_ = format("lane {}: {}", lane.peer(), is_full ? "full" : "not full");
  lane_transport_.set_full(lane.peer(), is_full);
  return true;
}

bool World::pace_changes(std::uint64_t draw) {
  const LaneAt lane = some_lane(pick(draw, 64), [](LaneAt) { return true; });
  if (!lane) return false;
  const std::uint64_t how = pick(draw, 5);
  if (how == 4) {
    lane.worker->is_stopped = !lane.worker->is_stopped;
    words_ = format("worker {}: {}", lane.worker->incarnation(), lane.worker->is_stopped ? "stopped" : "continued");
    return true;
  }
  constexpr std::string_view kWords[] = {"fine", "starved", "hung", "slow"};
  lane->pace = lane->pace == Pace::kFine ? static_cast<Pace>(how) : Pace::kFine;
  words_ = format("lane {}: {}", lane.peer(), kWords[static_cast<std::size_t>(lane->pace)]);
  lane->since_ns = clock_.now_ns();
  return true;
}

bool World::control_is_full(std::uint64_t draw) {
  const LaneAt lane = some_lane(pick(draw, 64), [](LaneAt) { return true; });
  if (!lane) return false;
  const WorkerProcess* worker = processes_.all.at(lane.worker->unit)->find_worker(lane.worker->incarnation());
  if (!worker || !worker->control) return false;
  const bool is_deaf = lane.worker->is_deaf();
  words_ = format("worker {} {}", worker->incarnation, is_deaf ? "hears again" : "hears nothing");
  is_deaf ? lane.worker->hear_again(worker->control.get()) : lane.worker->become_deaf(worker->control.get());
  return true;
}

std::optional<std::vector<ThreadTimes>> World::read_threads(pid_t process) {
  if (process == ::getpid()) return std::vector<ThreadTimes>{{.thread = process, .state = 'S', .is_message_io = true}};
  SimWorker* worker = processes_.find(SimWorker::incarnation_of(process));
  if (!worker) return std::vector<ThreadTimes>();
  std::vector<char> busy;
  for (std::size_t i = 0; i < worker->lanes().size(); ++i) {
    const LaneAt lane{worker, i};
    busy.push_back(!lane->held.empty() ||
                   (lane_transport_.is_connected(lane.peer()) && !lane_transport_.unread(lane.peer()).empty()));
  }
  const WorkerProcess* known = processes_.all.at(worker->unit)->find_worker(worker->incarnation());
  return worker->threads(clock_.now_ns(), busy, known && known->probes > 0);
}

}  // namespace shoal::test
