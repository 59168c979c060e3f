#include "supervisor/process/model_processes.hpp"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>

#include "shm/base/errors.hpp"

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
constexpr int kMessagesPerTurn = 16;  // of one that speaks; then the others have their turn

// And may still become ready: one that was killed has only its end to come.
bool is_starting(const WorkerProcess& worker) {
  return worker.state == WorkerProcess::State::kStarting && worker.ended == EndReason::kNone;
}
}  // namespace

std::string lane_path(const std::string& directory, std::uint64_t incarnation, int lane) {
  return format("{}/w{}-{}", directory, incarnation, lane);
}

// Which orphan was reaped is not known; its number is never used again, so its sockets may be looked for as long as it could
// live.
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

ModelProcesses::ModelProcesses(ProcessOptions options, EventLoop& loop, ProcessObserver& observer, Logger& log, Births& births)
    : options_(std::move(options)), loop_(loop), observer_(observer), log_(log), births_(births) {}

ModelProcesses::~ModelProcesses() {
  kill_all();
  if (zygote_) {
    loop_.forget(zygote_->control.get());
    loop_.forget(zygote_->child.pidfd.get());
  }
  while (!workers_.empty()) drop_worker(workers_.back()->incarnation);
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
  log_.error("model_failed model={} reason=\"{}\"", options_.name, reason);
  close_zygote();
  for (const auto& worker : workers_) kill_worker(worker->incarnation, "its model failed");
  observer_.model_failed(reason);
}

void ModelProcesses::stop() {
  state_ = ModelState::kDraining;
  zygote_start_ns_.reset();
  close_zygote();
  for (const auto& worker : workers_) {
    if (!worker->control) continue;
    loop_.forget(worker->control.get());
    worker->control.reset();
  }
  forget_unborn(monotonic_now_ns());
}

// One whose fork was not reported has no pidfd to wait for: its end of the control socket is closed, so it goes by itself, and is
// reaped here, as this process is the subreaper.
void ModelProcesses::forget_unborn(std::uint64_t now_ns) {
  for (const auto& worker : workers_) {
    if (worker->state != WorkerProcess::State::kForking) continue;
    if (worker->control) loop_.forget(worker->control.get());
    births_.unborn.push_back({options_.directory, worker->incarnation, options_.lanes, now_ns + kWorkerStartLimitNs});
  }
  std::erase_if(workers_, [](const auto& worker) { return worker->state == WorkerProcess::State::kForking; });
}

void ModelProcesses::kill_all() {
  if (zygote_) send_signal(zygote_->child.pidfd, SIGKILL);
  for (const auto& worker : workers_) {
    if (worker->pidfd) send_signal(worker->pidfd, SIGKILL);
  }
}

void ModelProcesses::kill_worker(std::uint64_t incarnation, std::string_view why, EndReason reason) {
  WorkerProcess* worker = find_worker(incarnation);
  if (!worker || !worker->pidfd) return;
  note_end(*worker, why, reason);
  send_signal(worker->pidfd, SIGKILL);
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
  forks_not_sent_ = 0;
  next_fork_ns_ = 0;
  dismiss_surplus_workers();
  fork_missing_workers(monotonic_now_ns());
}

// Only ready ones: those that start may not make it.
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
  loop_.forget(worker->control.get());
  worker->control.reset();
}

