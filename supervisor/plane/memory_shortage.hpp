// When memory counts as short, and who is then put out.
#pragma once

#include <algorithm>
#include <cstdint>

namespace shoal::supervisor {

/// Follows a shortage of memory from look to look. A sender is a client or a lane. Reads no clock and measures nothing.
///   Threads  thread-bound
class MemoryShortage {
 public:
  static constexpr std::uint64_t kShortestPauseNs = 10'000'000, kLongestPauseNs = 1'000'000'000;
  static constexpr std::uint64_t kSilentAfterNs = 1'000'000'000;  // after that, silent senders may be the cause, too
  static constexpr std::uint64_t kFastestGrowth = 4;              // bytes per ns
  static constexpr int kLooks = 2;                                // so many in a row must find memory short

  /// Takes the result of one look. Returns whether a sender may be put out now.
  bool look(std::uint64_t heap, std::uint64_t most, std::uint64_t now_ns) {
    if (heap <= most) {
      *this = {};
      return false;
    }
    if (!is_short()) since_ns_ = now_ns;
    // After a sender was put out, its memory is freed step by step. Meanwhile no other is put out.
    const bool is_being_freed = has_put_out_ && heap < heap_;
    heap_ = heap;
    looks_ = is_being_freed ? 1 : std::min(looks_ + 1, kLooks);
    return looks_ == kLooks;
  }
  /// A sender was put out. The count of looks starts again.
  void put_out() {
    looks_ = 1;
    has_put_out_ = true;
  }
  bool is_short() const { return looks_ > 0; }

  /// Whether a sender may hold the memory: it finished no message since the shortage began, and it is sending or the shortage
  /// has lasted long.
  bool may_hold(std::uint64_t last_message_ns, bool is_sending, std::uint64_t now_ns) const {
    return is_short() && last_message_ns < since_ns_ && (is_sending || includes_silent(now_ns));
  }
  bool includes_silent(std::uint64_t now_ns) const { return is_short() && now_ns - since_ns_ >= kSilentAfterNs; }

  /// For how long memory cannot become short; at most a second.
  static std::uint64_t pause_ns(std::uint64_t held, std::uint64_t most) {
    return std::clamp((most - std::min(held, most)) / kFastestGrowth, kShortestPauseNs, kLongestPauseNs);
  }

 private:
  int looks_ = 0;  // in a row; 0 = memory is not short
  bool has_put_out_ = false;
  std::uint64_t since_ns_ = 0;
  std::uint64_t heap_ = 0;  // at the last look
};

}  // namespace shoal::supervisor
