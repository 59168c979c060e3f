// Measurements as a table, as JSON and as CSV.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "tools/shoal/bench/load_generator.hpp"

namespace shoal::tool {

/// Percentiles that every form shows: their names and fractions.
struct Percentile {
  const char* name;
  double fraction;
};
inline constexpr Percentile kPercentiles[] = {{"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"p99.9", 0.999}};

/// For people.
std::string to_table(std::span<const Measurement> measurements);
/// {"model", "version", "loop": "closed"|"open", "loads": [{"in_flight" or "rate", "seconds", "requests", "ok", "failed": {code:
/// count}, "answers_per_s", "total_ms", "queue_ms", "compute_ms", "late_ms": {"p50", "p90", "p99", "p99.9", "max"}, "batches":
/// {size: count}, "is_cut"}]}. Percentiles are null if nothing was measured.
nlohmann::json to_json(const ModelInfo& model, std::span<const Measurement> measurements);
/// A line of names, and a line for each load.
std::string to_csv(std::span<const Measurement> measurements);

/// What a reader of the numbers must know: failures, and rates that were not reached.
std::vector<std::string> warnings_of(std::span<const Measurement> measurements);

}  // namespace shoal::tool