Status ModelProcesses::probe(std::uint64_t incarnation) {
  const WorkerProcess* worker = find_worker(incarnation);
  if (!worker || worker->state != WorkerProcess::State::kReady) return not_found("worker {} is not ready", incarnation);
  return wire::send_control(worker->control.get(), {.kind = ControlKind::kProbe, .id = incarnation});
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
    if (worker->kill_at_ns != 0 && now_ns >= worker->kill_at_ns) {
      send_signal(worker->pidfd, SIGKILL);
      worker->kill_at_ns = now_ns + kAbortLimitNs;
    }
  }
  if (zygote_is_stuck && !zygote_->closing && !zygote_->killed) {
    zygote_->killed = true;
    log_.warn("zygote_killed model={} pid={} reason=\"{}\"", options_.name, zygote_pid(),
              zygote_->loaded ? "left a command unanswered" : "loading took too long");
    send_signal(zygote_->child.pidfd, SIGKILL);
    if (!zygote_->loaded) {
      zygote_->load_failure = format("loading took more than {} s: raise load_timeout_s", options_.load_limit_ns / 1'000'000'000);
      if (!ever_loaded_) return fail(zygote_->load_failure);
    }
  }
  fork_missing_workers(now_ns);
}

std::optional<std::uint64_t> ModelProcesses::next_tick_ns() const {
  std::optional<std::uint64_t> next = zygote_start_ns_;
  const auto earlier = [&](std::uint64_t at_ns) { next = next ? std::min(*next, at_ns) : at_ns; };
  const bool may_answer = zygote_ && !zygote_->closing && !zygote_->killed;
  if (may_answer && !zygote_->loaded) earlier(zygote_->load_limit_ns);
  for (const auto& worker : workers_) {
    if (may_answer && worker->state == WorkerProcess::State::kForking) earlier(worker->forked_ns + kCommandLimitNs);
    if (is_starting(*worker)) earlier(worker->forked_ns + kWorkerStartLimitNs);
    if (worker->kill_at_ns != 0) earlier(worker->kill_at_ns);
  }
  if (may_fork()) earlier(next_fork_ns_);
  return next;
}

// ---- the zygote ----

void ModelProcesses::start_zygote() {
  zygote_start_ns_.reset();
  const std::uint64_t now_ns = monotonic_now_ns();
  auto started = [&]() -> Status {
    SHOAL_ASSIGN_OR_RETURN(wire::ControlPair pair, wire::make_control_pair());
    const std::vector<std::string> environment = {"SHOAL_DIR=" + options_.directory};
    SHOAL_ASSIGN_OR_RETURN(Child child, spawn({options_.worker_file, {"--zygote", "3"}, environment, pair.theirs.get()}));
    zygote_ = std::make_unique<Zygote>(Zygote{.child = std::move(child),
                                              .control = std::move(pair.ours),
                                              .started_ns = now_ns,
                                              .load_limit_ns = now_ns + options_.load_limit_ns});
    const int nice = ever_loaded_ ? 0 : options_.load_nice;  // a zygote that is replaced is in a hurry
    ControlMessage load{.kind = ControlKind::kLoad, .a = static_cast<std::uint64_t>(nice), .text = options_.load_text};
    if (packed_) {
      SHOAL_ASSIGN_OR_RETURN(UniqueFd copy, duplicate_fd(packed_.get()));
      load.fds.push_back(std::move(copy));
    }
    return wire::send_control(zygote_->control.get(), load);
  }();
  if (zygote_) {
    loop_.watch(zygote_->control.get(), [this] { zygote_speaks(); });
    loop_.watch(zygote_->child.pidfd.get(), [this] { zygote_exited(); });
    log_.info("zygote_started model={} pid={}", options_.name, zygote_pid());
  }
  if (started.ok()) return;
  if (zygote_) {
    zygote_->load_failure = started.to_string();
    send_signal(zygote_->child.pidfd, SIGKILL);
  } else if (!ever_loaded_) {
    fail(started.message());
  } else {
    reason_ = started.message();
    plan_zygote_restart(zygote_backoff_.failed(now_ns));
  }
}

