// Handles what lanes answer, how workers come and go, and the actions of the ledger.
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <iomanip>
#include <sstream>

#include "shm/base/clock.hpp"
#include "shm/base/errors.hpp"
#include "supervisor/plane/data_plane.hpp"

namespace shoal::supervisor {
namespace {

constexpr int kLaneMessagesPerTurn = 256;  // before the other sockets have their turn
// An honest lane sends none: a lease ends with its reply, with the worker's death, or if its request was not sent.
constexpr std::uint32_t kMostUnmatchedReplies = 64;
constexpr int kCancelsPerSecond = 10'000;  // for one worker

LaneEvidence read_evidence(const WorkerProcess& worker, const wire::LaneLine& line) {
  LaneEvidence evidence;
  evidence.running_request = line.running_request.load(std::memory_order_relaxed);
  evidence.running_attempt = line.running_attempt.load(std::memory_order_relaxed);
  evidence.running_count = line.running_count.load(std::memory_order_relaxed);
  evidence.running_hash = line.running_hash.load(std::memory_order_relaxed);
  evidence.compiling_request = line.compiling_request.load(std::memory_order_relaxed);
  const auto crash = read_crash(line.crash);
  if (!crash) return evidence;
  // A signal of the watchdog is evidence against what ran; a signal of any other process is not.
  const bool is_ours = crash->sender_pid == ::getpid() && worker.was_aborted;
  evidence.crashed = true;
  evidence.out_of_memory = crash->cause == wire::CrashCause::kOutOfMemory;
  evidence.on_lane = line.crash.on_lane.load(std::memory_order_relaxed) == 1;
  evidence.sent_by_process = crash->sender_pid != 0 && !is_ours;
  evidence.by_watchdog = is_ours;
  evidence.crash_request = line.crash.request_id.load(std::memory_order_relaxed);
  evidence.what = Death{.ended = worker.ended, .ended_because = worker.ended_because, .crash = crash}.what();
  return evidence;
}

}  // namespace

void DataPlane::receive_from_lanes() {
  for (int i = 0; i < kLaneMessagesPerTurn; ++i) {
    wire::PeerId peer = 0;
    const auto received = lane_transport_.receive(peer, incoming_);
    if (!received.ok() || !*received) return;
    ++traffic_.lane_messages;
    traffic_.lane_bytes += incoming_.size_bytes();
    handle_lane_message(peer, incoming_);
  }
}

void DataPlane::handle_lane_message(wire::PeerId peer, wire::Parcel& parcel) {
  const LaneRef lane = lane_of(peer);
  const Status decoded = wire::decode_reply(parcel.head, reply_);
  const auto routed = workers_.find(lane.incarnation);
  if (routed == workers_.end() || routed->second.has_lost) return;  // its requests run elsewhere
  RoutedLane& sender = routed->second.lanes[lane.lane];
  sender.last_message_ns = now_ns_;
  if (sender.socket_fd < 0) sender.socket_fd = lane_transport_.source_fd();
  const bool is_parked = decoded.ok() && reply_.header.kind == static_cast<std::uint16_t>(wire::Kind::kParked);
  Status valid = decoded;
  if (valid.ok() && !is_parked && reply_.header.kind != static_cast<std::uint16_t>(wire::Kind::kReply))
    valid = invalid_argument("a message of kind {}", reply_.header.kind);
  if (valid.ok() && reply_.header.status > static_cast<std::uint16_t>(StatusCode::kInternal))
    valid = invalid_argument("a status of number {}", reply_.header.status);
  if (!valid.ok()) {
    ++traffic_.bad_messages;
    return routed->second.version->processes.kill_worker(lane.incarnation,
                                                         format("lane {} sent no reply: {}", lane.lane, valid.message()));
  }
  const wire::ReplyHeader& header = reply_.header;
  if (is_parked) {
    const bool matches =
        header.incarnation == lane.incarnation && ledger_.lane_parked(lane, header.request_id, header.attempt, now_ns_);
    perform();
    if (!matches) count_unmatched(lane.incarnation);
    return;
  }
  reply_in_hand_ = &parcel;
  const LaneReply reply{.lane = lane,
                        .request = header.request_id,
                        .attempt = header.attempt,
                        .status = static_cast<StatusCode>(header.status),
                        .compute_ns = header.compute_ns,
                        .batch = header.batch};
  const bool matches = header.incarnation == lane.incarnation && ledger_.lane_replied(reply, now_ns_);
  perform();
  reply_in_hand_ = nullptr;
  if (!matches) count_unmatched(lane.incarnation);
}

// Otherwise such messages could keep the loop busy.
void DataPlane::count_unmatched(std::uint64_t incarnation) {
  const auto routed = workers_.find(incarnation);
  if (routed == workers_.end() || ++routed->second.unmatched <= kMostUnmatchedReplies) return;
  routed->second.version->processes.kill_worker(
      incarnation, format("more than {} replies of its lanes belong to no request that they hold", kMostUnmatchedReplies));
}

void DataPlane::worker_ready(RoutedVersion& version, const WorkerProcess& worker) {
  for (std::uint32_t lane = 0; lane < worker.lane_paths.size(); ++lane) {
    const Status connected = lane_transport_.connect(worker.lane_paths[lane], peer_of({worker.incarnation, lane}), true);
    if (!connected.ok()) return version.processes.kill_worker(worker.incarnation, connected.message());
  }
  workers_[worker.incarnation] = {
      .version = &version, .lanes = std::vector<RoutedLane>(worker.lane_paths.size(), {.last_message_ns = clock_.now_ns()})};
  ledger_.worker_ready(version.index, worker.incarnation, static_cast<std::uint32_t>(worker.lane_paths.size()), clock_.now_ns());
  perform();
}

void DataPlane::worker_leaving(const WorkerProcess& worker) {
  ledger_.dismiss(worker.incarnation);
  const auto routed = workers_.find(worker.incarnation);
  if (routed == workers_.end()) return;  // it could not be connected, and is being killed
  RoutedWorker& leaving = routed->second;
  // At the limit it is killed, and its requests run on other workers.
  leaving.leave = std::make_unique<Timer>(timers_, Timer::Kind::kPatience, [&, id = worker.incarnation](std::uint64_t now_ns) {
    leaving.version->processes.kill_worker(id, "it did not leave in time");
    leaving.leave->set(now_ns + kExitLimitNs);
  });
  leaving.leave->set(clock_.now_ns() + kSurplusLimitNs);
  leaving_.push_back(worker.incarnation);
}

// Tells surplus workers to end that hold no request any more.
void DataPlane::let_go_who_are_done() {
  std::erase_if(leaving_, [&](Incarnation incarnation) {
    if (ledger_.held_by(incarnation) > 0) return false;
    const RoutedWorker& leaving = workers_.at(incarnation);
    leaving.version->processes.let_go(incarnation);
    leaving.leave->set(now_ns_ + kExitLimitNs);
    return true;
  });
}

void DataPlane::worker_probed(const WorkerProcess& worker, bool is_answered) {
  ledger_.probed(worker.incarnation, is_answered, clock_.now_ns());  // for the breaker, if it asked for this probe
  perform();
}

void DataPlane::worker_died(RoutedVersion& version, WorkerProcess& worker, std::string& what) {
  const int lanes = version.processes.options().lanes;
  for (int lane = 0; lane < lanes; ++lane) {  // even a worker that never became ready may have bound
    const std::string path = lane_path(worker.sockets, lane);
    if (lane_transport_.disconnect(path, peer_of({worker.incarnation, static_cast<std::uint32_t>(lane)})))
      cut_off_bytes_ += wire::Transport::kCutOffBytes;
    ::unlink(path.c_str());
  }
  std::erase(leaving_, worker.incarnation);
  const std::uint64_t answered = ledger_.answered_by(worker.incarnation);
  std::vector<DeathOutcome> outcomes;
  what = worker.ended_because.empty() ? "without a crash record" : worker.ended_because;
  if (workers_.erase(worker.incarnation) != 0) {
    std::erase(unroutable_, worker.incarnation);
    std::vector<LaneEvidence> evidence;
    for (const wire::LaneLine& line : worker.page(worker.lane_paths.size()).lanes) {
      evidence.push_back(read_evidence(worker, line));
      if (evidence.back().crashed) what = evidence.back().what;
    }
    outcomes = ledger_.worker_died(worker.incarnation, evidence, clock_.now_ns());
    version.unrouted_ns.add(clock_.now_ns() - now_ns_);
    for (const DeathOutcome& outcome : outcomes) {
      if (outcome.fate <= DeathOutcome::Fate::kRunsAlone) died_ns_[slot_of(outcome.request)] = now_ns_;
    }
  }
  const bool was_let_go = worker.state == WorkerProcess::State::kLeaving && !worker.control;
  if (version.processes.state() != ModelState::kDraining && !was_let_go)
    report_death(version, worker, answered, std::move(outcomes));
  perform();
  if (worker.status_page) {
    flights_.keep({.model = version.served.name,
                   .version = version.number(),
                   .pid = worker.pid,
                   .incarnation = worker.incarnation,
                   .lanes = static_cast<std::size_t>(lanes),
                   .died_ns = now_ns_,
                   .page = *std::move(worker.status_page)});
    worker.status_page.reset();
  }
}

void DataPlane::report_death(const RoutedVersion& version, const WorkerProcess& worker, std::uint64_t answered,
                             std::vector<DeathOutcome> requests) {
  Death death{
      .unix_ms = static_cast<std::uint64_t>(
          std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::system_clock::now().time_since_epoch()).count()),
      .model = version.served.name,
      .version = version.number(),
      .pid = worker.pid,
      .incarnation = worker.incarnation,
      .answered = answered,
      .lived_ns = now_ns_ - std::min(now_ns_, worker.forked_ns),
      .noticed_ns = now_ns_,
      .unrouted_ns = clock_.now_ns(),
      .ended = worker.ended,
      .ended_because = worker.ended_because,
      .wait_status = worker.wait_status,
      .requests = std::move(requests)};
  for (const wire::LaneLine& line : worker.page(static_cast<std::size_t>(version.processes.options().lanes)).lanes) {
    if (!death.crash) death.crash = read_crash(line.crash);
  }
  deaths_.add(std::move(death), now_ns_);
}

