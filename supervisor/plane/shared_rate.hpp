// A limit per second for all processes together, of which each has a share.
#pragma once

#include <algorithm>
#include <cstdint>

namespace shoal::supervisor {

/// What one process has had of a SharedRate.
struct RateShare {
  std::uint64_t period = 0, used = 0, last = 0;
};

/// For work that keeps others waiting while it is done. All processes together may have `all` in each second. When half of that
/// is used up, a process may have its share of the other half. How much a piece of work costs is known only when it is done. So
/// it is taken to cost as much as the last one of its process, and half as much after each kForgetsAfter seconds in which that
/// had nothing, so that nobody waits for ever. Reads no clock.
///   Threads  thread-bound
class SharedRate {
 public:
  static constexpr std::uint64_t kPeriodNs = 1'000'000'000, kForgetsAfter = 32;

  explicit SharedRate(std::uint64_t all) : all_(all) {}

  /// Whether a process may have more now.
  bool allows(const RateShare& share, std::uint64_t now_ns) {
    begin_period(now_ns);
    if (used_ < all_ / 2) return true;
    const bool is_new = share.period != period_;
    const std::uint64_t own = is_new ? 0 : share.used;
    const std::uint64_t idle = is_new ? period_ - share.period - 1 : 0;  // whole seconds
    return used_ < all_ &&
           own + (share.last >> std::min<std::uint64_t>(idle / kForgetsAfter, 63)) <= all_ / 2 / (processes_ + is_new);
  }
  /// It has had that much.
  void charge(RateShare& share, std::uint64_t amount, std::uint64_t now_ns) {
    begin_period(now_ns);
    if (share.period != period_) {
      share.period = period_;
      share.used = 0;
      ++processes_;
    }
    share.used += amount;
    share.last = amount;
    used_ += amount;
  }
  /// Whether a process had nothing for so long that its last piece of work begins to count less.
  static bool has_forgotten(const RateShare& share, std::uint64_t now_ns) {
    return share.last == 0 || now_ns / kPeriodNs > share.period + kForgetsAfter;
  }
  /// When all of it is free again.
  std::uint64_t wait_ms(std::uint64_t now_ns) const { return ((period_ + 1) * kPeriodNs - now_ns) / 1'000'000 + 1; }
  std::uint64_t all() const { return all_; }
  /// In this second.
  std::uint64_t used() const { return used_; }

 private:
  void begin_period(std::uint64_t now_ns) {
    if (now_ns / kPeriodNs == period_) return;
    period_ = now_ns / kPeriodNs;
    used_ = processes_ = 0;
  }

  std::uint64_t all_;
  std::uint64_t period_ = 0, used_ = 0, processes_ = 0;  // those that have had something
};

}  // namespace shoal::supervisor
