// Runs one seed: daemons, client processes, blows, and the verdict of the offline checker.
#pragma once

#include <filesystem>

#include "tests/crash/driver/checker.hpp"
#include "tests/crash/driver/plan.hpp"

namespace shoal::test {

struct CampaignResult {
  std::uint64_t seed = 0;
  double seconds = 0;                                   ///< from the first blow to the last
  std::uint64_t blows = 0;                              ///< blows that found a victim
  std::uint64_t workers = 0, zygotes = 0, clients = 0;  ///< blows by victim
  std::uint64_t kills = 0, aborts = 0, stops = 0;       ///< blows by signal
  std::uint64_t while_running = 0;                      ///< deaths of workers whose running request was then run again
  double shortest_interval_in_services = 0;             ///< between two blows to one model, in service times of that model
  CheckReport report;
};
nlohmann::json to_json(const CampaignResult& result);

/// Runs the plan. Histories and snapshots are written to `directory`. They are removed at the end unless there is a violation.
CampaignResult run_campaign(const Plan& plan, const std::filesystem::path& directory);

/// Judges again what run_campaign() has left in `directory`.
CheckReport check_directory(const std::filesystem::path& directory);

}  // namespace shoal::test
