// A limit per second that allows a burst after a pause.
#pragma once

#include <algorithm>
#include <cstdint>

namespace shoal::supervisor {

/// A token bucket. Its state is the time at which the next event is allowed. Reads no clock.
///   Threads  thread-bound
class RateLimit {
 public:
  /// After a pause the events of `saved_ns` are allowed at once, and at least `least`.
  explicit RateLimit(std::uint64_t saved_ns, std::uint64_t least = 1) : saved_ns_(saved_ns), least_(least) {}

  /// When the next event is allowed. A time in the past means now.
  std::uint64_t next_ns() const { return next_ns_; }
  /// Milliseconds until then; 0 = now.
  std::uint64_t wait_ms(std::uint64_t now_ns) const { return next_ns_ > now_ns ? (next_ns_ - now_ns) / 1'000'000 + 1 : 0; }
  /// Counts one event if it is allowed now, otherwise returns false. `per_second` 0 = no limit.
  bool take(int per_second, std::uint64_t now_ns) {
    if (per_second == 0) return true;
    if (next_ns_ > now_ns) return false;
    charge(1, per_second, now_ns);
    return true;
  }
  /// Counts events that have happened, whether they were allowed or not.
  void charge(std::uint64_t events, int per_second, std::uint64_t now_ns) {
    const auto rate = static_cast<std::uint64_t>(per_second);
    const std::uint64_t each_ns = std::max<std::uint64_t>(1'000'000'000 / rate, 1);
    const std::uint64_t saved_from_ns = now_ns - std::min(now_ns, std::max(saved_ns_, least_ * each_ns) - each_ns);
    next_ns_ = std::max(next_ns_, saved_from_ns) + std::max<std::uint64_t>(events * 1'000'000'000 / rate, 1);
  }

 private:
  std::uint64_t saved_ns_, least_;
  std::uint64_t next_ns_ = 0;
};

}  // namespace shoal::supervisor