void ModelProcesses::zygote_speaks() {
  for (int i = 0; i < kMessagesPerTurn && zygote_ && zygote_->control; ++i) {
    auto received = wire::receive_control(zygote_->control.get());
    if (!received.ok()) {  // what is said is said: its death, or the end of a mad one, comes by the pidfd
      loop_.forget(zygote_->control.get());
      zygote_->control.reset();
      if (!zygote_->closing && received.status().code() == StatusCode::kInvalidArgument)
        zygote_->load_failure = received.status().to_string();
      send_signal(zygote_->child.pidfd, SIGKILL);
      return;
    }
    if (!received->has_value()) return;
    ControlMessage message = **std::move(received);
    switch (message.kind) {
      case ControlKind::kLoaded:
        handle_loaded(std::move(message));
        break;
      case ControlKind::kLoadFailed:
        handle_load_failed(Status(static_cast<StatusCode>(message.a), message.text).to_string());
        break;
      case ControlKind::kForked:
        handle_forked(std::move(message));
        break;
      case ControlKind::kForkFailed:
        handle_fork_failed(message);
        break;
      case ControlKind::kExited:
        // Before or after its pidfd reported.
        if (WorkerProcess* worker = find_worker(message.id)) worker->wait_status = static_cast<int>(message.b);
        observer_.worker_reaped(message.id, static_cast<int>(message.b));
        break;
      default:
        log_.warn("zygote_message_ignored model={} kind={}", options_.name, static_cast<int>(message.kind));
    }
  }
}

void ModelProcesses::handle_loaded(ControlMessage message) {
  if (!zygote_ || zygote_->loaded || zygote_->closing || zygote_->killed) return;
  if (Status accepted = observer_.model_loaded(message.text); !accepted.ok()) return handle_load_failed(accepted.to_string());
  if (!message.fds.empty() && !packed_) {
    const auto size = check_sealed(message.fds[0], Seals::kReadOnly);
    if (!size.ok()) return handle_load_failed(size.status().with_context("packed weights").to_string());
    packed_bytes_ = *size;
    packed_ = std::move(message.fds[0]);
  }
  zygote_->loaded = true;
  ever_loaded_ = true;
  state_ = ModelState::kReady;
  reason_.clear();
  log_.info("model_loaded model={} zygote={} packed_bytes={}", options_.name, zygote_pid(), packed_bytes_);
  fork_missing_workers(monotonic_now_ns());
}

// A model that loaded once keeps its running workers; only new ones have to wait for a zygote that loads.
void ModelProcesses::handle_load_failed(const std::string& reason) {
  if (!zygote_ || zygote_->closing) return;
  if (!ever_loaded_) return fail(reason);
  reason_ = reason;
  log_.error("reload_failed model={} reason=\"{}\"", options_.name, reason);
  zygote_->load_failure = reason;
  send_signal(zygote_->child.pidfd, SIGKILL);
}

void ModelProcesses::handle_forked(ControlMessage message) {
  WorkerProcess* worker = find_worker(message.id);
  if (!worker || worker->state != WorkerProcess::State::kForking || message.fds.size() != 1) return;
  zygote_->forked = true;
  zygote_backoff_.succeeded();
  worker->pid = static_cast<pid_t>(message.a);
  worker->pidfd = std::move(message.fds[0]);
  worker->state = WorkerProcess::State::kStarting;
  loop_.watch(worker->pidfd.get(), [this, incarnation = worker->incarnation] { worker_exited(incarnation); });
  becomes_ready_when_complete(*worker);
  fork_missing_workers(monotonic_now_ns());
}

void ModelProcesses::handle_fork_failed(const ControlMessage& message) {
  const WorkerProcess* worker = find_worker(message.id);
  if (!worker || worker->state != WorkerProcess::State::kForking) return;  // one that is there has its own end
  log_.warn("fork_failed model={} reason=\"{}\"", options_.name, message.text);
  drop_worker(message.id);
  failed_start(monotonic_now_ns(), message.text, ready_workers());
}

void ModelProcesses::close_zygote() {
  if (!zygote_) return;
  zygote_->closing = true;
  if (zygote_->control) loop_.forget(zygote_->control.get());
  zygote_->control.reset();  // its end of file tells the zygote to go
}

