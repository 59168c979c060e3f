// Faults that a test lets happen to libzmq's calls in its thread: allocations that fail, and calls of poll() that are
// interrupted.
#pragma once

namespace shoal::wire {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kMayReplaceMalloc = false;  // the sanitizer's is there already
#else
inline constexpr bool kMayReplaceMalloc = true;
#endif

/// While alive the nth allocation of this thread fails. Only where kMayReplaceMalloc.
class FailingAllocation {
 public:
  explicit FailingAllocation(int nth);
  ~FailingAllocation();
  FailingAllocation(const FailingAllocation&) = delete;
  FailingAllocation& operator=(const FailingAllocation&) = delete;
  static bool has_failed();
};

/// While alive every other poll() of this thread that would not wait is interrupted by a signal.
class Interruptions {
 public:
  Interruptions();
  ~Interruptions();
  Interruptions(const Interruptions&) = delete;
  Interruptions& operator=(const Interruptions&) = delete;
  static int count();
};

}  // namespace shoal::wire
