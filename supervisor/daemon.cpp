#include "supervisor/daemon.hpp"

#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "shm/base/clock.hpp"
#include "shm/base/errors.hpp"
#include "supervisor/process/spawn.hpp"

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
      plane_({clock_, client_router_, lane_router_, directory_, loop_, timers_, log}, *this),
      fleet_(std::move(options.fleet), clock_, directory_, loop_, timers_, plane_, *this, log),
      admin_(plane_, fleet_, timers_, directory_.path(), [this](const std::string& why) { begin_drain(why); }),
      reports_(std::move(options.manager), timers_),
      socket_group_(options.socket_group),
      phase_limit_(timers_, Timer::Kind::kClock, [this](std::uint64_t) { advance_shutdown(true); }),
      reap_(timers_, Timer::Kind::kClock, [this](std::uint64_t now_ns) {
        Closer& closer = *loop_.shared_closer();
        const auto is_anothers = [&](pid_t pid) { return closer.ends_groups() || closer.is_reaping(pid) || fleet_.watches(pid); };
        if (!reap_children(is_anothers, [&](pid_t pid, UniqueFd pidfd) { closer.reap_child(pid, std::move(pidfd)); }))
          return reap_.set(now_ns + kReapAgainNs);
        fleet_.births().sweep_unborn(now_ns);
      }) {}

Daemon::~Daemon() {
  if (signals_) loop_.forget(signals_.get());
}

Result<std::unique_ptr<Daemon>> Daemon::start(DaemonOptions options, SocketDirectory directory, Logger& log) {
  SHOAL_RETURN_IF_ERROR(start_spawner());
  std::unique_ptr<Daemon> daemon(new Daemon(std::move(options), std::move(directory), log));
  SHOAL_RETURN_IF_ERROR(daemon->watch_signals());
  SHOAL_ASSIGN_OR_RETURN(const DaemonConfig configured,
                         daemon->fleet_.read_configuration([&] { return daemon->phase_ != Phase::kServing; }));
  SHOAL_ASSIGN_OR_RETURN(daemon->client_router_, wire::Router::create(daemon->context_, /*opens_bundles=*/false));
  SHOAL_ASSIGN_OR_RETURN(daemon->lane_router_, wire::Router::create(daemon->context_));
  SHOAL_RETURN_IF_ERROR(daemon->plane_.open());
  daemon->limits_changed(configured.limits);
  SHOAL_RETURN_IF_ERROR(daemon->apply_access(configured.access));  // before anybody can connect
  SHOAL_RETURN_IF_ERROR(daemon->plane_.clients().listen());
  daemon->fleet_.start(configured);
  return daemon;
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
      reap_.set_earlier(monotonic_now_ns() + kReapDelayNs);
      continue;
    }
    if (info.ssi_signo == SIGHUP) {
      reload();
      continue;
    }
    // The second signal ends the draining at once.
    if (phase_ != Phase::kServing) phase_limit_.set(0);
    begin_drain(format("signal {}", info.ssi_signo));
  }
}

// ---- what the parts tell each other ----

void Daemon::control_received(Client& client, std::uint64_t seq, std::span<const std::byte> json) {
  admin_.handle(client, seq, json);
}

void Daemon::client_left(Client& client) {
  admin_.client_left(client);
  fleet_.client_left(client.id);
}

std::vector<std::string_view> Daemon::descriptions() { return admin_.descriptions(); }

void Daemon::became_idle(const RoutedVersion&) { fleet_.wake(); }

void Daemon::wish_answered(const AnswerCaller& answer) { admin_.wish_answered(answer); }

void Daemon::services_changed() { admin_.services_changed(); }

void Daemon::limits_changed(const ClientLimits& limits) {
  plane_.apply_limits(limits);
  fleet_.births().longest_reply_bytes = plane_.longest_reply_bytes();
}

void Daemon::access_changed(const AccessRules& access) {
  if (const Status applied = apply_access(access); !applied.ok())
    log_.error("socket_group_refused reason=\"{}\"", applied.message());
}

