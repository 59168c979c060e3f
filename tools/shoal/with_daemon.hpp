// Runs a command that only talks to the daemon.
#pragma once

#include <functional>

#include "shoal/pool.hpp"
#include "tools/shoal/console.hpp"

namespace shoal::tool {

/// Runs `work` with a Pool that cannot submit requests. Fails if there is no daemon, or if `work` cannot read the daemon's JSON
/// (nlohmann::json::exception).
Finish with_daemon(const std::function<Finish(Pool&)>& work);

}  // namespace shoal::tool
