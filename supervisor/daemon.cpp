// Start, loop and shutdown. Messages are in daemon_clients.cpp and daemon_lanes.cpp, JSON in daemon_json.cpp.
#include "supervisor/daemon.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>

#include <algorithm>
#include <array>

#include "shm/base/clock.hpp"
#include "shm/base/errors.hpp"
#include "supervisor/model_version.hpp"

namespace shoal::supervisor {

sigset_t daemon_signals() {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGCHLD}) ::sigaddset(&set, signal);
  return set;
}

Daemon::Daemon(DaemonOptions options, SocketDirectory directory, Logger& log)
    : log_(log),
      directory_(std::move(directory)),
      files_(options.worker_file, kLargestAnswerBytes, loop_, log, [this] { is_catalog_due_ = true; }),
      catalog_(log),
      deaths_(log),
      worker_file_(std::move(options.worker_file)),
      configuration_file_(std::move(options.configuration_file)),
      manager_(std::move(options.manager)),
      started_ns_(monotonic_now_ns()) {
  for (const ModelRequest& model : options.models) given_.push_back(model.name);
}

Daemon::~Daemon() {
  models_.clear();
  if (signals_) loop_.forget(signals_.get());
}

Result<std::unique_ptr<Daemon>> Daemon::start(DaemonOptions options, SocketDirectory directory, Logger& log) {
  const std::vector<ModelRequest> given = options.models;
  std::unique_ptr<Daemon> daemon(new Daemon(std::move(options), std::move(directory), log));
  SHOAL_RETURN_IF_ERROR(daemon->watch_signals());
  SHOAL_ASSIGN_OR_RETURN(const DaemonConfig configured, daemon->read_configuration());
  SHOAL_RETURN_IF_ERROR(daemon->open_sockets());
  daemon->apply_limits(configured.limits);
  daemon->measure_heap();
  for (const ModelRequest& request : configured.models)
    daemon->catalog_.serve(request, Origin::kConfiguration, monotonic_now_ns());
  for (const ModelRequest& request : given) daemon->catalog_.serve(request, Origin::kCommandLine, monotonic_now_ns());
  daemon->is_catalog_due_ = true;
  return daemon;
}

// Called at the start, when no client is there yet that would have to wait. A signal ends it at once.
Result<DaemonConfig> Daemon::read_configuration() {
  if (configuration_file_.empty()) return DaemonConfig();
  const std::unique_ptr<FileSearch> search = find_configuration();
  while (!search->is_over()) {
    const std::uint64_t now_ns = monotonic_now_ns(), limit_ns = files_.next_tick_ns().value_or(now_ns);
    pollfd ready{loop_.fd(), POLLIN, 0};
    (void)::poll(&ready, 1, limit_ns > now_ns ? static_cast<int>((limit_ns - now_ns) / 1'000'000 + 1) : 0);
    loop_.run_ready();
    files_.tick(monotonic_now_ns());
    if (phase_ != Phase::kServing) return cancelled("{}: a signal came while it was read", configuration_file_.string());
  }
  return check_configuration(*search);
}

Status Daemon::open_sockets() {
  SHOAL_ASSIGN_OR_RETURN(client_router_, wire::Router::create(context_));
  SHOAL_ASSIGN_OR_RETURN(lane_router_, wire::Router::create(context_));
  clients_ = std::make_unique<Clients>(directory_, loop_, *this, log_);
  clients_->count_unsent(memory_.unsent());
  return clients_->listen();
}

Status Daemon::watch_signals() {
  const sigset_t set = daemon_signals();
  signals_.reset(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals_) return status_from_errno("create", "signalfd", errno);
  return loop_.watch(signals_.get(), [this] { handle_signal(); });
}

void Daemon::handle_signal() {
  signalfd_siginfo info{};
  while (::read(signals_.get(), &info, sizeof info) == sizeof info) {
    if (info.ssi_signo == SIGCHLD) {
      reap_ns_ = monotonic_now_ns() + kReapDelayNs;
      continue;
    }
    if (info.ssi_signo == SIGHUP) {
      reload_configuration();
      continue;
    }
    // The second signal ends the draining at once.
    if (phase_ != Phase::kServing) phase_limit_ns_ = 0;
    begin_drain(format("signal {}", info.ssi_signo));
  }
}