void ModelProcesses::zygote_exited() {
  const std::uint64_t now_ns = monotonic_now_ns();
  const auto status = reap(zygote_->child.pidfd);
  const std::string how = status ? describe_wait_status(*status) : "gone";
  loop_.forget(zygote_->child.pidfd.get());
  if (zygote_->control) loop_.forget(zygote_->control.get());
  const std::unique_ptr<Zygote> dead = std::move(zygote_);
  forget_unborn(now_ns);
  reap_orphans();
  if (dead->closing || state_ == ModelState::kFailed || state_ == ModelState::kDraining) return;

  log_.warn("zygote_died model={} pid={} how=\"{}\"", options_.name, dead->child.pid, how);
  // One that was of use, or stood idle for a while, is replaced at once; one that dies of its first command waits as after a
  // failed load.
  if (dead->loaded && (dead->forked || now_ns > dead->started_ns + kSettledNs)) return plan_zygote_restart(now_ns);
  const std::string reason = dead->load_failure.empty() ? format("the process that loads the model {}", how) : dead->load_failure;
  const std::uint64_t again_ns = zygote_backoff_.failed(now_ns);
  if (!ever_loaded_ && zygote_backoff_.failures() >= kFailedStartsForFailure)
    return fail(format("{} ({} times in a row)", reason, kFailedStartsForFailure));
  reason_ = reason;
  plan_zygote_restart(again_ns);
}

// ---- workers ----

bool ModelProcesses::may_fork() const {
  return state_ == ModelState::kReady && zygote_ && zygote_->loaded && !zygote_->closing &&
         staying_workers() < options_.workers && count(WorkerProcess::State::kForking) < kMostForking;
}

void ModelProcesses::fork_missing_workers(std::uint64_t now_ns) {
  while (may_fork() && now_ns >= next_fork_ns_) {
    const Status forked = fork_worker(now_ns);
    forked.ok() ? void(forks_not_sent_ = 0) : fork_not_sent(forked, now_ns);
  }
}

// A zygote that does not read is replaced. Of what this process itself has too little (descriptors, memory) others may give some
// back: a model is not given up for it, but who waits for its workers hears of it.
void ModelProcesses::fork_not_sent(const Status& why, std::uint64_t now_ns) {
  log_.warn("fork_not_sent model={} reason=\"{}\"", options_.name, why.message());
  next_fork_ns_ = now_ns + Backoff::kFirstNs;
  if (why.code() == StatusCode::kOverloaded) {
    if (zygote_->control) send_signal(zygote_->child.pidfd, SIGKILL);
    return;
  }
  ++forks_not_sent_;
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
  SHOAL_RETURN_IF_ERROR(wire::send_control(zygote_->control.get(), fork));
  auto worker = std::make_unique<WorkerProcess>();
  worker->incarnation = births_.next_incarnation++;
  worker->control = std::move(pair.ours);
  worker->status_page = std::move(mapped);
  worker->forked_ns = now_ns;
  loop_.watch(worker->control.get(), [this, incarnation = worker->incarnation] { worker_speaks(incarnation); });
  workers_.push_back(std::move(worker));
  return {};
}

void ModelProcesses::worker_speaks(std::uint64_t incarnation) {
  WorkerProcess* worker = nullptr;
  for (int i = 0; i < kMessagesPerTurn && (worker = find_worker(incarnation)) && worker->control; ++i) {
    auto received = wire::receive_control(worker->control.get());
    if (received.ok() && !received->has_value()) return;
    const Status said = received.ok() ? handle_worker_message(*worker, **received) : received.status();
    if (said.ok()) continue;
    loop_.forget(worker->control.get());
    if (said.code() == StatusCode::kInvalidArgument) kill_worker(incarnation, said.message());
    return;
  }
}

