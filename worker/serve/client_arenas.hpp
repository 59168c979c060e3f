// ArenaRegistry: the arenas of the clients that this worker serves.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "shm/base/mutex.hpp"
#include "shm/base/unique_fd.hpp"
#include "shm/segment/segment.hpp"
#include "shoal/result.hpp"

namespace shoal::worker {

/// One client's memory as a worker maps it. A lane holds a reference during a run, so a detach never unmaps memory in use.
struct ClientArenas {
  Segment input;   ///< read-only; the client may write it at any time
  Segment output;  ///< read-write
};

/// The control thread attaches and detaches, the lanes look up.
///   Threads  thread-safe
class ArenaRegistry {
 public:
  /// Maps both. Errors: kInvalidArgument (not two descriptors), those of Segment::map. After an error find() returns the same
  /// error at once.
  Status attach(std::uint64_t client_id, const std::vector<UniqueFd>& fds) SHOAL_EXCLUDES(mutex_);
  void detach(std::uint64_t client_id) SHOAL_EXCLUDES(mutex_);
  /// The client's arenas; waits for their attach message if necessary. Errors: kInternal: the message does not come in time.
  Result<std::shared_ptr<ClientArenas>> find(std::uint64_t client_id, std::chrono::milliseconds limit) SHOAL_EXCLUDES(mutex_);

 private:
  Mutex mutex_;
  Condition attached_;
  std::unordered_map<std::uint64_t, Result<std::shared_ptr<ClientArenas>>> clients_ SHOAL_GUARDED_BY(mutex_);
};

}  // namespace shoal::worker
