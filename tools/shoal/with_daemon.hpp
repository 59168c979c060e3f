// The frame of every command that only talks with the daemon.
#pragma once

#include <functional>

#include "shoal/pool.hpp"
#include "tools/shoal/console.hpp"

namespace shoal::tool {

/// Runs `work` with a connection that submits nothing. Without a daemon, or when `work` cannot make sense of its JSON
/// (nlohmann::json::exception), that is the end.
Finish with_daemon(const std::function<Finish(Pool&)>& work);

}  // namespace shoal::tool
