// Clock: CLOCK_MONOTONIC in nanoseconds, and a clock that tests set by hand.
#pragma once

#include <cstdint>

namespace shoal {

/// Nanoseconds of CLOCK_MONOTONIC; comparable between processes of one machine.
std::uint64_t monotonic_now_ns();

/// A source of time. Threads: thread-safe unless a subclass says otherwise.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual std::uint64_t now_ns() const { return monotonic_now_ns(); }
};

/// Changes only when advance_ns() is called. Threads: thread-bound.
class ManualClock : public Clock {
 public:
  std::uint64_t now_ns() const override { return now_ns_; }
  void advance_ns(std::uint64_t step_ns) { now_ns_ += step_ns; }

 private:
  std::uint64_t now_ns_ = 1;
};

}  // namespace shoal