// What is not OK ends the worker.
Status ModelProcesses::handle_worker_message(WorkerProcess& worker, const ControlMessage& message) {
  switch (message.kind) {
    case ControlKind::kReady: {
      if (!worker.lane_paths.empty()) return invalid_argument("ready twice");
      SHOAL_ASSIGN_OR_RETURN(worker.lane_paths, check_ready(worker, message.text));
      becomes_ready_when_complete(worker);
      return {};
    }
    case ControlKind::kProbed:
      observer_.worker_probed(worker, Status(static_cast<StatusCode>(message.a), message.text));
      return {};
    case ControlKind::kWorkerFailed:
      log_.warn("worker_failed model={} pid={} reason=\"{}\"", options_.name, worker.pid, message.text);
      reason_ = message.text;
      return unavailable("it ends by itself");  // and has nothing more to say
    default:
      return invalid_argument("a message of kind {} from a worker", static_cast<int>(message.kind));
  }
}

// The paths a worker may name are known beforehand: anything else is not believed.
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

// READY and the pidfd travel on two sockets, in either order.
void ModelProcesses::becomes_ready_when_complete(WorkerProcess& worker) {
  if (worker.state != WorkerProcess::State::kStarting || worker.lane_paths.empty()) return;
  worker.state = WorkerProcess::State::kReady;
  worker.ready_ns = monotonic_now_ns();
  reason_.clear();
  log_.info("worker_ready model={} pid={} incarnation={} took_us={}", options_.name, worker.pid, worker.incarnation,
            (worker.ready_ns - worker.forked_ns) / 1000);
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
  observer_.worker_died(*worker);
  drop_worker(incarnation);
  fork_missing_workers(now_ns);
}

// A worker that answered, or died of what a request did to it, is replaced at once: only failed starts are waited for.
void ModelProcesses::account_for_death(const WorkerProcess& worker, std::uint64_t now_ns) {
  if (state_ != ModelState::kReady) return;
  if (observer_.answered_by(worker.incarnation) > 0) return worker_backoff_.succeeded();
  bool had_begun = false;
  for (const wire::LaneLine& line : worker.lines(static_cast<std::size_t>(options_.lanes))) {
    had_begun |= line.running_request.load(std::memory_order_relaxed) != 0;
    had_begun |= line.compiling_request.load(std::memory_order_relaxed) != 0;
    had_begun |= line.crash.request_id.load(std::memory_order_relaxed) != 0;
  }
  const bool settled = worker.state == WorkerProcess::State::kReady && now_ns > worker.ready_ns + kSettledNs;
  if (had_begun || settled) return;
  const int others_ready = ready_workers() - (worker.state == WorkerProcess::State::kReady ? 1 : 0);
  failed_start(now_ns, reason_.empty() ? "its workers die before they answer anything" : reason_, others_ready);
}

// Those that were forked together fail together: once. A model with a worker that is ready goes on with what it has.
void ModelProcesses::failed_start(std::uint64_t now_ns, const std::string& why, int others_ready) {
  if (now_ns < next_fork_ns_) return;
  next_fork_ns_ = worker_backoff_.failed(now_ns);
  reason_ = why;
  if (others_ready == 0 && worker_backoff_.failures() >= kFailedStartsForFailure)
    fail(format("{} ({} times in a row)", why, kFailedStartsForFailure));
}

bool ModelProcesses::makes_no_progress() const {
  return std::max({zygote_backoff_.failures(), worker_backoff_.failures(), forks_not_sent_}) >= kFailedStartsForFailure;
}

void ModelProcesses::drop_worker(std::uint64_t incarnation) {
  const WorkerProcess* worker = find_worker(incarnation);
  if (!worker) return;
  if (worker->control) loop_.forget(worker->control.get());
  if (worker->pidfd) loop_.forget(worker->pidfd.get());
  std::erase_if(workers_, [&](const auto& other) { return other->incarnation == incarnation; });
}

}  // namespace shoal::supervisor
