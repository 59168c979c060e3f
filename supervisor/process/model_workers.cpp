// The workers of a model: how they are forked, what they say, and how they end.
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <sstream>
#include <utility>

#include "shm/base/errors.hpp"
#include "shm/base/shortened.hpp"
#include "supervisor/process/model_processes.hpp"
#include "supervisor/process/received_message.hpp"
#include "supervisor/process/sent_pidfd.hpp"

namespace shoal::supervisor {

using wire::ControlKind;
using wire::ControlMessage;

bool ModelProcesses::may_fork() const {
  return state_ == ModelState::kReady && zygote_ && zygote_->loaded && zygote_->control && !zygote_->killed &&
         staying_workers() < options_.workers && count(WorkerProcess::State::kForking) < kMostForking;
}

void ModelProcesses::fork_missing_workers() {
  const std::uint64_t now_ns = clock_.now_ns();
  while (may_fork() && !waits_to_fork(now_ns)) {
    if (const Status forked = fork_worker(now_ns); !forked.ok()) fork_not_sent(forked, now_ns);
  }
}

// A zygote that does not read its socket is replaced. If this process has too few descriptors or too little memory, it tries
// again later: the model does not fail, and reason_ says why it lacks workers.
void ModelProcesses::fork_not_sent(const Status& why, std::uint64_t now_ns) {
  log_.warn("fork_not_sent model={} reason=\"{}\"", options_.name, why.message());
  fork_.set(now_ns + Backoff::kFirstNs);
  if (why.code() == StatusCode::kOverloaded) {
    return kill_zygote();
  }
  (void)shortage_.failed(now_ns);
  reason_ = why.message();
}

Status ModelProcesses::fork_worker(std::uint64_t now_ns) {
  const auto lanes = static_cast<std::size_t>(options_.lanes);
  SHOAL_ASSIGN_OR_RETURN(wire::ControlPair pair, wire::make_control_pair());
  SHOAL_ASSIGN_OR_RETURN(UniqueFd page, wire::make_status_page(lanes));
  SHOAL_ASSIGN_OR_RETURN(Segment mapped, Segment::map(page, Segment::Access::kReadOnly));
  SHOAL_ASSIGN_OR_RETURN(const std::string sockets, lane_sockets(options_.directory, births_.next_incarnation));
  ControlMessage fork{.kind = ControlKind::kFork, .id = births_.next_incarnation, .a = lanes, .text = sockets};
  fork.fds.push_back(std::move(pair.theirs));
  fork.fds.push_back(std::move(page));
  fork.b = births_.longest_reply_bytes;
  auto worker = std::make_unique<WorkerProcess>();
  worker->incarnation = fork.id;
  worker->sockets = sockets;
  worker->control = std::move(pair.ours);
  worker->status_page = std::move(mapped);
  worker->forked_ns = now_ns;
  worker->limit.emplace(timers_, Timer::Kind::kPatience, [this, incarnation = worker->incarnation](std::uint64_t) {
    worker_is_late(incarnation);
    observer_.limit_was_over();
  });
  worker->limit->set(now_ns + kCommandLimitNs);
  SHOAL_RETURN_IF_ERROR(
      loop_.watch(worker->control.get(), [this, incarnation = worker->incarnation] { worker_speaks(incarnation); }));
  if (Status sent = wire::send_control(zygote_->control.get(), fork); !sent.ok()) {
    loop_.forget(worker->control.get());
    return sent;
  }
  ++births_.next_incarnation;
  workers_.push_back(std::move(worker));
  return {};
}

// ---- what the zygote says of them ----

Status ModelProcesses::handle_forked(const ControlMessage& message, bool lost_fds) {
  WorkerProcess* worker = find_worker(message.id);
  if (!worker || worker->state != WorkerProcess::State::kForking)
    return invalid_argument("FORKED for worker {}, which it was not told to fork", message.id);
  const std::uint64_t now_ns = clock_.now_ns();
  zygote_->unreported.insert(message.id);  // it reports the end of a worker that is not adopted, too
  if (Status adopted = adopt(*worker, message, lost_fds); !adopted.ok()) {
    if (adopted.code() == StatusCode::kInvalidArgument) return adopted.with_context(format("FORKED for worker {}", message.id));
    note_unborn(*worker, now_ns);  // this process lacks the resources to watch it
    drop_worker(message.id);
    fork_not_sent(adopted, now_ns);
    return {};
  }
  zygote_->forked = true;
  zygote_backoff_.succeeded();
  worker->state = WorkerProcess::State::kStarting;
  if (!worker->pidfd) {
    worker_exited(message.id);
    return {};
  }
  worker->limit->set(now_ns + (worker->is_silent ? kSilentLimitNs : kWorkerStartLimitNs));
  if (worker->ended != EndReason::kNone) send_kill(*worker);
  becomes_ready_when_complete(*worker);
  fork_missing_workers();
  return {};
}

// Takes the pid and a pidfd of the process that the message names, and waits for its end.
Status ModelProcesses::adopt(WorkerProcess& worker, const ControlMessage& message, bool lost_fds) {
  if (lost_fds) return unavailable("no file descriptors are left for the pidfd of a worker (RLIMIT_NOFILE)");
  if (message.fds.size() != 1) return invalid_argument("{} descriptors instead of one pidfd", message.fds.size());
  SHOAL_ASSIGN_OR_RETURN(ReportedWorker reported, check_sent_pidfd(message.fds[0], message.a, zygote_->child));
  if (watches(reported.pid)) return invalid_argument("process {} is another worker", reported.pid);
  if (reported.pidfd) {
    SHOAL_RETURN_IF_ERROR(
        loop_.watch(reported.pidfd.get(), [this, incarnation = worker.incarnation] { worker_exited(incarnation); }));
  }
  worker.pid = reported.pidfd ? reported.pid : static_cast<pid_t>(message.a);  // of a dead process: only for the log
  worker.pidfd = std::move(reported.pidfd);
  return {};
}

Status ModelProcesses::handle_fork_failed(const ControlMessage& message) {
  const WorkerProcess* worker = find_worker(message.id);
  if (!worker || worker->state != WorkerProcess::State::kForking)
    return invalid_argument("FORK_FAILED for worker {}, which it was not told to fork", message.id);
  reason_ = shortened(message.text, kMostReason);
  log_.warn("fork_failed model={} reason=\"{}\"", options_.name, reason_);
  note_unborn(*worker, clock_.now_ns());  // it may have forked and failed after that
  drop_worker(message.id);
  lacked_resources(clock_.now_ns());
  return {};
}

// May come before or after the pidfd reports the death. Incarnations are unique over all models: only this zygote's count.
Status ModelProcesses::handle_exited(const ControlMessage& message) {
  if (zygote_->unreported.erase(message.id) == 0)
    return invalid_argument("EXITED for worker {}, which it did not fork or has reported before", message.id);
  const int status = static_cast<int>(message.b);
  if (message.b > 0xffff || (!WIFEXITED(status) && !WIFSIGNALED(status)))
    return invalid_argument("EXITED for worker {} with the wait status {}", message.id, message.b);
  if (WorkerProcess* worker = find_watched(message.id))
    worker->wait_status = status;
  else
    observer_.worker_reaped(message.id, status);
  return {};
}

// ---- what they say ----

void ModelProcesses::worker_speaks(std::uint64_t incarnation) {
  WorkerProcess* worker = nullptr;
  for (int i = 0; i < kMessagesPerTurn && (worker = find_worker(incarnation)) && worker->control; ++i) {
    ReceivedMessage message(worker->control.get(), loop_);
    if (message.status().ok() && !message.has_value()) return;
    if (worker->ended != EndReason::kNone) return loop_.forget(worker->control.get());  // it was killed
    const Status said = !message.has_value()    ? message.status()
                        : !message->fds.empty() ? invalid_argument("a message with descriptors from a worker")
                                                : handle_worker_message(*worker, *message);
    if (said.ok()) continue;
    loop_.forget(worker->control.get());
    worker->is_silent = true;
    if (worker->state != WorkerProcess::State::kForking) worker->limit->set_earlier(clock_.now_ns() + kSilentLimitNs);
    if (said.code() == StatusCode::kInvalidArgument) kill_worker(incarnation, said.message());
    return;
  }
}

// If the result is not OK, the worker is ended.
Status ModelProcesses::handle_worker_message(WorkerProcess& worker, const ControlMessage& message) {
  switch (message.kind) {
    case ControlKind::kReady: {
      if (!worker.lane_paths.empty()) return invalid_argument("ready twice");
      SHOAL_ASSIGN_OR_RETURN(worker.lane_paths, check_ready(worker, message.text));
      becomes_ready_when_complete(worker);
      return {};
    }
    case ControlKind::kProbed:
      if (message.id > worker.last_probe || worker.last_probe - message.id >= static_cast<std::uint64_t>(worker.probes))
        return invalid_argument("an answer to a probe that was not sent");
      if (const std::optional<Status> said = said_status(message)) {
        worker.probes = static_cast<int>(worker.last_probe - message.id);  // it has replaced those before it
        observer_.worker_probed(worker, *said);
        return {};
      }
      return invalid_argument("PROBED with the status code {}", message.a);
    case ControlKind::kWorkerFailed:
      note_worker_failed(worker, message);
      return unavailable("it ends by itself");  // this is its last message
    default:
      return invalid_argument("a message of kind {} from a worker", static_cast<int>(message.kind));
  }
}

void ModelProcesses::note_worker_failed(WorkerProcess& worker, const ControlMessage& message) {
  reason_ = shortened(message.text, kMostReason);
  worker.lacked_resources = worker.lane_paths.empty() && message.a == static_cast<std::uint64_t>(StatusCode::kUnavailable);
  log_.warn("worker_failed model={} pid={} reason=\"{}\"", options_.name, worker.pid, reason_);
}

// The death of a worker may be noticed before its last message is read.
void ModelProcesses::hear_last_words(WorkerProcess& worker) {
  for (int i = 0; i < kMessagesPerTurn && worker.control; ++i) {
    ReceivedMessage message(worker.control.get(), loop_);
    if (!message.has_value()) return;
    if (message->kind == ControlKind::kWorkerFailed) return note_worker_failed(worker, *message);
  }
}

// The paths are fixed; a worker that names others is ended.
Result<std::vector<std::string>> ModelProcesses::check_ready(const WorkerProcess& worker, const std::string& text) const {
  std::vector<std::string> paths;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) paths.push_back(line);
  if (paths.size() != static_cast<std::size_t>(options_.lanes))
    return invalid_argument("ready with {} lanes instead of {}", paths.size(), options_.lanes);
  for (int lane = 0; lane < options_.lanes; ++lane) {
    const std::string expected = lane_path(worker.sockets, lane), &named = paths[static_cast<std::size_t>(lane)];
    if (named != expected) return invalid_argument("ready with lane socket '{}' instead of '{}'", named, expected);
  }
  return paths;
}

