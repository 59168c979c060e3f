// DeviceQueues: a Context's queues, one per device that its programs use.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <vector>

#include "worker/exec/backend.hpp"
#include "worker/exec/program.hpp"

namespace shoal::worker {

struct DeviceQueue {
  std::shared_ptr<const Backend> backend;
  std::unique_ptr<Queue> queue;
  std::byte* arena = nullptr;  ///< in the device's memory
  std::size_t arena_bytes = 0;
};

/// Threads: thread-bound
class DeviceQueues {
 public:
  /// The queue to that device, with an arena at least that large. Opens it if it is not open. The reference stays valid until
  /// release().
  ///   Errors  those of Backend::open_queue() and Queue::reserve()
  Result<DeviceQueue*> open(const std::shared_ptr<const Backend>& backend, std::size_t arena_bytes);
  void release() { queues_.clear(); }  ///< allocates nothing

 private:
  std::list<DeviceQueue> queues_;
};

/// Says in the lane's status line that the run waits for a device.
class WaitsForDevice {
 public:
  explicit WaitsForDevice(Progress* progress) : flag_(progress != nullptr ? progress->waits_for_device : nullptr) { set(1); }
  ~WaitsForDevice() { set(0); }
  WaitsForDevice(const WaitsForDevice&) = delete;
  WaitsForDevice& operator=(const WaitsForDevice&) = delete;

 private:
  void set(std::uint64_t value) {
    if (flag_ != nullptr) flag_->store(value, std::memory_order_relaxed);
  }
  std::atomic<std::uint64_t>* flag_;
};

/// Waits until `fd` is readable, without using processor time. `progress`, which may be null, says meanwhile that the run waits
/// for a device.
///   Returns  false if the progress says that the run shall stop; asked 100 times a second
bool wait_for_device(int fd, Progress* progress);

/// Leaves nothing running in the queues at the end of its scope, whichever way the scope ends: they read and write memory that
/// the caller of a run owns.
class QueuesAtRest {
 public:
  QueuesAtRest(std::span<DeviceQueue* const> queues, Progress* progress) : queues_(queues), progress_(progress) {}
  ~QueuesAtRest();
  QueuesAtRest(const QueuesAtRest&) = delete;
  QueuesAtRest& operator=(const QueuesAtRest&) = delete;
  /// All has ended already: the last step was a wait for each of them.
  void are_at_rest() { queues_ = {}; }

 private:
  std::span<DeviceQueue* const> queues_;
  Progress* progress_;
};

}  // namespace shoal::worker