// ---- the ledger's actions ----

void DataPlane::perform() {
  // An action may cause others. Each batch of actions is done in order, and both buffers are reused.
  while (!ledger_.actions().empty()) {
    std::vector<Action> batch = std::exchange(actions_, {});
    batch.clear();
    std::swap(batch, ledger_.actions());
    for (std::size_t i = 0; i < batch.size(); ++i) {
      if (batch[i].kind != Action::Kind::kSend) {
        perform(batch[i]);
        continue;
      }
      send_group(std::span(batch).subspan(i, batch[i].batch_size));
      i += batch[i].batch_size - 1u;
    }
    if (actions_.capacity() < batch.capacity()) actions_ = std::move(batch);
  }
}

void DataPlane::perform(const Action& action) {
  switch (action.kind) {
    case Action::Kind::kSend:
      return send_group(std::span(&action, 1));
    case Action::Kind::kQuarantine:
      return send_quarantine(action);
    case Action::Kind::kProbe:
      return send_probe(action);
    case Action::Kind::kForward:
      return forward_reply(action);
    case Action::Kind::kReply:
      return send_reply(action);
    case Action::Kind::kRelease:
      return send_release(action);
    case Action::Kind::kCancelRun:
      return cancel_run(action);
    case Action::Kind::kForget:
      return forget_request(action);
  }
}

