#include "tests/unit/shm/wire/socket_faults.hpp"

#include <poll.h>

#include <cerrno>
#include <cstddef>
#include <ctime>

namespace {
thread_local int interruptions = 0;              // 0 = none; else one more than polls that might have been interrupted
thread_local int allocations_until_failure = 0;  // 0 = none fails
}  // namespace

// libzmq's calls come here, too.
extern "C" int poll(pollfd* fds, nfds_t count, int timeout_ms) {
  if (interruptions > 0 && timeout_ms == 0 && ++interruptions % 2 == 0) {
    errno = EINTR;
    return -1;
  }
  const timespec timeout{timeout_ms / 1000, timeout_ms % 1000 * 1'000'000L};
  return ::ppoll(fds, count, timeout_ms < 0 ? nullptr : &timeout, nullptr);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// libzmq's calls come here, too. Whoever calls free() gets the C library's, which knows what this returns.
extern "C" void* __libc_malloc(std::size_t size);
extern "C" void* malloc(std::size_t size) noexcept {
  if (allocations_until_failure == 0 || --allocations_until_failure > 0) return __libc_malloc(size);
  errno = ENOMEM;
  return nullptr;
}
#endif

namespace shoal::wire {

FailingAllocation::FailingAllocation(int nth) { allocations_until_failure = nth; }
FailingAllocation::~FailingAllocation() { allocations_until_failure = 0; }
bool FailingAllocation::has_failed() { return allocations_until_failure == 0; }

Interruptions::Interruptions() { interruptions = 1; }
Interruptions::~Interruptions() { interruptions = 0; }
int Interruptions::count() { return interruptions / 2; }

}  // namespace shoal::wire
