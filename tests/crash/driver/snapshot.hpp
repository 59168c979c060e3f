// A snapshot of what a daemon and its processes hold, as JSON for the checker.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace shoal::test {

/// {"stats": the daemon's own, "processes": [{"role", "pid", "descriptors", "memfds", "mappings" (of memfds other than) "pages"
/// (status pages), "arenas" (memfds and mappings of clients' arenas), "private_bytes"}], "zombies", "strangers": files in the
/// directory that belong to nobody}. Roles are "supervisor", "zygote NAME", "worker NAME"; a process of the directory that the
/// stats do not name is "unknown".
nlohmann::json take_snapshot(const nlohmann::json& stats, const std::string& directory);

}  // namespace shoal::test
