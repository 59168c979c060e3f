#include "tools/shoal/with_daemon.hpp"

#include <nlohmann/json.hpp>

#include "shm/base/errors.hpp"

namespace shoal::tool {

Finish with_daemon(const std::function<Finish(Pool&)>& work) try {
  auto pool = Pool::connect({.arena_limit_bytes = 0});
  return pool.ok() ? work(*pool) : daemon_failure(pool.status());
} catch (const nlohmann::json::exception& error) {
  return Status(internal_error("the daemon's answer cannot be read: {}", error.what()));
}

}  // namespace shoal::tool
