// The device "cpu": oneDNN in float32, with direct algorithms and, where allowed, Winograd's. Nodes that oneDNN does not
// support run by one of Shoal's loops or by their oracle kernel.
#pragma once

#include <memory>

#include "worker/exec/device.hpp"

namespace shoal::worker {

/// `options.threads` is the width: baked into every primitive when it is created.
std::unique_ptr<Device> make_cpu_device(const DeviceOptions& options);

}  // namespace shoal::worker
