#include "supervisor/process/model_processes.hpp"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <sstream>

#include "shm/base/errors.hpp"
#include "shm/base/shortened.hpp"
#include "supervisor/process/received_message.hpp"
#include "supervisor/process/sent_pidfd.hpp"

namespace shoal::supervisor {

using wire::ControlKind;
using wire::ControlMessage;

std::string_view model_state_name(ModelState state) {
  switch (state) {
    case ModelState::kLoading:
      return "loading";
    case ModelState::kReady:
      return "ready";
    case ModelState::kFailed:
      return "failed";
    case ModelState::kDraining:
      return "draining";
  }
  return "unknown";
}

std::string_view worker_state_name(WorkerProcess::State state) {
  switch (state) {
    case WorkerProcess::State::kForking:
      return "forking";
    case WorkerProcess::State::kStarting:
      return "starting";
    case WorkerProcess::State::kReady:
      return "ready";
    case WorkerProcess::State::kLeaving:
      return "leaving";
  }
  return "unknown";
}

namespace {
constexpr int kMessagesPerTurn = 16;       // of one process, before the others have their turn
constexpr std::size_t kMostReason = 4096;  // bytes that a process may say of a failure

// A worker that was killed does not become ready any more.
bool is_starting(const WorkerProcess& worker) {
  return worker.state == WorkerProcess::State::kStarting && worker.ended == EndReason::kNone;
}

bool is_silent(const WorkerProcess& worker) { return worker.silent_ns != 0 && worker.pidfd && worker.ended == EndReason::kNone; }

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
// Nothing if the code is none of ours.
std::optional<Status> said_status(const ControlMessage& message) {
  if (message.a > static_cast<std::uint64_t>(StatusCode::kInternal)) return std::nullopt;
  return Status(static_cast<StatusCode>(message.a), shortened(message.text, kMostReason));
}

}  // namespace

std::string lane_path(const std::string& directory, std::uint64_t incarnation, int lane) {
  return format("{}/w{}-{}", directory, incarnation, lane);
}

// It is not known which orphan was reaped. Incarnations are never used twice, so it is safe to remove the sockets of all unborn
// workers as long as one of them may live.
void Births::sweep_unborn(std::uint64_t now_ns) {
  for (const Unborn& one : unborn) {
    for (int lane = 0; lane < one.lanes; ++lane) ::unlink(lane_path(one.directory, one.incarnation, lane).c_str());
  }
  std::erase_if(unborn, [&](const Unborn& one) { return now_ns > one.until_ns; });
}

std::span<const wire::LaneLine> WorkerProcess::lines(std::size_t lanes) const {
  if (!status_page || status_page->size_bytes() < wire::status_page_bytes(lanes)) return {};
  return {reinterpret_cast<const wire::LaneLine*>(status_page->bytes().data()), lanes};
}

const wire::ProgramLine* WorkerProcess::programs(std::size_t lanes) const {
  const auto all = lines(lanes);
  return all.empty() ? nullptr : reinterpret_cast<const wire::ProgramLine*>(all.data() + all.size());
}

ModelProcesses::ModelProcesses(ProcessOptions options, EventLoop& loop, ProcessObserver& observer, Logger& log, Births& births,
                               StuckZygotes& stuck)
    : options_(std::move(options)), loop_(loop), observer_(observer), log_(log), births_(births), stuck_(stuck) {}

ModelProcesses::~ModelProcesses() {
  kill_all();
  forget_zygote();
  while (!workers_.empty()) drop_worker(workers_.back()->incarnation);
  loop_.close_memory(std::move(packed_));
}

void ModelProcesses::start() { start_zygote(); }

WorkerProcess* ModelProcesses::find_worker(std::uint64_t incarnation) {
  const auto found = std::ranges::find(workers_, incarnation, [](const auto& worker) { return worker->incarnation; });
  return found == workers_.end() ? nullptr : found->get();
}

void ModelProcesses::fail(const std::string& reason) {
  if (state_ == ModelState::kFailed || state_ == ModelState::kDraining) return;
  state_ = ModelState::kFailed;
  reason_ = reason;
  zygote_start_ns_.reset();
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
  zygote_start_ns_.reset();
  close_zygote();
  for (const auto& worker : workers_) {
    if (worker->control) loop_.hang_up(std::move(worker->control));
  }
  forget_unborn(monotonic_now_ns());
}

// A worker whose fork was not reported has no pidfd to wait for. Its end of the control socket is closed, so it exits by itself,
// and this process, the subreaper, reaps it.
void ModelProcesses::note_unborn(const WorkerProcess& worker, std::uint64_t now_ns) {
  births_.unborn.push_back({options_.directory, worker.incarnation, options_.lanes, now_ns + kWorkerStartLimitNs});
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
  if (worker->pidfd) send_signal(worker->pidfd, SIGKILL);  // otherwise it is killed when its fork is reported
}

void ModelProcesses::abort_worker(std::uint64_t incarnation, pid_t thread, std::string_view why, EndReason reason) {
  WorkerProcess* worker = find_worker(incarnation);
  if (!worker || !worker->pidfd || worker->kill_at_ns != 0) return;
  note_end(*worker, why, reason);
  worker->kill_at_ns = monotonic_now_ns() + kAbortLimitNs;
  send_signal_to_thread(worker->pidfd, worker->pid, thread, SIGABRT);
}

void ModelProcesses::note_end(WorkerProcess& worker, std::string_view why, EndReason reason) {
  if (worker.ended != EndReason::kNone) return;
  worker.ended = reason;
  worker.ended_because = why;
  log_.warn("worker_killed model={} pid={} incarnation={} reason=\"{}\"", options_.name, worker.pid, worker.incarnation, why);
}

void ModelProcesses::set_workers(int workers) {
  options_.workers = workers;
  worker_backoff_.succeeded();
  shortage_.succeeded();
  next_fork_ns_ = 0;
  dismiss_surplus_workers();
  fork_missing_workers(monotonic_now_ns());
}

// Counts only ready workers: others may still fail to start.
void ModelProcesses::dismiss_surplus_workers() {
  for (std::size_t i = workers_.size(); i-- > 0 && ready_workers() > options_.workers;) {
    if (workers_[i]->state != WorkerProcess::State::kReady) continue;
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
  if (!worker || worker->state != WorkerProcess::State::kReady) return not_found("worker {} is not ready", incarnation);
  SHOAL_RETURN_IF_ERROR(wire::send_control(worker->control.get(), {.kind = ControlKind::kProbe, .id = incarnation}));
  ++worker->probes;
  return {};
}

int ModelProcesses::count(WorkerProcess::State state) const {
  return static_cast<int>(std::ranges::count(workers_, state, [](const auto& worker) { return worker->state; }));
}

void ModelProcesses::tick(std::uint64_t now_ns) {
  if (zygote_start_ns_ && now_ns >= *zygote_start_ns_) start_zygote();
  bool zygote_is_stuck = zygote_ && !zygote_->loaded && now_ns > zygote_->load_limit_ns;
  for (const auto& worker : workers_) {
    if (worker->state == WorkerProcess::State::kForking && now_ns > worker->forked_ns + kCommandLimitNs) zygote_is_stuck = true;
    if (is_starting(*worker) && now_ns > worker->forked_ns + kWorkerStartLimitNs) {
      kill_worker(worker->incarnation, "not ready in time");
    }
    if (is_silent(*worker) && now_ns > worker->silent_ns + kSilentLimitNs) {
      kill_worker(worker->incarnation, "closed its control socket and did not end");
    }
    if (worker->kill_at_ns != 0 && now_ns >= worker->kill_at_ns) {
      send_signal(worker->pidfd, SIGKILL);
      worker->kill_at_ns = now_ns + kAbortLimitNs;
    }
  }
  if (zygote_is_stuck && !zygote_->closing && !zygote_->killed_ns) {
    log_.warn("zygote_killed model={} pid={} reason=\"{}\"", options_.name, zygote_pid(),
              zygote_->loaded ? "left a command unanswered" : "loading took too long");
    kill_zygote();
    if (!zygote_->loaded) {
      zygote_->load_failure = format("loading took more than {} s: raise load_timeout_s", options_.load_limit_ns / 1'000'000'000);
      if (!ever_loaded_) return fail(zygote_->load_failure);
    }
  }
  if (may_leave_zygote_alone() && now_ns >= *zygote_->killed_ns + kZygoteDeathLimitNs) leave_zygote_alone();
  fork_missing_workers(now_ns);
}

void ModelProcesses::postpone(std::uint64_t by_ns) {
  if (zygote_) zygote_->load_limit_ns += by_ns;
  if (zygote_ && zygote_->killed_ns) *zygote_->killed_ns += by_ns;
  for (const auto& worker : workers_) {
    if (worker->state == WorkerProcess::State::kForking || is_starting(*worker)) worker->forked_ns += by_ns;
    if (worker->silent_ns != 0) worker->silent_ns += by_ns;
    if (worker->kill_at_ns != 0) worker->kill_at_ns += by_ns;
  }
}

std::optional<std::uint64_t> ModelProcesses::next_tick_ns() const {
  std::optional<std::uint64_t> next = zygote_start_ns_;
  const auto earlier = [&](std::uint64_t at_ns) { next = next ? std::min(*next, at_ns) : at_ns; };
  const bool may_answer = zygote_ && !zygote_->closing && !zygote_->killed_ns;
  if (may_answer && !zygote_->loaded) earlier(zygote_->load_limit_ns);
  if (may_leave_zygote_alone()) earlier(*zygote_->killed_ns + kZygoteDeathLimitNs);
  for (const auto& worker : workers_) {
    if (may_answer && worker->state == WorkerProcess::State::kForking) earlier(worker->forked_ns + kCommandLimitNs);
    if (is_starting(*worker)) earlier(worker->forked_ns + kWorkerStartLimitNs);
    if (is_silent(*worker)) earlier(worker->silent_ns + kSilentLimitNs);
    if (worker->kill_at_ns != 0) earlier(worker->kill_at_ns);
  }
  if (may_fork()) earlier(next_fork_ns_);
  return next;
}

// ---- the zygote ----

void ModelProcesses::start_zygote() {
  zygote_start_ns_.reset();
  const std::uint64_t now_ns = monotonic_now_ns();
  const Status started = [&]() -> Status {
    SHOAL_ASSIGN_OR_RETURN(wire::ControlPair pair, wire::make_control_pair());
    const std::vector<std::string> environment = {"SHOAL_DIR=" + options_.directory};
    SHOAL_ASSIGN_OR_RETURN(Child child, spawn({options_.worker_file, {"--zygote", "3"}, environment, pair.theirs.get()}));
    zygote_ = std::make_unique<Zygote>(Zygote{.child = std::move(child),
                                              .control = std::move(pair.ours),
                                              .started_ns = now_ns,
                                              .load_limit_ns = now_ns + options_.load_limit_ns});
    SHOAL_RETURN_IF_ERROR(watch_zygote());
    const int nice = ever_loaded_ ? 0 : options_.load_nice;  // the replacement of a zygote loads at full priority
    ControlMessage load{.kind = ControlKind::kLoad, .a = static_cast<std::uint64_t>(nice), .text = options_.load_text};
    if (packed_) {
      SHOAL_ASSIGN_OR_RETURN(UniqueFd copy, duplicate_fd(packed_.get()));
      load.fds.push_back(std::move(copy));
    }
    return wire::send_control(zygote_->control.get(), load);
  }();
  if (started.ok()) return log_.info("zygote_started model={} pid={}", options_.name, zygote_pid());
  if (zygote_) {
    send_signal(zygote_->child.pidfd, SIGKILL);  // reap_orphans() reaps it
    forget_zygote();
    zygote_.reset();
  }
  // The program cannot be executed, or the LOAD is too long.
  const bool is_final = started.code() == StatusCode::kNotFound || started.code() == StatusCode::kPermissionDenied ||
                        started.code() == StatusCode::kInvalidArgument;
  if (!ever_loaded_ && is_final) return fail(started.message());
  log_.warn("zygote_not_started model={} reason=\"{}\"", options_.name, started.message());
  reason_ = started.message();
  plan_zygote_restart(shortage_.failed(now_ns));
}

Status ModelProcesses::watch_zygote() {
  SHOAL_RETURN_IF_ERROR(loop_.watch(zygote_->control.get(), [this] { zygote_speaks(); }));
  return loop_.watch(zygote_->child.pidfd.get(), [this] { zygote_exited(); });
}

void ModelProcesses::forget_zygote() {
  if (!zygote_) return;
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
  if (zygote_->killed_ns) return {};
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
  ever_loaded_ = true;
  shortage_.succeeded();
  state_ = ModelState::kReady;
  reason_.clear();
  log_.info("model_loaded model={} zygote={} packed_bytes={}", options_.name, zygote_pid(), packed_bytes_);
  fork_missing_workers(monotonic_now_ns());
  return {};
}

Status ModelProcesses::handle_load_failed(const ControlMessage& message) {
  if (zygote_->killed_ns) return {};
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
  if (zygote_->killed_ns) return;
  zygote_->is_loaded_in_vain = true;
  zygote_->load_failure = "no file descriptors are left for the packed weights (RLIMIT_NOFILE): Too many open files";
  log_.error("zygote_killed model={} pid={} reason=\"{}\"", options_.name, zygote_pid(), zygote_->load_failure);
  kill_zygote();
}

Status ModelProcesses::handle_forked(const ControlMessage& message, bool lost_fds) {
  WorkerProcess* worker = find_worker(message.id);
  if (!worker || worker->state != WorkerProcess::State::kForking)
    return invalid_argument("FORKED for worker {}, which it was not told to fork", message.id);
  const std::uint64_t now_ns = monotonic_now_ns();
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
  shortage_.succeeded();
  worker->state = WorkerProcess::State::kStarting;
  if (!worker->pidfd) {
    worker_exited(message.id);
    return {};
  }
  if (worker->ended != EndReason::kNone) send_signal(worker->pidfd, SIGKILL);
  becomes_ready_when_complete(*worker);
  fork_missing_workers(now_ns);
  return {};
}

// Takes the pid and a pidfd of the process that the message names, and waits for its end.
Status ModelProcesses::adopt(WorkerProcess& worker, const ControlMessage& message, bool lost_fds) {
  if (lost_fds) return unavailable("no file descriptors are left for the pidfd of a worker (RLIMIT_NOFILE)");
  if (message.fds.size() != 1) return invalid_argument("{} descriptors instead of one pidfd", message.fds.size());
  SHOAL_ASSIGN_OR_RETURN(ReportedWorker reported, check_sent_pidfd(message.fds[0], message.a, zygote_->child));
  const auto is_it = [&](const auto& other) { return other->pidfd && other->pid == reported.pid; };
  if (std::ranges::any_of(workers_, is_it)) return invalid_argument("process {} is another worker", reported.pid);
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
  drop_worker(message.id);
  // FORKs that were told together and fail together count as one.
  if (const std::uint64_t now_ns = monotonic_now_ns(); now_ns >= next_fork_ns_) next_fork_ns_ = shortage_.failed(now_ns);
  return {};
}

// May come before or after the pidfd reports the death. Incarnations are unique over all models: only this zygote's count.
Status ModelProcesses::handle_exited(const ControlMessage& message) {
  if (zygote_->unreported.erase(message.id) == 0)
    return invalid_argument("EXITED for worker {}, which it did not fork or has reported before", message.id);
  const int status = static_cast<int>(message.b);
  if (message.b > 0xffff || (!WIFEXITED(status) && !WIFSIGNALED(status)))
    return invalid_argument("EXITED for worker {} with the wait status {}", message.id, message.b);
  if (WorkerProcess* worker = find_worker(message.id))
    worker->wait_status = status;
  else
    observer_.worker_reaped(message.id, status);
  return {};
}

void ModelProcesses::kill_zygote() {
  send_signal(zygote_->child.pidfd, SIGKILL);
  if (!zygote_->killed_ns) zygote_->killed_ns = monotonic_now_ns();
}

void ModelProcesses::close_zygote() {
  if (!zygote_) return;
  zygote_->closing = true;
  mute_zygote();  // at the end of file the zygote exits
}

// A zygote may have forked children that it did not report. They are in its process group, as its workers are, which go on. The
// sandbox lets nobody leave that group.
void ModelProcesses::kill_hidden_children() {
  const std::size_t killed = kill_group_except(zygote_->child, [&](pid_t pid) {
    return std::ranges::any_of(workers_, [&](const auto& worker) { return worker->pidfd && worker->pid == pid; });
  });
  if (killed > 0) log_.warn("zygote_children_killed model={} pid={} count={}", options_.name, zygote_pid(), killed);
}

void ModelProcesses::zygote_exited() {
  kill_hidden_children();  // before it is reaped
  const auto status = reap(zygote_->child.pidfd);
  forget_zygote();
  const std::unique_ptr<Zygote> dead = std::move(zygote_);
  zygote_ended(*dead, status ? describe_wait_status(*status) : "gone");
}

// Its workers go on: they have read what they need.
void ModelProcesses::leave_zygote_alone() {
  kill_hidden_children();
  forget_zygote();
  const std::unique_ptr<Zygote> left = std::move(zygote_);
  stuck_.take(options_.name, std::move(left->child));
  zygote_ended(*left, "was killed and does not die: its file system does not answer");
}

void ModelProcesses::zygote_ended(const Zygote& zygote, const std::string& how) {
  const std::uint64_t now_ns = monotonic_now_ns();
  forget_unborn(now_ns);
  reap_orphans();
  if (zygote.closing || state_ == ModelState::kFailed || state_ == ModelState::kDraining) return;

  log_.warn("zygote_died model={} pid={} how=\"{}\"", options_.name, zygote.child.pid, how);
  const std::uint64_t lived_ns = now_ns - zygote.started_ns;
  // A zygote that forked a worker, or idled for a while, is replaced at once. If it died of its first command, that counts as a
  // failed load.
  if (!zygote.broke_rules && zygote.loaded && (zygote.forked || lived_ns > kSettledNs)) return plan_zygote_restart(now_ns);
  const std::string reason =
      zygote.load_failure.empty() ? format("the process that loads the model {}", how) : zygote.load_failure;
  if (zygote.is_loaded_in_vain) {
    reason_ = reason;
    return plan_zygote_restart(shortage_.failed(now_ns));
  }
  if (lived_ns > kObedientNs) breach_backoff_.succeeded();
  Backoff& backoff = zygote.broke_rules ? breach_backoff_ : zygote_backoff_;
  const std::uint64_t again_ns = backoff.failed(now_ns);
  const bool serves = ever_loaded_ && (!zygote.broke_rules || ready_workers() > 0);
  if (!serves && backoff.failures() >= kFailedStartsForFailure)
    return fail(format("{} ({} times in a row)", reason, kFailedStartsForFailure));
  reason_ = reason;
  plan_zygote_restart(again_ns);
}

// ---- workers ----

bool ModelProcesses::may_fork() const {
  return state_ == ModelState::kReady && zygote_ && zygote_->loaded && zygote_->control && !zygote_->killed_ns &&
         staying_workers() < options_.workers && count(WorkerProcess::State::kForking) < kMostForking;
}

void ModelProcesses::fork_missing_workers(std::uint64_t now_ns) {
  while (may_fork() && now_ns >= next_fork_ns_) {
    if (const Status forked = fork_worker(now_ns); !forked.ok()) fork_not_sent(forked, now_ns);
  }
}

// A zygote that does not read its socket is replaced. If this process has too few descriptors or too little memory, it tries
// again later: the model does not fail, and reason_ says why it lacks workers.
void ModelProcesses::fork_not_sent(const Status& why, std::uint64_t now_ns) {
  log_.warn("fork_not_sent model={} reason=\"{}\"", options_.name, why.message());
  next_fork_ns_ = now_ns + Backoff::kFirstNs;
  if (why.code() == StatusCode::kOverloaded) {
    return kill_zygote();
  }
  (void)shortage_.failed(now_ns);
  reason_ = why.message();
}

Status ModelProcesses::fork_worker(std::uint64_t now_ns) {
  const auto lanes = static_cast<std::size_t>(options_.lanes);
  SHOAL_ASSIGN_OR_RETURN(wire::ControlPair pair, wire::make_control_pair());
  SHOAL_ASSIGN_OR_RETURN(UniqueFd page, create_memfd("status", wire::status_page_bytes(lanes)));
  SHOAL_RETURN_IF_ERROR(seal(page, Seals::kFixedSize));
  SHOAL_ASSIGN_OR_RETURN(Segment mapped, Segment::map(page, Segment::Access::kReadOnly));
  ControlMessage fork{.kind = ControlKind::kFork, .id = births_.next_incarnation, .a = lanes, .text = options_.directory};
  fork.fds.push_back(std::move(pair.theirs));
  fork.fds.push_back(std::move(page));
  fork.b = births_.longest_reply_bytes;
  auto worker = std::make_unique<WorkerProcess>();
  worker->incarnation = fork.id;
  worker->control = std::move(pair.ours);
  worker->status_page = std::move(mapped);
  worker->forked_ns = now_ns;
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
    worker->silent_ns = monotonic_now_ns();
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
      if (worker.probes == 0 || message.id != worker.incarnation)
        return invalid_argument("an answer to a probe that was not sent");
      if (const std::optional<Status> said = said_status(message)) {
        --worker.probes;
        observer_.worker_probed(worker, *said);
        return {};
      }
      return invalid_argument("PROBED with the status code {}", message.a);
    case ControlKind::kWorkerFailed:
      reason_ = shortened(message.text, kMostReason);
      log_.warn("worker_failed model={} pid={} reason=\"{}\"", options_.name, worker.pid, reason_);
      return unavailable("it ends by itself");  // this is its last message
    default:
      return invalid_argument("a message of kind {} from a worker", static_cast<int>(message.kind));
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
    const std::string expected = lane_path(options_.directory, worker.incarnation, lane),
                      &named = paths[static_cast<std::size_t>(lane)];
    if (named != expected) return invalid_argument("ready with lane socket '{}' instead of '{}'", named, expected);
  }
  return paths;
}

// READY and FORKED come on two sockets, in either order.
void ModelProcesses::becomes_ready_when_complete(WorkerProcess& worker) {
  if (!is_starting(worker) || worker.lane_paths.empty()) return;
  worker.state = WorkerProcess::State::kReady;
  worker.ready_ns = monotonic_now_ns();
  reason_.clear();
  log_.info("worker_ready model={} pid={} incarnation={} took_us={}", options_.name, worker.pid, worker.incarnation,
            (worker.ready_ns - std::min(worker.ready_ns, worker.forked_ns)) / 1000);
  observer_.worker_ready(worker);
  dismiss_surplus_workers();
}

void ModelProcesses::worker_exited(std::uint64_t incarnation) {
  WorkerProcess* worker = find_worker(incarnation);
  if (!worker) return;
  if (const auto status = reap(worker->pidfd)) worker->wait_status = status;
  const bool leaving = state_ == ModelState::kDraining || worker->state == WorkerProcess::State::kLeaving;
  if (leaving) log_.info("worker_gone model={} pid={} incarnation={}", options_.name, worker->pid, incarnation);
  const std::uint64_t now_ns = monotonic_now_ns();
  if (!leaving) account_for_death(*worker, now_ns);
  if (zygote_ && zygote_->unreported.size() > workers_.size() + kMostUnreported)
    end_zygote(format("it has not reported the ends of {} workers", kMostUnreported));
  observer_.worker_died(*worker);
  drop_worker(incarnation);
  fork_missing_workers(now_ns);
}

// A worker that answered, or died of a request, is replaced at once; only failed starts are delayed. The status page says which
// request had begun. It is believed only if a request had been sent to that worker.
void ModelProcesses::account_for_death(const WorkerProcess& worker, std::uint64_t now_ns) {
  if (state_ != ModelState::kReady) return;
  if (observer_.answered_by(worker.incarnation) > 0) return worker_backoff_.succeeded();
  bool had_begun = false;
  const bool was_asked = worker.probes > 0 || observer_.holds_requests(worker.incarnation);
  for (const wire::LaneLine& line : worker.lines(was_asked ? static_cast<std::size_t>(options_.lanes) : 0)) {
    had_begun |= line.running_request.load(std::memory_order_relaxed) != 0;
    had_begun |= line.compiling_request.load(std::memory_order_relaxed) != 0;
    had_begun |= line.crash.request_id.load(std::memory_order_relaxed) != 0;
  }
  const bool settled = worker.state == WorkerProcess::State::kReady && now_ns > worker.ready_ns + kSettledNs;
  if (had_begun || settled) return;
  const int others_ready = ready_workers() - (worker.state == WorkerProcess::State::kReady ? 1 : 0);
  failed_start(now_ns, reason_.empty() ? "its workers die before they answer anything" : reason_, others_ready);
}

// Workers that were forked together and fail together count as one failed start. A model with a ready worker goes on.
void ModelProcesses::failed_start(std::uint64_t now_ns, const std::string& why, int others_ready) {
  if (now_ns < next_fork_ns_) return;
  next_fork_ns_ = worker_backoff_.failed(now_ns);
  reason_ = why;
  if (others_ready == 0 && worker_backoff_.failures() >= kFailedStartsForFailure)
    fail(format("{} ({} times in a row)", why, kFailedStartsForFailure));
}

bool ModelProcesses::makes_no_progress() const {
  return std::max({zygote_backoff_.failures(), worker_backoff_.failures(), breach_backoff_.failures(), shortage_.failures()}) >=
         kFailedStartsForFailure;
}

void ModelProcesses::drop_worker(std::uint64_t incarnation) {
  WorkerProcess* worker = find_worker(incarnation);
  if (!worker) return;
  if (worker->control) loop_.hang_up(std::move(worker->control));
  if (worker->pidfd) loop_.forget(worker->pidfd.get());
  std::erase_if(workers_, [&](const auto& other) { return other->incarnation == incarnation; });
}

}  // namespace shoal::supervisor