// READY and FORKED come on two sockets, in either order.
void ModelProcesses::becomes_ready_when_complete(WorkerProcess& worker) {
  if (!worker.is_starting() || worker.lane_paths.empty() || worker.ended != EndReason::kNone) return;
  worker.state = WorkerProcess::State::kReady;
  if (!worker.is_silent) worker.limit->clear();
  worker.ready_ns = clock_.now_ns();
  shortage_.succeeded();
  reason_.clear();
  log_.info("worker_ready model={} pid={} incarnation={} took_us={}", options_.name, worker.pid, worker.incarnation,
            (worker.ready_ns - std::min(worker.ready_ns, worker.forked_ns)) / 1000);
  observer_.worker_ready(worker);
  dismiss_surplus_workers();
}

void ModelProcesses::worker_exited(std::uint64_t incarnation) {
  WorkerProcess* worker = find_watched(incarnation);
  if (!worker) return;
  if (const auto status = exit_status(worker->pidfd)) worker->wait_status = status;
  const bool is_stuck = !find_worker(incarnation);
  const bool leaving = state_ == ModelState::kDraining || worker->state == WorkerProcess::State::kLeaving || is_stuck;
  if (leaving) log_.info("worker_gone model={} pid={} incarnation={}", options_.name, worker->pid, incarnation);
  const std::uint64_t now_ns = clock_.now_ns();
  if (worker->state == WorkerProcess::State::kStarting) hear_last_words(*worker);
  if (!leaving) account_for_death(*worker, now_ns);
  if (zygote_ && zygote_->unreported.size() > workers_.size() + kMostUnreported)
    end_zygote(format("it has not reported the ends of {} workers", kMostUnreported));
  observer_.worker_died(*worker);
  drop_worker(incarnation);
  fork_missing_workers();
}

