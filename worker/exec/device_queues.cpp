#include "worker/exec/device_queues.hpp"

#include <poll.h>

#include <algorithm>

#include "shm/base/errors.hpp"

namespace shoal::worker {
namespace {

constexpr int kLookMs = 10;  // how often a waiting run asks whether it shall stop

}  // namespace

Result<DeviceQueue*> DeviceQueues::open(const std::shared_ptr<const Backend>& backend, std::size_t arena_bytes) {
  auto found = std::ranges::find(queues_, backend, &DeviceQueue::backend);
  if (found == queues_.end()) {
    SHOAL_ASSIGN_OR_RETURN(auto queue, backend->open_queue());
    found = queues_.insert(queues_.end(), DeviceQueue{backend, std::move(queue)});
  }
  if (found->arena_bytes < arena_bytes) {
    SHOAL_ASSIGN_OR_RETURN(found->arena, found->queue->reserve(arena_bytes));
    found->arena_bytes = arena_bytes;
  }
  return &*found;
}

bool wait_for_device(int fd, Progress* progress) {
  const WaitsForDevice waiting(progress);
  pollfd device{fd, POLLIN, 0};
  const bool may_stop = progress != nullptr && progress->stop != nullptr;
  while (::poll(&device, 1, may_stop ? kLookMs : -1) <= 0) {  // 0: no event yet; -1: a signal came
    if (may_stop && progress->stop->should_stop()) return false;
  }
  return true;
}

QueuesAtRest::~QueuesAtRest() {
  for (DeviceQueue* const device : queues_) device->queue->cancel();
  for (DeviceQueue* const device : queues_) {
    const WaitsForDevice waiting(progress_);
    pollfd fd{device->queue->start(), POLLIN, 0};
    while (::poll(&fd, 1, -1) <= 0) {
    }
    (void)device->queue->finish();  // the run has failed already, or was told to end
  }
}

}  // namespace shoal::worker
