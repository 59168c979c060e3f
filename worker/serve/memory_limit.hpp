// MemoryLimit: the private memory that a worker may use (`memory_mb`), and the error if it is not enough.
#pragma once

#include <cstdint>
#include <string_view>

#include "shoal/result.hpp"

namespace shoal::worker {

/// RLIMIT_DATA of this process. Beyond it allocations throw std::bad_alloc, which becomes the answer exceeded(). The limit does
/// not count memory that the zygote made, which is shared, nor the stacks of threads.
///   Threads  thread-compatible
class MemoryLimit {
 public:
  MemoryLimit() = default;  ///< no limit
  /// From now on this process may use `memory_mb` MiB more; 0 = no limit.
  ///   threads_to_come  threads that will start; their stacks do not count, like those of threads that run now
  ///   Errors  kInternal: /proc cannot be read, or the limit cannot be set
  static Result<MemoryLimit> set(int memory_mb, std::size_t threads_to_come);

  /// kFailedPrecondition: `what` needs more memory than is left. Names the limit.
  Status exceeded(std::string_view what) const noexcept;
  /// Is most of the memory in use, although the caller has just given back all it can? Then the process should end.
  bool is_spent() const;

 private:
  MemoryLimit(int memory_mb, std::uint64_t base_bytes) : memory_mb_(memory_mb), base_bytes_(base_bytes) {}

  int memory_mb_ = 0;
  std::uint64_t base_bytes_ = 0;  ///< used before the limit was set
};

}  // namespace shoal::worker