void DataPlane::forget_request(const Action& action) {
  wire::Parcel& request = requests_[slot_of(action.request)];
  const std::uint64_t bytes = request.memory_bytes();
  if (Client* client = clients_->find_with_gone(action.client)) {
    client->allowance.remove(bytes);
    memory_.remove_request(*client->process, bytes);
  }
  request.clear();
  died_ns_[slot_of(action.request)] = 0;
  const RoutedVersion& version = *models_[action.model];
  if (version.awaits_idle && ledger_.model_idle(version.index)) observer_.became_idle(version);
  clients_->release(action.client);
}

// Sends all requests of a batch or none, because the lane waits for every one of them.
void DataPlane::send_group(std::span<const Action> group) {
  const Action& first = group.front();
  if (!ledger_.is_leased(first.request, first.lane)) return;  // an earlier action took the lease away
  const auto routed = workers_.find(first.lane.incarnation);
  if (routed == workers_.end()) return;  // the worker's death is being handled
  WorkerProcess* worker = routed->second.version->processes.find_worker(first.lane.incarnation);
  for (const Action& action : group) {
    const Client* client = clients_->find_with_gone(action.client);  // an earlier action may have disconnected it
    if (!worker || !client || !client->input) continue;
    const Status attached = attach_client(routed->second, *worker, *client);
    if (!attached.ok()) return undelivered(action, worker, attached);
  }
  for (std::size_t i = 0; i < group.size(); ++i) {
    const Status sent = send_to_lane(group[i]);
    // A lane that cannot be reached is dead or dying. When its pidfd reports that, the ledger gets the requests back.
    if (sent.ok() || sent.code() == StatusCode::kUnavailable) continue;
    if (i == 0) return undelivered(first, worker, sent);
    // The lane may already run the requests that it got. They may run elsewhere only after its death.
    return routed->second.version->processes.kill_worker(
        first.lane.incarnation, format("only {} of {} requests were sent: {}", i, group.size(), sent.message()));
  }
}

