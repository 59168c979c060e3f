// ShrinkRule: when a pool gives memory of its arenas back.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

namespace shoal::client {

/// Arenas are looked at once per window. One that was used to a quarter at most, during the whole window, shrinks to twice what
/// was used. Each time the next windows are twice as long, so a load that comes and goes does not shrink and grow them all the
/// time. Reads no clock.
///   Threads  thread-bound
class ShrinkRule {
 public:
  static constexpr std::uint64_t kFirstWindowNs = 5'000'000'000, kLongestWindowNs = 600'000'000'000;
  static constexpr std::uint64_t kAlwaysKept = 4 << 20;  ///< an arena up to here is left alone

  /// A window begins.
  void begin(std::uint64_t now_ns) { ends_ns_ = now_ns + window_ns_; }
  /// Likewise, after memory was given back, or after that was tried in vain.
  void begin_longer(std::uint64_t now_ns) {
    window_ns_ = std::min(2 * window_ns_, kLongestWindowNs);
    begin(now_ns);
  }
  bool is_over(std::uint64_t now_ns) const { return now_ns >= ends_ns_; }

  /// How much of an arena is kept. Nothing if it is left alone.
  ///   peak_bytes  the most that was used during the window
  static std::optional<std::uint64_t> keep(std::uint64_t allocated_bytes, std::uint64_t peak_bytes) {
    if (allocated_bytes <= kAlwaysKept || peak_bytes > allocated_bytes / 4) return std::nullopt;
    return 2 * peak_bytes;
  }
  /// Whether an arena that shrinks to `keep_bytes`, a part at a time, goes on. If more was used since it began, it would have to
  /// grow again.
  static bool goes_on(std::uint64_t keep_bytes, std::uint64_t peak_bytes) {
    return peak_bytes <= std::max(keep_bytes, kAlwaysKept);
  }

 private:
  std::uint64_t window_ns_ = kFirstWindowNs;
  std::uint64_t ends_ns_ = kFirstWindowNs;
};

}  // namespace shoal::client
