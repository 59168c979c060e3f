// Faults that a test lets happen to libzmq's calls in its thread: allocations that fail, and calls of poll() that are
// interrupted.
#pragma once

#include "tests/support/sanitizers.hpp"

namespace shoal::wire {

inline constexpr bool kMayReplaceMalloc = !test::kSanitized;  // the sanitizer's is there already

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
