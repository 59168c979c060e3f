// What `shoal top` shows: two looks at the daemon, and what happened between them.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

namespace shoal::tool {

/// One look: what the daemon said, and what /proc says of its processes.
struct TopSample {
  struct Process {
    std::uint64_t cpu_ns = 0, pss_bytes = 0;
  };
  std::uint64_t time_ns = 0;
  nlohmann::json stats;
  std::map<std::int64_t, Process> processes;  ///< by pid; those that could be read
};

/// `after` must follow `before`. Rates and percentiles are of the time between; null where nothing happened.
///   {"interval_s", "supervisor": {"pid", "directory", "uptime_s", "clients", "cpu", "pss_bytes"}, "models": [{"name", "version",
///   "state", "reason", "requests_per_s", "failed_per_s", "p50_ms", "p99_ms", "queue", "running", "workers_ready",
///   "workers_wanted", "deaths", "workers": [{"pid", "state", "cpu", "pss_bytes", "answered", "held"}]}]}; cpu: processors, 1 =
///   one of them all the time Throws  nlohmann::json::exception: the daemon said something else than it should
nlohmann::json top_json(const TopSample& before, const TopSample& after);
/// The same for people.
std::string top_text(const nlohmann::json& top);

}  // namespace shoal::tool
