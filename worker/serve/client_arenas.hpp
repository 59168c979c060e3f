// ArenaRegistry: the arenas of the clients that this worker serves.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
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
  std::unique_ptr<ClientArenas> next_dropped = nullptr;
};

/// The control thread attaches and detaches, the lanes look up. Unmapping takes half a second per GiB if nobody else has the
/// memory, so a thread of its own does it.
///   Threads  thread-safe
class ArenaRegistry {
 public:
  ArenaRegistry() = default;
  /// No reference to arenas may be left.
  ~ArenaRegistry();
  /// Maps both. Errors: kInvalidArgument (not two descriptors), those of Segment::map. After an error find() returns the same
  /// error at once; where addresses or memory are lacking it tries again first.
  Status attach(std::uint64_t client_id, const std::vector<UniqueFd>& fds) SHOAL_EXCLUDES(mutex_);
  void detach(std::uint64_t client_id) SHOAL_EXCLUDES(mutex_);
  /// The client's arenas. If their attach message has not come, calls `before_wait` and waits for it. Errors: kInternal: the
  /// message does not come in time.
  Result<std::shared_ptr<ClientArenas>> find(
      std::uint64_t client_id, std::chrono::milliseconds limit, const std::function<void()>& before_wait = [] {})
      SHOAL_EXCLUDES(mutex_);

 private:
  struct Client {
    Result<std::shared_ptr<ClientArenas>> arenas;
    /// What they are mapped from, if memory was lacking.
    std::shared_ptr<const std::vector<UniqueFd>> unmapped = nullptr;
  };

  Result<std::shared_ptr<ClientArenas>> map_arenas(std::uint64_t client_id, const std::vector<UniqueFd>& fds);
  std::optional<Client> look_up(std::uint64_t client_id) SHOAL_EXCLUDES(mutex_);
  Result<std::shared_ptr<ClientArenas>> try_again(std::uint64_t client_id, Client client) SHOAL_EXCLUDES(mutex_);
  void drop(ClientArenas* arenas) SHOAL_EXCLUDES(mutex_);
  void start_unmapper() SHOAL_EXCLUDES(mutex_);
  void unmap_dropped() SHOAL_EXCLUDES(mutex_);

  Mutex mutex_;
  Condition attached_;
  std::unordered_map<std::uint64_t, Client> clients_ SHOAL_GUARDED_BY(mutex_);
  Condition dropped_one_;
  std::unique_ptr<ClientArenas> dropped_ SHOAL_GUARDED_BY(mutex_);  ///< a list: to put one in allocates nothing
  bool has_unmapper_ SHOAL_GUARDED_BY(mutex_) = false, is_stopping_ SHOAL_GUARDED_BY(mutex_) = false;
  std::thread unmapper_;  ///< started by the first attach()
};

}  // namespace shoal::worker
