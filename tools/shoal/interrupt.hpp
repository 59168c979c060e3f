// Interrupt: Ctrl-C ends a command that shows or measures something, and is no error.
#pragma once

#include <signal.h>

#include <array>
#include <chrono>
#include <cstdint>

namespace shoal::tool {

inline std::chrono::nanoseconds nanoseconds_of(double seconds) {
  return std::chrono::nanoseconds(static_cast<std::int64_t>(seconds * 1e9));
}

/// While it exists, the first SIGINT or SIGTERM is only remembered. A second one kills the process, as usual. A process has one
/// of them at a time.
///   Threads  thread-bound
class Interrupt {
 public:
  Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;
  ~Interrupt();

  bool came() const;
  /// Sleeps. Returns true as soon as the signal comes, or if it came before.
  bool wait_for(std::chrono::nanoseconds time) const;

 private:
  std::array<struct sigaction, 2> before_{};
};

}  // namespace shoal::tool
