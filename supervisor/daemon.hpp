// The daemon joins the three parts of the supervisor, turns their loop, and ends them.
//
//   clients ◀─ ROUTER ─▶ DataPlane ◀─ ROUTER ─▶ lanes        poll() over both ROUTERs and one epoll descriptor
//                         │     ▲                            (pidfds, control sockets, attach socket, signals)
//        control requests │     │ versions, routes, workers
//                         ▼     │
//                       Admin ─▶ Fleet ─▶ Catalog            which models are to be served
//                         wishes   └────▶ ModelProcesses     zygotes and workers
#pragma once

#include <signal.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "shm/log/log.hpp"
#include "shm/wire/socket.hpp"
#include "supervisor/admin/admin.hpp"
#include "supervisor/fleet/fleet.hpp"
#include "supervisor/plane/data_plane.hpp"
#include "supervisor/process/event_loop.hpp"
#include "supervisor/process/lateness.hpp"
#include "supervisor/process/socket_directory.hpp"
#include "supervisor/process/timers.hpp"
#include "supervisor/service_manager.hpp"

namespace shoal::supervisor {

/// The signals that a daemon takes by descriptor.
sigset_t daemon_signals();

struct DaemonOptions {
  FleetOptions fleet;
  ServiceManager manager;
  std::optional<gid_t> socket_group;  ///< of the command line: instead of the configuration's
};

///   Threads  thread-bound
class Daemon final : public PlaneObserver, public FleetObserver {
 public:
  static constexpr std::uint64_t kDrainLimitNs = 10'000'000'000;
  static constexpr std::uint64_t kExitLimitNs = 2'000'000'000;
  static constexpr std::uint64_t kReapDelayNs = 100'000'000;  // from the end of a child
  static constexpr std::uint64_t kReapAgainNs = 1'000'000;    // while children are left

  /// The signals of daemon_signals() must be blocked in every thread before. Waits while the configuration is read.
  ///   Errors  those of the configuration; kUnavailable, kOverloaded, kDeadlineExceeded: it could not be read in time;
  ///           kCancelled: SIGTERM or SIGINT came meanwhile
  static Result<std::unique_ptr<Daemon>> start(DaemonOptions options, SocketDirectory directory, Logger& log);
  ~Daemon() override;

  /// Serves until a signal or a client stops it. Then answers the admitted requests, until the time limit is over.
  void run();
  /// Who closes the descriptors that strangers have sent.
  const std::shared_ptr<Closer>& shared_closer() const { return loop_.shared_closer(); }

 private:
  enum class Phase { kServing, kDraining, kStopping, kStopped };

  Daemon(DaemonOptions options, SocketDirectory directory, Logger& log);
  Status watch_signals();
  void handle_signal();

  void control_received(Client& client, std::uint64_t seq, std::span<const std::byte> json) override;
  void client_left(Client& client) override;
  std::vector<std::string_view> descriptions() override;
  void became_idle(const RoutedVersion& version) override;
  void wish_answered(const AnswerCaller& answer) override;
  void services_changed() override;
  void fleet_advanced() override { reports_.state(fleet_.summary(), fleet_.is_settled()); }
  void limits_changed(const ClientLimits& limits) override;
  void access_changed(const AccessRules& access) override;

  std::chrono::milliseconds next_timeout(std::uint64_t now_ns) const;
  Status apply_access(AccessRules access);
  void stood_still(std::uint64_t for_ns);
  void reload();
  void begin_drain(const std::string& why);
  void advance_shutdown(bool is_over);

  Logger& log_;
  const SocketDirectory directory_;
  const Clock clock_;
  EventLoop loop_;
  Timers timers_;
  wire::MessageContext context_;
  wire::Router client_router_, lane_router_;
  UniqueFd signals_;
  DataPlane plane_;
  Fleet fleet_;
  Admin admin_;
  LifeReports reports_;
  const std::optional<gid_t> socket_group_;

  Lateness lateness_;
  Phase phase_ = Phase::kServing;
  Timer phase_limit_;
  Timer reap_;  // children that have ended
};

}  // namespace shoal::supervisor