Status Daemon::apply_access(AccessRules access) {
  if (socket_group_) access.socket_group = *socket_group_;
  const Status shared = directory_.share_with(access.socket_group);
  if (!shared.ok()) access.socket_group.reset();
  if (access.has_roles() && !access.socket_group)
    log_.warn("roles_without_socket_group: only the daemon's user and root reach its socket, and they have all roles");
  plane_.clients().set_access(std::move(access));
  return shared;
}

// ---- the loop ----

void Daemon::run() {
  log_.info("serving directory={} models={} pid={}", directory_.path(), fleet_.catalog().services().size(), ::getpid());
  reports_.started();
  std::array<wire::Waitable, 3> waitables{{{.socket = &lane_router_}, {.socket = &client_router_}, {.fd = loop_.fd()}}};
  while (phase_ != Phase::kStopped) {
    const std::uint64_t waits_from_ns = monotonic_now_ns();
    const std::chrono::milliseconds timeout = next_timeout(waits_from_ns);
    wire::wait(waitables, timeout);
    const std::uint64_t now_ns = monotonic_now_ns();
    plane_.begin_turn(now_ns);
    const bool has_deadline = timeout.count() >= 0;
    const auto waited_ns = has_deadline ? std::optional(static_cast<std::uint64_t>(timeout.count()) * 1'000'000) : std::nullopt;
    if (const std::uint64_t lost_ns = lateness_.turn(now_ns, waits_from_ns, waited_ns); lost_ns > 0) stood_still(lost_ns);
    // First messages of clients, then answers of lanes, then deaths. If a socket is readable, libzmq 4.3.4 has taken half of a
    // message, and aborts the process if that peer is disconnected before the rest is received. A death disconnects lanes and
    // clients; an answer may disconnect a client that reads none.
    if (waitables[1].readable) plane_.receive_from_clients();
    if (waitables[0].readable) plane_.receive_from_lanes();
    if (waitables[2].readable) {
      loop_.run_ready();
      fleet_.events_came();
    }
    timers_.run_due(now_ns);
    if (phase_ != Phase::kServing) advance_shutdown(false);
    plane_.flush();
  }
  client_router_.close_after_flush(std::chrono::milliseconds(200));  // clients may still have to read the last answers
  log_.info("stopped directory={}", directory_.path());
}

std::chrono::milliseconds Daemon::next_timeout(std::uint64_t now_ns) const {
  const auto next = Lateness::next_turn_ns(timers_.next_ns(), now_ns);
  if (!next) return std::chrono::milliseconds(-1);
  return std::chrono::milliseconds(*next <= now_ns ? 0 : (*next - now_ns) / 1'000'000 + 1);
}

void Daemon::stood_still(std::uint64_t for_ns) {
  log_.warn("stood_still ms={}", for_ns / 1'000'000);
  timers_.postpone(for_ns);
  plane_.stood_still();
  fleet_.postpone(for_ns);
}

void Daemon::reload() {
  if (phase_ != Phase::kServing) return;
  reports_.reloading();
  fleet_.reload_configuration();
}

// ---- the end ----

void Daemon::begin_drain(const std::string& why) {
  if (phase_ != Phase::kServing) return;
  log_.info("draining reason=\"{}\"", why);
  phase_ = Phase::kDraining;
  phase_limit_.set(monotonic_now_ns() + kDrainLimitNs);
  reports_.draining();
  fleet_.close(unavailable("the daemon is shutting down"));
  plane_.drain("the daemon is shutting down");
}

// Goes on as soon as nothing is left to wait for, or when the time limit of the phase is over.
void Daemon::advance_shutdown(bool is_over) {
  if (phase_ == Phase::kDraining && (plane_.is_idle() || is_over)) {
    plane_.fail_everything("the daemon is shutting down");
    fleet_.end();
    phase_ = Phase::kStopping;
    phase_limit_.set(monotonic_now_ns() + kExitLimitNs);
  } else if (phase_ == Phase::kStopping) {
    if (is_over) fleet_.kill_all();
    if (is_over || fleet_.all_gone()) phase_ = Phase::kStopped;
  }
}

}  // namespace shoal::supervisor
