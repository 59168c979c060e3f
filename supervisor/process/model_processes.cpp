// The zygote of a model, and what is done with all of its processes. Its workers are in model_workers.cpp.
#include "supervisor/process/model_processes.hpp"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "shm/base/errors.hpp"
#include "shm/base/shortened.hpp"
#include "supervisor/process/received_message.hpp"
#include "supervisor/process/sent_pidfd.hpp"

namespace shoal::supervisor {

using wire::ControlKind;
using wire::ControlMessage;

namespace {

// Whoever reads or runs models gets nothing of what only those who fetch them need.
std::vector<std::string> environment_for(const std::string& directory) {
  return {"SHOAL_DIR=" + directory,
          "AWS_ACCESS_KEY_ID=",
          "AWS_SECRET_ACCESS_KEY=",
          "AWS_SESSION_TOKEN=",
          "http_proxy=",
          "HTTP_PROXY=",
          "https_proxy=",
          "HTTPS_PROXY=",
          "all_proxy=",
          "ALL_PROXY="};
}

// A sparse segment takes its memory only when it is used. If there is none then, a worker gets a SIGBUS.
Result<std::uint64_t> check_packed(const UniqueFd& fd) {
  SHOAL_ASSIGN_OR_RETURN(const std::uint64_t size, check_sealed(fd, Seals::kReadOnly));
  constexpr std::uint64_t kBlockBytes = 512;
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return status_from_errno("stat", "a shared memory segment", errno);
  if (const std::uint64_t allocated = static_cast<std::uint64_t>(info.st_blocks) * kBlockBytes; allocated < size)
    return invalid_argument("a memfd of {} bytes, of which {} are allocated", size, allocated);
  return size;
}

}  // namespace

std::optional<Status> ModelProcesses::said_status(const ControlMessage& message) {
  if (message.a > static_cast<std::uint64_t>(StatusCode::kInternal)) return std::nullopt;
  return Status(static_cast<StatusCode>(message.a), shortened(message.text, kMostReason));
}

// It is not known which orphan has ended. The names are never used twice, so it is safe to remove the sockets of all unborn
// workers as long as one of them may live.
void Births::sweep_unborn(std::uint64_t now_ns) {
  for (const Unborn& one : unborn) {
    for (int lane = 0; lane < one.lanes; ++lane) ::unlink(lane_path(one.sockets, lane).c_str());
  }
  std::erase_if(unborn, [&](const Unborn& one) { return now_ns > one.until_ns; });
}

ModelProcesses::ModelProcesses(ProcessOptions options, const Clock& clock, EventLoop& loop, Timers& timers,
                               ProcessObserver& observer, Logger& log, Births& births, StuckZygotes& stuck)
    : Processes(std::move(options)),
      clock_(clock),
      loop_(loop),
      timers_(timers),
      observer_(observer),
      log_(log),
      births_(births),
      stuck_(stuck),
      zygote_start_(timers, Timer::Kind::kClock, when_due(&ModelProcesses::start_zygote)),
      fork_(timers, Timer::Kind::kClock, when_due(&ModelProcesses::fork_missing_workers)),
      zygote_load_(timers, Timer::Kind::kPatience, when_due(&ModelProcesses::zygote_is_stuck)),
      zygote_death_(timers, Timer::Kind::kPatience, when_due(&ModelProcesses::leave_zygote_alone)) {}

Timer::Handler ModelProcesses::when_due(void (ModelProcesses::*handle)()) {
  return [this, handle](std::uint64_t) {
    (this->*handle)();
    observer_.limit_was_over();
  };
}

ModelProcesses::~ModelProcesses() {
  kill_all();
  forget_zygote();
  while (!workers_.empty()) drop_worker(workers_.back()->incarnation);
  while (!stuck_workers_.empty()) drop_worker(stuck_workers_.back()->incarnation);
  loop_.close_memory(std::move(packed_));
}

void ModelProcesses::start() { start_zygote(); }

void ModelProcesses::fail(const std::string& reason) {
  if (state_ == ModelState::kFailed || state_ == ModelState::kDraining) return;
  state_ = ModelState::kFailed;
  reason_ = reason;
  zygote_start_.clear();
  loop_.close_memory(std::move(packed_));  // a failed model starts no zygote again
  log_.error("model_failed model={} reason=\"{}\"", options_.name, reason);
  close_zygote();
  for (const auto& worker : workers_) {
    if (worker->pidfd) kill_worker(worker->incarnation, "its model failed");
  }
  observer_.model_failed(reason);
}

void ModelProcesses::stop() {
  state_ = ModelState::kDraining;
  zygote_start_.clear();
  close_zygote();
  for (const auto& worker : workers_) {
    if (worker->control) loop_.hang_up(std::move(worker->control));
  }
  forget_unborn(clock_.now_ns());
}

// A worker whose fork was not reported has no pidfd to wait for. Its end of the control socket is closed, so it exits by itself,
// and this process, the subreaper, reaps it.
void ModelProcesses::note_unborn(const WorkerProcess& worker, std::uint64_t now_ns) {
  births_.unborn.push_back({worker.sockets, options_.lanes, now_ns + kWorkerStartLimitNs});
}

void ModelProcesses::forget_unborn(std::uint64_t now_ns) {
  for (const auto& worker : workers_) {
    if (worker->state != WorkerProcess::State::kForking) continue;
    if (worker->control) loop_.hang_up(std::move(worker->control));
    note_unborn(*worker, now_ns);
  }
  std::erase_if(workers_, [](const auto& worker) { return worker->state == WorkerProcess::State::kForking; });
}

void ModelProcesses::kill_all() {
  if (zygote_) {
    kill_zygote();
    kill_group(zygote_->child);
  }
  for (const auto& worker : workers_) {
    if (worker->pidfd) send_signal(worker->pidfd, SIGKILL);
  }
}

void ModelProcesses::kill_worker(std::uint64_t incarnation, std::string_view why, EndReason reason) {
  WorkerProcess* worker = find_worker(incarnation);
  if (!worker) return;
  note_end(*worker, why, reason);
  if (worker->pidfd) send_kill(*worker);  // otherwise it is killed when its fork is reported
}

void ModelProcesses::abort_worker(std::uint64_t incarnation, pid_t thread, std::string_view why, EndReason reason) {
  WorkerProcess* worker = find_worker(incarnation);
  if (!worker || !worker->pidfd || worker->was_aborted) return;
  note_end(*worker, why, reason);
  worker->was_aborted = true;
  worker->limit->set(clock_.now_ns() + kAbortLimitNs);
  send_signal_to_thread(worker->pidfd, worker->pid, thread, SIGABRT);
}

void ModelProcesses::note_end(WorkerProcess& worker, std::string_view why, EndReason reason) {
  if (worker.ended != EndReason::kNone) return;
  worker.ended = reason;
  worker.ended_because = shortened(why, kMostReason);
  if (worker.state != WorkerProcess::State::kForking) worker.limit->clear();  // only its death is awaited
  log_.warn("worker_killed model={} pid={} incarnation={} reason=\"{}\"", options_.name, worker.pid, worker.incarnation,
            worker.ended_because);
  observer_.worker_ending(worker);
}

void ModelProcesses::set_workers(int workers) {
  options_.workers = workers;
  worker_backoff_.succeeded();
  shortage_.succeeded();
  fork_.clear();
  dismiss_surplus_workers();
  fork_missing_workers();
}

// Counts only ready workers: others may still fail to start.
void ModelProcesses::dismiss_surplus_workers() {
  for (std::size_t i = workers_.size(); i-- > 0 && ready_workers() > options_.workers;) {
    if (!workers_[i]->is_ready()) continue;
    workers_[i]->state = WorkerProcess::State::kLeaving;
    observer_.worker_leaving(*workers_[i]);
  }
}

void ModelProcesses::let_go(std::uint64_t incarnation) {
  WorkerProcess* worker = find_worker(incarnation);
  if (!worker || worker->state != WorkerProcess::State::kLeaving || !worker->control) return;
  loop_.hang_up(std::move(worker->control));
}

Status ModelProcesses::probe(std::uint64_t incarnation) {
  WorkerProcess* worker = find_worker(incarnation);
  if (!worker || !worker->is_ready()) return not_found("worker {} is not ready", incarnation);
  SHOAL_RETURN_IF_ERROR(wire::send_control(worker->control.get(), {.kind = ControlKind::kProbe, .id = worker->last_probe + 1}));
  ++worker->last_probe;
  ++worker->probes;
  return {};
}

// ---- the zygote ----

void ModelProcesses::start_zygote() {
  const std::uint64_t now_ns = clock_.now_ns();
  const Status started = [&]() -> Status {
    SHOAL_ASSIGN_OR_RETURN(wire::ControlPair pair, wire::make_control_pair());
    const std::vector<std::string> environment = environment_for(options_.directory);
    SHOAL_ASSIGN_OR_RETURN(Child child, spawn({options_.worker_file, {"--zygote", "3"}, environment, pair.theirs.get()}));
    zygote_ = std::make_unique<Zygote>(Zygote{.child = std::move(child), .control = std::move(pair.ours), .started_ns = now_ns});
    zygote_load_.set(now_ns + options_.load_limit_ns);
    SHOAL_RETURN_IF_ERROR(watch_zygote());
    const int nice = ever_loaded_ ? 0 : options_.load_nice;  // the replacement of a zygote loads at full priority
    ControlMessage load{.kind = ControlKind::kLoad, .a = static_cast<std::uint64_t>(nice), .text = options_.load_text};
    if (packed_) {
      SHOAL_ASSIGN_OR_RETURN(UniqueFd copy, duplicate_fd(packed_.get()));
      load.fds.push_back(std::move(copy));
    }
    return wire::send_control(zygote_->control.get(), load);
  }();
  if (!started.ok()) return zygote_not_started(started, now_ns);
  log_.info("zygote_started model={} pid={}", options_.name, zygote_pid());
}

void ModelProcesses::zygote_not_started(const Status& why, std::uint64_t now_ns) {
  if (zygote_) {
    send_signal(zygote_->child.pidfd, SIGKILL);  // reap_children() reaps it
    forget_zygote();
    zygote_.reset();
  }
  // The program cannot be executed, or the LOAD is too long.
  const bool is_final = why.code() == StatusCode::kNotFound || why.code() == StatusCode::kPermissionDenied ||
                        why.code() == StatusCode::kInvalidArgument;
  if (!ever_loaded_ && is_final) return fail(why.message());
  log_.warn("zygote_not_started model={} reason=\"{}\"", options_.name, why.message());
  reason_ = why.message();
  zygote_start_.set(shortage_.failed(now_ns));
}

Status ModelProcesses::watch_zygote() {
  SHOAL_RETURN_IF_ERROR(loop_.watch(zygote_->control.get(), [this] { zygote_speaks(); }));
  return loop_.watch(zygote_->child.pidfd.get(), [this] { zygote_exited(); });
}

void ModelProcesses::forget_zygote() {
  if (!zygote_) return;
  zygote_load_.clear();
  zygote_death_.clear();
  mute_zygote();
  loop_.forget(zygote_->child.pidfd.get());
}

// Nothing more is sent to it, and nothing that it says is read.
void ModelProcesses::mute_zygote() {
  if (zygote_->control) loop_.hang_up(std::move(zygote_->control));
}

void ModelProcesses::zygote_speaks() {
  for (int i = 0; i < kMessagesPerTurn && zygote_ && zygote_->control; ++i) {
    bool lost_fds = false;
    ReceivedMessage message(zygote_->control.get(), loop_, &lost_fds);
    if (message.status().ok() && !message.has_value()) return;
    const Status said = message.has_value() ? handle_zygote_message(*message, lost_fds) : message.status();
    if (said.ok()) continue;
    if (said.code() == StatusCode::kInvalidArgument) return end_zygote(said.message());
    mute_zygote();  // it is dead or dying; its pidfd reports that
    return kill_zygote();
  }
}

Status ModelProcesses::handle_zygote_message(ControlMessage& message, bool lost_fds) {
  switch (message.kind) {
    case ControlKind::kLoaded:
      if (!lost_fds) return handle_loaded(message);
      weights_lost();
      return {};
    case ControlKind::kLoadFailed:
      return handle_load_failed(message);
    case ControlKind::kForked:
      return handle_forked(message, lost_fds);
    case ControlKind::kForkFailed:
      return handle_fork_failed(message);
    case ControlKind::kExited:
      return handle_exited(message);
    default:
      return invalid_argument("a message of kind {} from a zygote", static_cast<int>(message.kind));
  }
}

// Counts as a failed start, even if the zygote had loaded the model.
void ModelProcesses::end_zygote(const std::string& why) {
  mute_zygote();
  zygote_->broke_rules = true;
  zygote_->load_failure = format("its zygote broke the protocol: {}", why);
  log_.error("zygote_killed model={} pid={} reason=\"{}\"", options_.name, zygote_pid(), zygote_->load_failure);
  kill_zygote();
}

Status ModelProcesses::handle_loaded(ControlMessage& message) {
  if (zygote_->killed) return {};
  if (zygote_->loaded) return invalid_argument("LOADED twice");
  if (message.fds.size() > 1) return invalid_argument("LOADED with {} descriptors (at most 1)", message.fds.size());
  std::uint64_t packed_bytes = packed_bytes_;
  const bool brings_weights = !message.fds.empty() && !packed_;
  if (brings_weights) {
    const auto size = check_packed(message.fds[0]);
    if (!size.ok()) return load_failed(size.status().with_context("packed weights").to_string());
    packed_bytes = *size;
  }
  if (Status accepted = observer_.model_loaded(message.text); !accepted.ok()) return load_failed(accepted.to_string());
  if (brings_weights) packed_ = std::move(message.fds[0]);
  packed_bytes_ = packed_bytes;
  zygote_->loaded = true;
  zygote_load_.clear();
  ever_loaded_ = true;
  shortage_.succeeded();
  state_ = ModelState::kReady;
  reason_.clear();
  log_.info("model_loaded model={} zygote={} packed_bytes={}", options_.name, zygote_pid(), packed_bytes_);
  fork_missing_workers();
  return {};
}

Status ModelProcesses::handle_load_failed(const ControlMessage& message) {
  if (zygote_->killed) return {};
  if (zygote_->loaded) return invalid_argument("LOAD_FAILED after LOADED");
  const std::optional<Status> said = said_status(message);
  if (!said || said->ok()) return invalid_argument("LOAD_FAILED with the status code {}", message.a);
  return load_failed(said->to_string());
}

// A model that was loaded before keeps its running workers. New workers wait for a zygote that can load it.
Status ModelProcesses::load_failed(const std::string& reason) {
  shortage_.succeeded();
  if (!ever_loaded_) {
    fail(reason);
    return {};
  }
  reason_ = reason;
  log_.error("reload_failed model={} reason=\"{}\"", options_.name, reason);
  zygote_->load_failure = reason;
  kill_zygote();
  return {};
}

// The model must be loaded again when there are descriptors.
void ModelProcesses::weights_lost() {
  if (zygote_->killed) return;
  zygote_->is_loaded_in_vain = true;
  zygote_->load_failure = "no file descriptors are left for the packed weights (RLIMIT_NOFILE): Too many open files";
  log_.error("zygote_killed model={} pid={} reason=\"{}\"", options_.name, zygote_pid(), zygote_->load_failure);
  kill_zygote();
}

void ModelProcesses::kill_zygote() {
  send_signal(zygote_->child.pidfd, SIGKILL);
  if (std::exchange(zygote_->killed, true)) return;
  zygote_load_.clear();
  zygote_death_.set(clock_.now_ns() + kZygoteDeathLimitNs);
}

void ModelProcesses::zygote_is_stuck() {
  if (!zygote_ || zygote_->killed) return;
  log_.warn("zygote_killed model={} pid={} reason=\"{}\"", options_.name, zygote_pid(),
            zygote_->closing  ? "did not end when it was told to"
            : zygote_->loaded ? "left a command unanswered"
                              : "loading took too long");
  kill_zygote();
  if (zygote_->closing || zygote_->loaded) return;
  zygote_->load_failure = format("loading took more than {} s: raise load_timeout_s", options_.load_limit_ns / 1'000'000'000);
  if (!ever_loaded_) fail(zygote_->load_failure);
}

void ModelProcesses::close_zygote() {
  if (!zygote_) return;
  zygote_->closing = true;
  if (!zygote_->killed) zygote_load_.set(clock_.now_ns() + kEndLimitNs);
  mute_zygote();  // at the end of file the zygote exits
}

// A zygote may have forked children that it did not report. They are in its process group, as its workers are, which go on. The
// sandbox lets nobody leave that group.
void ModelProcesses::kill_hidden_children() {
  std::unordered_set<pid_t> workers;
  for_each_worker([&](const WorkerProcess& worker) {
    if (worker.pidfd) workers.insert(worker.pid);
  });
  const pid_t zygote = zygote_pid();
  loop_.end_group(zygote, std::move(workers), [&log = log_, model = options_.name, zygote](std::size_t killed) {
    if (killed > 0) log.warn("zygote_children_killed model={} pid={} count={}", model, zygote, killed);
  });
}

void ModelProcesses::zygote_exited() {
  kill_hidden_children();  // before it is reaped
  const auto status = exit_status(zygote_->child.pidfd);
  forget_zygote();
  const std::unique_ptr<Zygote> dead = std::move(zygote_);
  zygote_ended(*dead, status ? describe_wait_status(*status) : "gone");
}

// Its workers go on: they have read what they need.
void ModelProcesses::leave_zygote_alone() {
  if (!stuck_.has_room()) return zygote_death_.set(clock_.now_ns() + kNoRoomRetryNs);
  kill_hidden_children();
  forget_zygote();
  const std::unique_ptr<Zygote> left = std::move(zygote_);
  stuck_.take(options_.name, std::move(left->child));
  zygote_ended(*left, "was killed and does not die: its file system does not answer");
}

void ModelProcesses::zygote_ended(const Zygote& zygote, const std::string& how) {
  const std::uint64_t now_ns = clock_.now_ns();
  forget_unborn(now_ns);
  if (zygote.closing || state_ == ModelState::kFailed || state_ == ModelState::kDraining) return;

  log_.warn("zygote_died model={} pid={} how=\"{}\"", options_.name, zygote.child.pid, how);
  const std::uint64_t lived_ns = now_ns - zygote.started_ns;
  // A zygote that forked a worker, or idled for a while, is replaced at once. If it died of its first command, that counts as a
  // failed load.
  if (!zygote.broke_rules && zygote.loaded && (zygote.forked || lived_ns > kSettledNs)) return zygote_start_.set(now_ns);
  const std::string reason =
      zygote.load_failure.empty() ? format("the process that loads the model {}", how) : zygote.load_failure;
  if (zygote.is_loaded_in_vain) {
    reason_ = reason;
    return zygote_start_.set(shortage_.failed(now_ns));
  }
  if (lived_ns > kObedientNs) breach_backoff_.succeeded();
  Backoff& backoff = zygote.broke_rules ? breach_backoff_ : zygote_backoff_;
  const std::uint64_t again_ns = backoff.failed(now_ns);
  const bool serves = ever_loaded_ && (!zygote.broke_rules || ready_workers() > 0);
  if (!serves && backoff.failures() >= kFailedStartsForFailure)
    return fail(format("{} ({} times in a row)", reason, kFailedStartsForFailure));
  reason_ = reason;
  zygote_start_.set(again_ns);
}

}  // namespace shoal::supervisor