void Daemon::apply_limits(const ClientLimits& limits) {
  limits_ = limits;
  catalog_.limit_services(static_cast<std::size_t>(limits.models));
  const int percent = limits.client_queue_percent == 0 ? 100 : limits.client_queue_percent;
  ledger_.set_client_shares({.in_flight = static_cast<std::size_t>(limits.client_requests), .of_queue = percent / 100.0});
  clients_->limit_connections(static_cast<std::size_t>(limits.connections), limits.connection_rate);
  clients_->limit_arenas(static_cast<std::uint64_t>(limits.total_arena_gb) << 30);
  memory_.set_limit(limits.total_message_mb, clients_->most());
  std::uint64_t longest_frame_bytes = static_cast<std::uint64_t>(limits.client_message_mb) << 20;
  if (memory_.is_limited()) {
    const std::uint64_t longest = memory_.longest_request_bytes();
    longest_frame_bytes = longest_frame_bytes == 0 ? longest : std::min(longest_frame_bytes, longest);
  }
  clients_->limit_frames(longest_frame_bytes);
  client_router_.limit_frames(longest_frame_bytes);
  births_.longest_reply_bytes = longest_reply_bytes();
  lane_router_.limit_frames(births_.longest_reply_bytes);
}

void Daemon::run() {
  log_.info("serving directory={} models={} pid={}", directory_.path(), catalog_.services().size(), ::getpid());
  std::array<wire::Waitable, 3> waitables{{{.socket = &lane_router_}, {.socket = &client_router_}, {.fd = loop_.fd()}}};
  while (phase_ != Phase::kStopped) {
    const std::uint64_t waits_from_ns = monotonic_now_ns();
    const std::chrono::milliseconds timeout = next_timeout(waits_from_ns);
    wire::wait(waitables, timeout);
    now_ns_ = monotonic_now_ns();
    const bool has_deadline = timeout.count() >= 0;
    const auto waited_ns = has_deadline ? std::optional(static_cast<std::uint64_t>(timeout.count()) * 1'000'000) : std::nullopt;
    if (const std::uint64_t lost_ns = lateness_.turn(now_ns_, waits_from_ns, waited_ns); lost_ns > 0) postpone(lost_ns);
    // First messages of clients, then answers of lanes, then deaths. If a socket is readable, libzmq 4.3.4 has taken half of a
    // message, and aborts the process if that peer is disconnected before the rest is received. A death disconnects lanes and
    // clients; an answer may disconnect a client that reads none.
    if (waitables[1].readable) receive_from_clients();
    if (waitables[0].readable) receive_from_lanes();
    if (waitables[2].readable) {
      loop_.run_ready();
      is_catalog_due_ |= is_catalog_busy_;  // a process may have ended
    }
    tick(now_ns_);
  }
  client_router_.close_after_flush(std::chrono::milliseconds(200));  // clients may still have to read the last answers
  log_.info("stopped directory={}", directory_.path());
}

std::chrono::milliseconds Daemon::next_timeout(std::uint64_t now_ns) const {
  std::optional<std::uint64_t> next = ledger_.next_tick_ns(now_ns);
  const auto earlier = [&](std::optional<std::uint64_t> at_ns) {
    if (at_ns) next = next ? std::min(*next, *at_ns) : *at_ns;
  };
  earlier(clients_->next_tick_ns());
  earlier(files_.next_tick_ns());
  earlier(next_memory_look_ns());
  for (const auto& model : models_) {
    if (model) earlier(model->next_tick_ns());
  }
  for (const LeavingWorker& leaving : leaving_workers_) earlier(leaving.limit_ns);
  if (phase_ != Phase::kStopping) {
    if (is_catalog_due_ || describes_due_ > 0) earlier(now_ns);
    earlier(catalog_tick_ns_);
    earlier(report_again_ns_);
  }
  if (manager_.ping_interval_ns()) earlier(next_ping_ns_);
  if (!unroutable_.empty()) earlier(retry_unroutable_ns_);
  earlier(reap_ns_);
  earlier(look_ns_);
  earlier(deaths_.next_tick_ns());
  if (phase_ != Phase::kServing) earlier(std::min(phase_limit_ns_, now_ns + 10'000'000));
  next = Lateness::next_turn_ns(next, now_ns);
  if (!next) return std::chrono::milliseconds(-1);
  return std::chrono::milliseconds(*next <= now_ns ? 0 : (*next - now_ns) / 1'000'000 + 1);
}

