// The time to wait before the next start: longer after each failure.
#pragma once

#include <algorithm>
#include <cstdint>

namespace shoal::supervisor {

/// 100 ms, doubling to 30 s. A success starts again at 100 ms.
///   Threads  thread-compatible
class Backoff {
 public:
  static constexpr std::uint64_t kFirstNs = 100'000'000, kLongestNs = 30'000'000'000;

  /// Counts a failure. Returns when the next start may be made.
  std::uint64_t failed(std::uint64_t now_ns) {
    delay_ns_ = failures_++ == 0 ? kFirstNs : std::min(delay_ns_ * 2, kLongestNs);
    return now_ns + delay_ns_;
  }
  void succeeded() { failures_ = 0; }
  int failures() const { return failures_; }

 private:
  int failures_ = 0;
  std::uint64_t delay_ns_ = 0;
};

}  // namespace shoal::supervisor
