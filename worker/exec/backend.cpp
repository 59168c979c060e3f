#include "worker/exec/backend.hpp"

#include <algorithm>
#include <map>

#include "shm/base/check.hpp"
#include "shm/base/errors.hpp"
#include "worker/exec/model.hpp"

namespace shoal::worker {
namespace {

struct Registered {
  MakeBackend make;
  SandboxProfile sandbox;
};

std::map<std::string, Registered, std::less<>>& registry() {
  static std::map<std::string, Registered, std::less<>> backends;
  return backends;
}

Result<std::shared_ptr<const Backend>> make_one(const std::string& name, const ModelOptions& options) {
  const auto found = registry().find(name);
  if (found == registry().end()) return invalid_argument("device '{}' is not known: this build has {}", name, known_devices());
  return found->second.make(options);
}

}  // namespace

std::unique_ptr<BoundStep> DeviceStep::bind() const { SHOAL_CHECK(!"a step of a device is activated, not bound"); }

Result<std::unique_ptr<Queue>> Backend::open_queue() const { return internal_error("a backend on the host has no queue"); }

BackendRegistration::BackendRegistration(std::string_view name, MakeBackend make, SandboxProfile sandbox) {
  SHOAL_CHECK(registry().emplace(name, Registered{make, std::move(sandbox)}).second);
}

Result<Backends> make_backends(const ModelOptions& options) {
  if (options.threads < 1 || options.threads > 1024)
    return invalid_argument("threads = {}: a model runs on 1 to 1024 cores", options.threads);
  Backends backends(1);
  SHOAL_ASSIGN_OR_RETURN(backends[0], make_one(options.device, options));
  if (backends[0]->has_own_memory()) {
    SHOAL_ASSIGN_OR_RETURN(auto host, make_one("cpu", options));
    backends.push_back(std::move(host));
  }
  return backends;
}

std::string known_devices() {
  std::string names;
  for (const auto& [name, backend] : registry()) names += (names.empty() ? "" : ", ") + name;
  return names;
}

SandboxProfile sandbox_profile(std::string_view device) {
  const auto found = registry().find(device);
  return found == registry().end() ? SandboxProfile() : found->second.sandbox;
}

std::vector<std::string> all_device_nodes() {
  std::vector<std::string> nodes;
  for (const auto& [name, backend] : registry())
    nodes.insert(nodes.end(), backend.sandbox.device_nodes.begin(), backend.sandbox.device_nodes.end());
  return nodes;
}

}  // namespace shoal::worker
