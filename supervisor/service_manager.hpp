// What a service manager such as systemd hears of the daemon: sd_notify(3), one datagram to $NOTIFY_SOCKET.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace shoal::supervisor {

/// Silent where nobody listens.
///   Threads  thread-compatible
class ServiceManager {
 public:
  /// Says nothing.
  ServiceManager() = default;
  /// Takes NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID out of the environment: they are not for our children.
  static ServiceManager from_environment();

  /// Lines such as "READY=1"; best effort.
  void notify(const std::string& lines) const;
  /// How often "WATCHDOG=1" is due: half of what the manager waits. Nothing when it does not watch.
  std::optional<std::uint64_t> ping_interval_ns() const { return ping_interval_ns_; }

 private:
  std::string socket_;
  std::optional<std::uint64_t> ping_interval_ns_;
};

}  // namespace shoal::supervisor
