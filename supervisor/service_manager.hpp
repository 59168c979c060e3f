// Tells a service manager such as systemd the state of the daemon: sd_notify(3), one datagram to $NOTIFY_SOCKET.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "supervisor/process/timers.hpp"

namespace shoal::supervisor {

/// Does nothing if no service manager listens.
///   Threads  thread-compatible
class ServiceManager {
 public:
  /// Says nothing.
  ServiceManager() = default;
  /// Takes NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID out of the environment: they are not for our children.
  static ServiceManager from_environment();

  static constexpr std::size_t kLongestStatus = 1000;  // systemd drops a datagram of more than 4096 bytes

  /// Lines such as "READY=1". False if the socket is full: send it again later. True if nobody listens.
  bool notify(const std::string& lines) const;
  /// The text that `systemctl status` shows. It may be any text; it is shortened and becomes one line.
  bool notify_status(std::string text) const;
  /// How often "WATCHDOG=1" is due: half of what the manager waits. Nothing when it does not watch.
  std::optional<std::uint64_t> ping_interval_ns() const { return ping_interval_ns_; }

 private:
  std::string socket_;
  std::optional<std::uint64_t> ping_interval_ns_;
};

/// Keeps a service manager informed of the daemon's life. What its socket had no room for is sent again.
///   Threads  thread-bound
class LifeReports {
 public:
  /// `timers` outlives this.
  LifeReports(ServiceManager manager, Timers& timers);

  /// The loop runs. From now on the manager's watchdog is fed.
  void started();
  /// Another configuration is being read. READY follows with the next state that is settled.
  void reloading();
  /// From now on nothing is said of READY and RELOADING.
  void draining();
  ///   is_settled  whether each model that is wanted serves or has failed
  void state(std::string status, bool is_settled);

 private:
  static constexpr std::uint64_t kAgainNs = 100'000'000;
  void send_state();
  void feed_watchdog();

  const ServiceManager manager_;
  bool awaits_ready_ = true, is_settled_ = false, is_draining_ = false;
  std::string status_, sent_status_;
  Timer again_, watchdog_;
};

}  // namespace shoal::supervisor
