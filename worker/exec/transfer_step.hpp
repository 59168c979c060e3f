// Steps between the host and a device: copies, and the wait for a device's queue.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "worker/exec/plan.hpp"

namespace shoal::worker {

/// Begin a copy from src to dst, one of which is in the device's memory.
std::unique_ptr<Step> make_copy_in_step(const std::string& what, BufferId src, BufferId dst, std::size_t bytes);
std::unique_ptr<Step> make_copy_out_step(const std::string& what, BufferId src, BufferId dst, std::size_t bytes);
/// Waits until the queue has done all that it was given.
///   in_flight  the host's buffers that the queue reads or writes until then: they stay in use
std::unique_ptr<Step> make_wait_step(const std::string& what, std::vector<BufferId> in_flight);

}  // namespace shoal::worker
