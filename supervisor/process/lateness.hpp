// How long the loop stood still: this process was stopped, its container was frozen, or it was starved.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

namespace shoal::supervisor {

/// Compares when the loop turns with when it should have. Nobody is blamed for time in which this process did not run: the
/// caller postpones the deadlines of others by it.
///   Threads  thread-bound
class Lateness {
 public:
  /// While there is a deadline, the loop waits no longer than this. So a standstill is noticed before the deadline is over.
  static constexpr std::uint64_t kLongestWaitNs = 250'000'000;
  /// On a busy machine a turn begins less late than this.
  static constexpr std::uint64_t kLateNs = 250'000'000;
  /// The work of a turn takes less than this.
  static constexpr std::uint64_t kLongestTurnNs = 1'000'000'000;

  /// When to turn again at the latest: at `due_ns` or before. None: only when something happens.
  static std::optional<std::uint64_t> next_turn_ns(std::optional<std::uint64_t> due_ns, std::uint64_t now_ns) {
    return due_ns ? std::optional(std::min(*due_ns, now_ns + kLongestWaitNs)) : std::nullopt;
  }
  /// A turn begins. The loop began to wait for it at `waits_from_ns` and was ready to wait for `waited_ns`; none: there was no
  /// deadline. Returns the time since the last turn began if the loop stood still meanwhile, else 0.
  std::uint64_t turn(std::uint64_t now_ns, std::uint64_t waits_from_ns, std::optional<std::uint64_t> waited_ns) {
    const std::uint64_t last_ns = std::exchange(last_ns_, now_ns);
    if (last_ns == 0 || !waited_ns) return 0;
    const bool is_late = now_ns > waits_from_ns + *waited_ns + kLateNs;
    return is_late || waits_from_ns > last_ns + kLongestTurnNs ? now_ns - last_ns : 0;
  }

 private:
  std::uint64_t last_ns_ = 0;  // when the last turn began
};

}  // namespace shoal::supervisor