void ModelProcesses::worker_is_late(std::uint64_t incarnation) {
  WorkerProcess& worker = *find_worker(incarnation);
  if (worker.state == WorkerProcess::State::kForking) return zygote_is_stuck();
  if (worker.was_killed) return leave_worker_alone(worker);
  if (worker.was_aborted) return send_kill(worker);
  kill_worker(incarnation, worker.is_silent ? "closed its control socket and did not end" : "not ready in time");
}

void ModelProcesses::send_kill(WorkerProcess& worker) {
  send_signal(worker.pidfd, SIGKILL);
  if (!std::exchange(worker.was_killed, true)) worker.limit->set(clock_.now_ns() + kWorkerDeathLimitNs);
}

// The requests that it holds wait for its death: until then it may write to their outputs.
void ModelProcesses::leave_worker_alone(WorkerProcess& worker) {
  const std::uint64_t now_ns = clock_.now_ns();
  if (stuck_workers_.size() == kMostStuckWorkers || births_.stuck_workers == Births::kMostStuckWorkers)
    return worker.limit->set(now_ns + kNoRoomRetryNs);
  log_.error(
      "worker_stuck model={} pid={} incarnation={} reason=\"was killed and does not die: the kernel waits for a device or a file "
      "system\"",
      options_.name, worker.pid, worker.incarnation);
  if (worker.control) loop_.hang_up(std::move(worker.control));
  const auto place = std::ranges::find(workers_, &worker, &std::unique_ptr<WorkerProcess>::get);
  stuck_workers_.push_back(std::move(*place));
  workers_.erase(place);
  ++births_.stuck_workers;
  if (state_ == ModelState::kReady && worker.state == WorkerProcess::State::kStarting)
    failed_start(now_ns, "its workers do not become ready, nor die when they are killed", ready_workers());
  fork_missing_workers();
}

