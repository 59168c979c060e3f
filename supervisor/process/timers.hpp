// Everything that is due at some time, in one heap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <vector>

namespace shoal::supervisor {

class Timers;

/// Calls its handler when it is due. It is set, moved and cleared in O(log n), without an allocation once the heap has grown.
///   Threads  thread-bound
class Timer {
 public:
  /// What a standstill of this process means for it.
  enum class Kind : std::uint8_t {
    kClock,     ///< nothing: it is due at that time
    kPatience,  ///< others could not act either, or could not be heard: it is due so much later
  };
  using Handler = std::function<void(std::uint64_t now_ns)>;

  /// `timers` outlives this.
  Timer(Timers& timers, Kind kind, Handler handler) : timers_(timers), kind_(kind), handler_(std::move(handler)) {}
  ~Timer() { clear(); }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  void set(std::uint64_t at_ns);
  /// Sets it to `at_ns` unless it is due earlier.
  void set_earlier(std::uint64_t at_ns) {
    if (!is_set() || at_ns < at_ns_) set(at_ns);
  }
  void clear();
  bool is_set() const { return place_ != kNoPlace; }
  std::optional<std::uint64_t> at_ns() const { return is_set() ? std::optional(at_ns_) : std::nullopt; }

 private:
  friend class Timers;
  static constexpr std::size_t kNoPlace = std::numeric_limits<std::size_t>::max();
  Timers& timers_;
  const Kind kind_;
  const Handler handler_;
  std::uint64_t at_ns_ = 0, number_ = 0;
  std::size_t place_ = kNoPlace;  // in the heap
};

///   Threads  thread-bound
class Timers {
 public:
  std::optional<std::uint64_t> next_ns() const { return heap_.empty() ? std::nullopt : std::optional(heap_.front()->at_ns_); }
  static constexpr int kMostPerTurn = 16;

  /// Calls the handlers of the timers that are due, the earliest first; of two that are due together, the one that was set first.
  /// A timer is clear when its handler is called. A handler may set, clear and destroy any timer, its own included. What it sets
  /// to a time that is past is due at `now_ns`, and is called in the next call of this function; so is what is due beyond the
  /// first kMostPerTurn.
  void run_due(std::uint64_t now_ns);
  /// This process did not run for so long.
  void postpone(std::uint64_t by_ns);

 private:
  friend class Timer;
  static bool before(const Timer& a, const Timer& b) {
    return a.at_ns_ != b.at_ns_ ? a.at_ns_ < b.at_ns_ : a.number_ < b.number_;
  }
  void add(Timer& timer);
  void remove(Timer& timer);
  void put(std::size_t place, Timer& timer);
  void sift_up(std::size_t place);
  void sift_down(std::size_t place);

  std::vector<Timer*> heap_;
  std::uint64_t running_ns_ = 0;  // the time for which handlers are being called; 0: none is
  std::uint64_t last_number_ = 0;
};

}  // namespace shoal::supervisor