// Nothing of the batch was sent. The batch waits again, and this worker gets no requests for a while.
void DataPlane::undelivered(const Action& action, const WorkerProcess* worker, const Status& why) {
  log_.warn("worker_unroutable pid={} reason=\"{}\"", worker ? worker->pid : -1, why.message());
  ledger_.undelivered(action.request);
  unroutable_.push_back(action.lane.incarnation);
  retry_unroutable_.set_earlier(now_ns_ + kUnroutableRetryNs);
  ledger_.dispatch(action.model, now_ns_);
}

void DataPlane::retry_unroutable(std::uint64_t now_ns) {
  const std::vector<Incarnation> again = std::exchange(unroutable_, {});
  for (const Incarnation incarnation : again) ledger_.retry(incarnation, now_ns);
  for (auto& [incarnation, routed] : workers_) {
    if (routed.to_detach.empty()) continue;
    const WorkerProcess* worker = routed.version->processes.find_worker(incarnation);
    if (worker && worker->control && !send_detaches(routed, *worker).ok())
      retry_unroutable_.set_earlier(now_ns + kUnroutableRetryNs);
  }
  perform();
}

Status DataPlane::send_to_lane(const Action& action) {
  wire::Parcel& request = requests_[slot_of(action.request)];
  wire::RequestHeader header;
  std::memcpy(&header, request.head.data(), sizeof header);
  header.client_id = action.client;
  header.request_id = action.request;
  header.incarnation = action.lane.incarnation;
  header.attempt = action.attempt;
  header.batch_size = action.batch_size;
  header.batch_index = action.batch_index;
  header.quarantine = action.quarantine;
  header.lane_flags = action.hash_inputs ? wire::kHashInputs : 0;
  std::memcpy(request.head.data(), &header, sizeof header);
  Status sent = lane_transport_.push(peer_of(action.lane), request.head, request.payload);
  std::uint64_t& died_ns = died_ns_[slot_of(action.request)];
  if (sent.ok() && died_ns != 0) sent_again_.emplace_back(action.model, std::exchange(died_ns, 0));
  if (!sent.ok())
    log_.debug("not_sent request={} incarnation={} reason=\"{}\"", action.request, action.lane.incarnation, sent.message());
  return sent;
}

Status DataPlane::send_detaches(RoutedWorker& routed, const WorkerProcess& worker) {
  for (; !routed.to_detach.empty(); routed.to_detach.pop_back()) {
    SHOAL_RETURN_IF_ERROR(
        wire::send_control(worker.control.get(), {.kind = wire::ControlKind::kDetachClient, .id = routed.to_detach.back()}));
  }
  return {};
}

Status DataPlane::attach_client(RoutedWorker& routed, const WorkerProcess& worker, const Client& client) {
  if (client.place < routed.attached.size() && routed.attached[client.place] == client.id) return {};
  SHOAL_RETURN_IF_ERROR(send_detaches(routed, worker));
  wire::ControlMessage attach{.kind = wire::ControlKind::kAttachClient, .id = client.id};
  for (const UniqueFd* arena : {&client.input, &client.output}) {
    SHOAL_ASSIGN_OR_RETURN(UniqueFd copy, duplicate_fd(arena->get()));
    attach.fds.push_back(std::move(copy));
  }
  SHOAL_RETURN_IF_ERROR(wire::send_control(worker.control.get(), attach));
  if (client.place >= routed.attached.size()) routed.attached.resize(client.place + 1);
  routed.attached[client.place] = client.id;
  return {};
}

