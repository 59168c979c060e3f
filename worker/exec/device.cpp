#include "worker/exec/device.hpp"

#include "shm/base/errors.hpp"
#include "worker/exec/cpu/cpu_device.hpp"

namespace shoal::worker {

Result<std::unique_ptr<Device>> make_device(const std::string& name, const DeviceOptions& options) {
  if (options.threads < 1 || options.threads > 1024)
    return invalid_argument("threads = {}: a model runs on 1 to 1024 cores", options.threads);
  if (name == "cpu") return make_cpu_device(options);
  if (name == "cpu-reference") return make_reference_device();
  return invalid_argument("device '{}' is not known: this build has cpu and cpu-reference", name);
}

}  // namespace shoal::worker