// Other processes may have been frozen together with this one. The watchdog forgets what it saw of lanes before.
void Daemon::postpone(std::uint64_t by_ns) {
  log_.warn("stood_still ms={}", by_ns / 1'000'000);
  files_.postpone(by_ns);
  clients_->postpone(by_ns);
  for (const auto& model : models_) {
    if (model) model->postpone(by_ns);
  }
  catalog_.postpone(by_ns);
  is_catalog_due_ = true;
  for (LeavingWorker& leaving : leaving_workers_) leaving.limit_ns += by_ns;
  watches_.clear();
  look_ns_.reset();
}

void Daemon::tick(std::uint64_t now_ns) {
  ledger_.tick(now_ns);
  clients_->tick(now_ns);
  files_.tick(now_ns);
  watch_memory(now_ns);
  for (const auto& model : models_) {
    const std::optional<std::uint64_t> due_ns = model ? model->next_tick_ns() : std::nullopt;
    if (!due_ns || now_ns < *due_ns) continue;
    if (phase_ == Phase::kServing) model->advance_start(now_ns);
    model->processes().tick(now_ns);
    is_catalog_due_ = true;
  }
  if (!unroutable_.empty() && now_ns >= retry_unroutable_ns_) {
    const std::vector<Incarnation> again = std::exchange(unroutable_, {});
    for (const Incarnation incarnation : again) ledger_.retry(incarnation, now_ns);
  }
  watch_lanes(now_ns);
  deaths_.tick(now_ns);
  if (reap_ns_ && now_ns >= *reap_ns_) {
    reap_ns_.reset();
    reap_orphans();
    births_.sweep_unborn(now_ns);
  }
  perform();
  advance_leaving_workers(now_ns);
  if (phase_ != Phase::kStopping) {
    is_catalog_due_ |= catalog_tick_ns_ && now_ns >= *catalog_tick_ns_;
    if (is_catalog_due_) advance_catalog(now_ns);
    if (report_again_ns_ && now_ns >= *report_again_ns_) report_state();
    answer_waiting_describes();
  }
  if (manager_.ping_interval_ns() && now_ns >= next_ping_ns_) {
    manager_.notify("WATCHDOG=1");
    next_ping_ns_ = now_ns + *manager_.ping_interval_ns();
  }
  if (phase_ != Phase::kServing) advance_shutdown(now_ns);
}

void Daemon::begin_drain(const std::string& why) {
  if (phase_ != Phase::kServing) return;
  log_.info("draining reason=\"{}\"", why);
  phase_ = Phase::kDraining;
  phase_limit_ns_ = monotonic_now_ns() + kDrainLimitNs;
  manager_.notify("STOPPING=1\nSTATUS=answering the admitted requests");
  catalog_.close(unavailable("the daemon is shutting down"));
  perform_catalog();
  reading_configuration_.reset();
  searches_.clear();
  ledger_.drain();
  if (clients_) clients_->refuse_new("the daemon is shutting down");
}

void Daemon::advance_shutdown(std::uint64_t now_ns) {
  const bool over = now_ns >= phase_limit_ns_;
  if (phase_ == Phase::kDraining && (ledger_.idle() || over)) {
    ledger_.fail_everything(StatusCode::kUnavailable, "the daemon is shutting down", now_ns);
    perform();
    for (const auto& model : models_) {
      if (model) model->end();
    }
    phase_ = Phase::kStopping;
    phase_limit_ns_ = now_ns + kExitLimitNs;
  } else if (phase_ == Phase::kStopping) {
    const bool all_gone = std::ranges::all_of(models_, [](const auto& model) { return !model || model->processes().all_gone(); });
    if (over) {
      for (const auto& model : models_) {
        if (model) model->processes().kill_all();
      }
    }
    if (all_gone || over) phase_ = Phase::kStopped;
  }
}

}  // namespace shoal::supervisor