void DataPlane::forward_reply(const Action& action) {
  wire::Parcel& reply = *reply_in_hand_;
  wire::ReplyHeader header = reply_.header;
  header.seq = action.seq;
  header.ran = static_cast<std::uint8_t>(
      action.status == StatusCode::kOk ? Ran::kYes : static_cast<Ran>(std::min<std::uint8_t>(header.ran, 2)));
  header.released = 1;
  header.attempts = action.attempts;
  header.model_version = models_[action.model]->number();
  header.queue_ns = action.queue_ns;
  header.compute_ns = action.compute_ns;
  header.retry_after_ms = retry_after_ms(action.model, action.client, action.flow, action.status);
  if (!reply.payload.empty()) {
    if (const Status room = check_answer(action.client, reply.payload.memory_bytes()); !room.ok()) {
      header.status = static_cast<std::uint16_t>(room.code());
      header.output_count = 0;
      header.retry_after_ms = retry_after_ms(action.model, action.client, action.flow, room.code());
      return write_reply(header, action.client, room.message());
    }
  }
  if (reply.size() > 2) {
    const std::uint64_t tensor_bytes = reply.size_bytes() - reply[0].size() - reply[1].size();
    models_[action.model]->copied_answers.add(tensor_bytes);
    if (const Client* client = clients_->find(action.client)) client->process->copied_answers.add(tensor_bytes);
  }
  std::memcpy(reply.head.data(), &header, sizeof header);
  const std::span<const std::byte> head = reply.head;
  send_to_client(action.client, wire::Frames(&head, 1), reply.payload);
}

void DataPlane::send_reply(const Action& action) {
  const RoutedVersion& version = *models_[action.model];
  std::string message = action.message;
  if (action.status == StatusCode::kDeadlineExceeded && version.processes.ready_workers() == 0 &&
      !version.processes.reason().empty())
    message += format("; its model has no worker: {}", version.processes.reason());
  write_reply({.seq = action.seq,
               .request_id = action.request,
               .attempt = action.attempt,
               .status = static_cast<std::uint16_t>(action.status),
               .ran = static_cast<std::uint8_t>(action.ran),
               .released = action.released,
               .attempts = action.attempts,
               .retry_after_ms = retry_after_ms(action.model, action.client, action.flow, action.status),
               .model_version = version.number(),
               .queue_ns = action.queue_ns},
              action.client, message);
}

void DataPlane::send_release(const Action& action) {
  wire::ReplyHeader header{.magic = wire::kMagic,
                           .version = wire::kVersionMajor,
                           .kind = static_cast<std::uint16_t>(wire::Kind::kRelease),
                           .seq = action.seq,
                           .request_id = action.request,
                           .released = 1};
  const std::span<const std::byte> frame = std::as_bytes(std::span(&header, 1));
  send_to_client(action.client, wire::Frames(&frame, 1));
}

// Best effort: a lane that does not get this runs the request to its end, which only wastes time. The worker's control socket
// must keep room for clients that attach.
void DataPlane::cancel_run(const Action& action) {
  const auto routed = workers_.find(action.lane.incarnation);
  if (routed == workers_.end() || !routed->second.cancels.take(kCancelsPerSecond, now_ns_)) return;
  const WorkerProcess* worker = routed->second.version->processes.find_worker(action.lane.incarnation);
  if (!worker || !worker->control) return;
  if (!wire::send_control(worker->control.get(), {.kind = wire::ControlKind::kCancelRun, .id = action.request}).ok()) return;
}

// A worker that does not get the list runs inputs that the others refuse. That may kill the worker, but does no other harm.
void DataPlane::send_quarantine(const Action& action) {
  std::ostringstream hashes;
  for (const std::uint64_t hash : ledger_.quarantined(action.model))
    hashes << std::hex << std::setw(16) << std::setfill('0') << hash << '\n';
  const std::string text = hashes.str();
  for (const auto& worker : models_[action.model]->processes.workers()) {
    if (!worker->control || (action.lane.incarnation && worker->incarnation != action.lane.incarnation)) continue;
    const Status sent =
        wire::send_control(worker->control.get(),
                           {.kind = wire::ControlKind::kQuarantine, .id = ledger_.quarantine_number(action.model), .text = text});
    if (!sent.ok()) log_.warn("quarantine_not_sent worker={} reason=\"{}\"", worker->pid, sent.message());
  }
}

void DataPlane::send_probe(const Action& action) {
  Processes& processes = models_[action.model]->processes;
  const WorkerProcess* worker = processes.find_worker(action.lane.incarnation);
  log_.warn("breaker_probes model={} worker={}", processes.options().name, worker ? worker->pid : -1);
  if (!processes.probe(action.lane.incarnation).ok()) ledger_.probed(action.lane.incarnation, false, now_ns_);
}

}  // namespace shoal::supervisor
