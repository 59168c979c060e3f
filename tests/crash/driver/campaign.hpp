// One seed from plan to verdict: daemons, client processes, blows, and what the offline checker finds.
#pragma once

#include <filesystem>

#include "tests/crash/driver/checker.hpp"
#include "tests/crash/driver/plan.hpp"

namespace shoal::test {

struct CampaignResult {
  std::uint64_t seed = 0;
  double seconds = 0;                                   ///< of the blows alone
  std::uint64_t blows = 0;                              ///< that found a victim
  std::uint64_t workers = 0, zygotes = 0, clients = 0;  ///< by victim
  std::uint64_t kills = 0, aborts = 0, stops = 0;       ///< by signal
  std::uint64_t while_running = 0;                      ///< deaths whose lane named a request that was then run again
  double shortest_interval_in_services = 0;             ///< between two blows to one model, in its service times
  CheckReport report;
};
nlohmann::json to_json(const CampaignResult& result);

/// Runs the plan. Histories and snapshots lie in `directory` while it runs, and stay there when something was violated.
CampaignResult run_campaign(const Plan& plan, const std::filesystem::path& directory);

/// Judges what run_campaign left in `directory`, once more.
CheckReport check_directory(const std::filesystem::path& directory);

}  // namespace shoal::test
