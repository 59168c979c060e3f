// MemoryLimit: the private memory that a worker may take (`memory_mb`), and what is said when it is not enough.
#pragma once

#include <cstdint>
#include <string_view>

#include "shoal/result.hpp"

namespace shoal::worker {

/// RLIMIT_DATA of this process. Where it is reached allocations fail: std::bad_alloc, which those who answer requests turn into
/// exceeded(). What the zygote made is shared and does not count, nor do the stacks of threads.
///   Threads  thread-compatible
class MemoryLimit {
 public:
  MemoryLimit() = default;  ///< no limit
  /// From now on this process may take `memory_mb` MiB; 0 = no limit.
  ///   threads_to_come  whose stacks are left out; those of threads that run already are
  ///   Errors  kInternal: /proc cannot be read, or the limit not be set
  static Result<MemoryLimit> set(int memory_mb, std::size_t threads_to_come);

  /// kFailedPrecondition: `what` needs more memory than there is; names the limit.
  Status exceeded(std::string_view what) const;
  /// Is most of it taken, though the caller has just given back what it can? Then the process is of no use any more.
  bool is_spent() const;

 private:
  MemoryLimit(int memory_mb, std::uint64_t base_bytes) : memory_mb_(memory_mb), base_bytes_(base_bytes) {}

  int memory_mb_ = 0;
  std::uint64_t base_bytes_ = 0;  ///< taken before
};

}  // namespace shoal::worker