// A worker that answered, or died of a request, is replaced at once; only failed starts are delayed. The status page says which
// request had begun. It is believed only if a request had been sent to that worker.
void ModelProcesses::account_for_death(const WorkerProcess& worker, std::uint64_t now_ns) {
  if (state_ != ModelState::kReady) return;
  if (worker.lacked_resources) return lacked_resources(now_ns);
  if (observer_.answered_by(worker.incarnation) > 0) return worker_backoff_.succeeded();
  bool had_begun = false;
  const bool was_asked = worker.probes > 0 || observer_.holds_requests(worker.incarnation);
  for (const wire::LaneLine& line : worker.page(was_asked ? static_cast<std::size_t>(options_.lanes) : 0).lanes) {
    had_begun |= line.running_request.load(std::memory_order_relaxed) != 0;
    had_begun |= line.compiling_request.load(std::memory_order_relaxed) != 0;
    had_begun |= line.crash.request_id.load(std::memory_order_relaxed) != 0;
  }
  const bool settled = worker.state == WorkerProcess::State::kReady && now_ns > worker.ready_ns + kSettledNs;
  if (had_begun || settled) return;
  const int others_ready = ready_workers() - (worker.is_ready() ? 1 : 0);
  failed_start(now_ns, reason_.empty() ? "its workers die before they answer anything" : reason_, others_ready);
}

// Others may end and leave what is missing. Starts that were told together and fail together count as one. Failed starts before
// this one may have had the same reason without saying so, and are forgotten.
void ModelProcesses::lacked_resources(std::uint64_t now_ns) {
  if (waits_to_fork(now_ns)) return;
  worker_backoff_.succeeded();
  fork_.set(shortage_.failed(now_ns));
}

// Workers that were forked together and fail together count as one failed start. A model with a ready worker goes on.
void ModelProcesses::failed_start(std::uint64_t now_ns, const std::string& why, int others_ready) {
  if (waits_to_fork(now_ns)) return;
  shortage_.succeeded();
  fork_.set(worker_backoff_.failed(now_ns));
  reason_ = why;
  if (others_ready == 0 && worker_backoff_.failures() >= kFailedStartsForFailure)
    fail(format("{} ({} times in a row)", why, kFailedStartsForFailure));
}

// What zygotes before have failed at does not matter to one that has loaded.
bool ModelProcesses::makes_no_progress() const {
  const bool has_zygote = zygote_ && zygote_->loaded && !zygote_->killed;
  const int of_zygotes = has_zygote ? 0 : std::max(zygote_backoff_.failures(), breach_backoff_.failures());
  return std::max({of_zygotes, worker_backoff_.failures(), shortage_.failures()}) >= kFailedStartsForFailure;
}

void ModelProcesses::drop_worker(std::uint64_t incarnation) {
  WorkerProcess* worker = find_watched(incarnation);
  if (!worker) return;
  if (worker->control) loop_.hang_up(std::move(worker->control));
  if (worker->pidfd) loop_.forget(worker->pidfd.get());
  const auto is_it = [&](const auto& other) { return other->incarnation == incarnation; };
  std::erase_if(workers_, is_it);
  births_.stuck_workers -= static_cast<int>(std::erase_if(stuck_workers_, is_it));
}

}  // namespace shoal::supervisor
