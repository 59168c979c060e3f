// The device "cpu": oneDNN, float32, direct algorithms and where allowed Winograd's; what oneDNN does not take runs by a loop of
// ours or by its reference kernel.
#pragma once

#include <memory>

#include "worker/exec/device.hpp"

namespace shoal::worker {

/// `options.threads` is the width: baked into every primitive when it is created.
std::unique_ptr<Device> make_cpu_device(const DeviceOptions& options);

}  // namespace shoal::worker
