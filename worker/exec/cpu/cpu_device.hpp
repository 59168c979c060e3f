// The device "cpu": oneDNN, float32, direct algorithms; what oneDNN does not take runs by its reference kernel.
#pragma once

#include <memory>

#include "worker/exec/device.hpp"

namespace shoal::worker {

/// `threads` is the width: baked into every primitive when it is created. `fuse` as ModelOptions says.
std::unique_ptr<Device> make_cpu_device(int threads, bool fuse);

}  // namespace shoal::worker
