// Counts the system calls of a process.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

#include "shm/base/unique_fd.hpp"
#include "shoal/result.hpp"

namespace shoal::bench {

/// Counts from its construction on, in the kernel (tracepoint raw_syscalls:sys_enter), so the process is not slowed down.
///   Threads  thread-bound
class SyscallCount {
 public:
  /// Counts the calls of all threads that the process has now, and of those that these start.
  ///   Errors  kFailedPrecondition (no tracefs at /sys/kernel/tracing, or no right to count: run as root), kNotFound (no such
  ///           process)
  static Result<SyscallCount> of(pid_t process);
  std::uint64_t value() const;

 private:
  std::vector<UniqueFd> threads_;
};

}  // namespace shoal::bench
