// The output of `shoal top`: the differences between two samples of the daemon's state.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

namespace shoal::tool {

/// One sample: the daemon's stats, and processor time and memory of its processes from /proc.
struct TopSample {
  struct Process {
    std::uint64_t cpu_ns = 0, pss_bytes = 0;
  };
  std::uint64_t time_ns = 0;
  nlohmann::json stats;
  std::map<std::int64_t, Process> processes;  ///< by pid; only those that could be read
};

/// `after` must follow `before`. Rates and percentiles are those of the time in between; null if nothing happened.
///   {"interval_s", "supervisor": {"pid", "directory", "uptime_s", "clients", "cpu", "pss_bytes"}, "models": [{"name", "version",
///   "state", "reason", "requests_per_s", "failed_per_s", "copied_bytes_per_s", "p50_ms", "p99_ms", "queue", "running",
///   "workers_ready", "workers_wanted", "deaths", "workers": [{"pid", "state", "cpu", "pss_bytes", "answered", "held"}]}]} cpu
///   counts processors: 1 = one processor all the time Throws  nlohmann::json::exception (the daemon's JSON has another form)
nlohmann::json top_json(const TopSample& before, const TopSample& after);
/// The same for people.
std::string top_text(const nlohmann::json& top);

}  // namespace shoal::tool
