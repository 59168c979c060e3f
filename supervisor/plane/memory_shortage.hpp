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
  static constexpr std::uint64_t kSilentAfterNs = 1'000'000'000;   // after that, silent senders may be the cause, too
  static constexpr std::uint64_t kLongestDoubtNs = 3'000'000'000;  // after that, even if the memory goes on growing
  static constexpr std::uint64_t kGrowthBytes = 4 << 20;           // less is no growth
  static constexpr std::uint64_t kFastestGrowth = 4;               // bytes per ns
  static constexpr int kLooks = 2;                                 // so many in a row must find memory short

  /// Takes the result of one look. Returns whether a sender may be put out now.
  bool look(std::uint64_t heap, std::uint64_t most, std::uint64_t now_ns) {
    if (heap <= most) {
      *this = {};
      return false;
    }
    if (!is_short()) since_ns_ = now_ns;
    const std::uint64_t excess = heap - most;
    if (!is_short() || excess > largest_excess_ + kGrowthBytes) {
      grown_ns_ = now_ns;
      largest_excess_ = excess;
    }
    // After a sender was put out, its memory is freed step by step. Meanwhile no other is put out.
    const bool is_being_freed = has_put_out_ && heap < heap_;
    if (is_being_freed) largest_excess_ = excess;
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

  /// Whether a sender may hold the memory: it has finished no message since the shortage began, or none for as long as senders
  /// may be silent, and it is sending or silent senders may be the cause.
  bool may_hold(std::uint64_t last_message_ns, bool is_sending, std::uint64_t now_ns) const {
    const bool has_finished_nothing = last_message_ns < since_ns_ || last_message_ns + kSilentAfterNs <= now_ns;
    return is_short() && has_finished_nothing && (is_sending || includes_silent(now_ns));
  }
  /// Whether senders that are silent may be the cause. Then those that have just stopped are silent for as long, too, and can be
  /// told from those that finish their messages.
  bool includes_silent(std::uint64_t now_ns) const {
    return is_short() && (now_ns - grown_ns_ >= kSilentAfterNs || now_ns - since_ns_ >= kLongestDoubtNs);
  }

  /// For how long memory cannot become short; at most a second.
  static std::uint64_t pause_ns(std::uint64_t held, std::uint64_t most) {
    return std::clamp((most - std::min(held, most)) / kFastestGrowth, kShortestPauseNs, kLongestPauseNs);
  }

 private:
  int looks_ = 0;  // in a row; 0 = memory is not short
  bool has_put_out_ = false;
  std::uint64_t since_ns_ = 0, grown_ns_ = 0;  // when it began, and when it was last seen to have grown
  std::uint64_t heap_ = 0;                     // at the last look
  std::uint64_t largest_excess_ = 0;           // when it had grown
};

}  // namespace shoal::supervisor
