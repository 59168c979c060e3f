// MemoryLimit: the private memory that a worker may use (`memory_mb`), and the error if it is not enough.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>

#include "shm/base/unique_fd.hpp"
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
  bool is_limited() const { return memory_mb_ != 0; }
  /// Is most of the memory in use, although the caller has just given back all it can? Then the process should end.
  ///   message_bytes  memory of messages that wait for their answers, which does not count
  bool is_spent(std::uint64_t message_bytes = 0) const;
  /// Is at least half of the memory free, so that the messages that the supervisor may send find room? (lane_message_bytes() in
  /// shm/model). Always true if there is no limit.
  ///   message_bytes  memory of messages that is about to be freed, which does not count
  bool leaves_room_to_receive(std::uint64_t message_bytes = 0) const;

 private:
  MemoryLimit(int memory_mb, UniqueFd statm) : memory_mb_(memory_mb), statm_(std::move(statm)) {}
  bool uses_more_than(std::uint64_t bytes) const;
  std::uint64_t bytes() const { return static_cast<std::uint64_t>(memory_mb_) << 20; }

  int memory_mb_ = 0;
  UniqueFd statm_;                ///< /proc/self/statm: a look after each run is one system call
  std::uint64_t base_bytes_ = 0;  ///< used before the limit was set
};

}  // namespace shoal::worker
