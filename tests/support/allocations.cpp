#include "tests/support/allocations.hpp"

#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<std::uint64_t> calls{0}, all_bytes{0};
std::atomic<std::size_t> live_bytes{0}, peak_bytes{0};
thread_local constinit std::uint64_t left = 0;  // calls until the one that fails, itself included; 0: none does
thread_local constinit bool all_fail = false;   // also those after it
std::atomic<bool> has_failed{false};

// Returns null on failure.
void* allocate(std::size_t size) noexcept {
  calls.fetch_add(1, std::memory_order_relaxed);
  if (left > 0 && --left == 0) {
    if (all_fail) left = 1;
    has_failed = true;
    return nullptr;
  }
  void* const memory = std::malloc(size ? size : 1);
  if (!memory) return nullptr;
  const std::size_t bytes = ::malloc_usable_size(memory);
  all_bytes.fetch_add(bytes, std::memory_order_relaxed);
  const std::size_t live = live_bytes.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  for (std::size_t peak = peak_bytes.load(std::memory_order_relaxed); live > peak;) {
    if (peak_bytes.compare_exchange_weak(peak, live, std::memory_order_relaxed)) break;
  }
  return memory;
}

[[maybe_unused]] void* allocate_or_throw(std::size_t size) {
  if (void* const memory = allocate(size)) return memory;
  throw std::bad_alloc();
}

[[maybe_unused]] void release(void* memory) noexcept {
  live_bytes.fetch_sub(::malloc_usable_size(memory), std::memory_order_relaxed);
  std::free(memory);
}

}  // namespace

#if SHOAL_COUNTS_ALLOCATIONS
void* operator new(std::size_t size) { return allocate_or_throw(size); }
void* operator new[](std::size_t size) { return allocate_or_throw(size); }
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return allocate(size); }
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept { return allocate(size); }
void operator delete(void* memory) noexcept { release(memory); }
void operator delete[](void* memory) noexcept { release(memory); }
void operator delete(void* memory, std::size_t) noexcept { release(memory); }
void operator delete[](void* memory, std::size_t) noexcept { release(memory); }
#endif

namespace shoal::test {

std::uint64_t allocations() { return calls.load(std::memory_order_relaxed); }
std::uint64_t allocated_bytes() { return all_bytes.load(std::memory_order_relaxed); }

AllocatedPeak::AllocatedPeak() : before_(live_bytes) { peak_bytes = before_; }
std::size_t AllocatedPeak::bytes() const { return peak_bytes - before_; }

void fail_allocation(std::uint64_t number) {
  has_failed = false;
  left = number;
  all_fail = false;
}

void fail_allocations_from(std::uint64_t number) {
  fail_allocation(number);
  all_fail = true;
}

bool has_allocation_failed() { return has_failed; }

AllocationsSucceed::AllocationsSucceed() : left_(left) { left = 0; }
AllocationsSucceed::~AllocationsSucceed() { left = left_; }

}  // namespace shoal::test
