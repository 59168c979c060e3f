// What a service manager such as systemd hears of the daemon: sd_notify(3), one datagram to $NOTIFY_SOCKET.
#pragma once

#include <cstddef>
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

  static constexpr std::size_t kLongestStatus = 1000;  // systemd drops a datagram of more than 4096 bytes

  /// Lines such as "READY=1". False when there was no room for it: say it again later. True, too, where nobody listens.
  bool notify(const std::string& lines) const;
  /// For who asks how the service is. Text of any kind: it is shortened, and becomes one line.
  bool notify_status(std::string text) const;
  /// How often "WATCHDOG=1" is due: half of what the manager waits. Nothing when it does not watch.
  std::optional<std::uint64_t> ping_interval_ns() const { return ping_interval_ns_; }

 private:
  std::string socket_;
  std::optional<std::uint64_t> ping_interval_ns_;
};

}  // namespace shoal::supervisor
