// Counts the allocations of a test program and lets one of them fail. Linking this replaces the program's operator new.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace shoal::test {

/// Whether anything is counted and fails: the ThreadSanitizer of clang has an operator new that no program replaces.
#if defined(__clang__) && defined(__SANITIZE_THREAD__)
#define SHOAL_COUNTS_ALLOCATIONS 0
#else
#define SHOAL_COUNTS_ALLOCATIONS 1
#endif
inline constexpr bool kCountsAllocations = SHOAL_COUNTS_ALLOCATIONS;

/// The number of calls of operator new so far, in all threads.
std::uint64_t allocations();
/// The bytes that operator new has handed out so far, in all threads. It never falls.
std::uint64_t allocated_bytes();

/// How far the bytes that operator new has handed out, in all threads, rise above those at its construction. At most one at a
/// time.
class AllocatedPeak {
 public:
  AllocatedPeak();
  std::size_t bytes() const;

 private:
  std::size_t before_;
};

/// The number-th call of operator new that this thread makes from now on throws std::bad_alloc, and no other; 0: none does.
void fail_allocation(std::uint64_t number);
/// The same for the number-th call and all that follow.
void fail_allocations_from(std::uint64_t number);
/// Has an allocation failed, in any thread, since the last call of one of these?
bool has_allocation_failed();

/// For a scope, allocations of this thread succeed, and fail_allocation() does not count them.
class AllocationsSucceed {
 public:
  AllocationsSucceed();
  ~AllocationsSucceed();
  AllocationsSucceed(const AllocationsSucceed&) = delete;
  AllocationsSucceed& operator=(const AllocationsSucceed&) = delete;

 private:
  std::uint64_t left_;
};

/// Calls attempt(number) for number = 1, 2, ... until it returns false or the test has failed. It is to let allocation `number`
/// fail and to return whether one failed. Fails the test if fewer than `least` did.
template <typename Attempt>
void for_each_allocation(std::uint64_t least, const Attempt& attempt) {
  std::uint64_t number = 1;
  for (bool has_failed = true; has_failed && !::testing::Test::HasFailure(); number += has_failed) {
    SCOPED_TRACE("allocation " + std::to_string(number) + " fails");
    has_failed = attempt(number);
  }
  EXPECT_GT(number, least);
}

}  // namespace shoal::test
