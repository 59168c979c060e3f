// shoal-crash-driver: runs seeds and judges each. It writes one line of JSON per seed to a file, so that a long run can be
// continued.
#include <signal.h>

#include <CLI/CLI.hpp>
#include <fstream>
#include <iostream>
#include <set>

#include "tests/crash/driver/campaign.hpp"

namespace shoal::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::vector<json> read_results(const std::string& file) {
  std::vector<json> results;
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    if (json result = json::parse(line, nullptr, false); result.is_object()) results.push_back(std::move(result));
  }
  return results;
}

/// A row of the table in tests/crash/README.md.
void print_row(const std::vector<json>& results) {
  double seconds = 0, shortest = 1e9;
  std::map<std::string, std::uint64_t> sums;
  std::set<std::uint64_t> seeds;
  for (const json& result : results) {
    seeds.insert(result.at("seed").get<std::uint64_t>());
    seconds += result.at("seconds").get<double>();
    shortest = std::min(shortest, result.at("shortest_interval_in_services").get<double>());
    for (const char* what : {"blows", "while_running", "asked", "ok", "rerun", "poisoned", "violations"})
      sums[what] += result.at(what).get<std::uint64_t>();
    for (const char* what : {"workers", "zygotes", "clients"}) sums[what] += result.at("victims").at(what).get<std::uint64_t>();
    for (const char* what : {"kill", "abort", "stop"}) sums[what] += result.at("signals").at(what).get<std::uint64_t>();
  }
  if (seeds.empty()) return;
  std::printf(
      "| %llu to %llu | %llu (%llu workers, %llu zygotes, %llu clients; %llu kill, %llu abort, %llu stop) | %.0f | %.0f %% | "
      "%.1f | %llu | %llu | %llu |\n",
      static_cast<unsigned long long>(*seeds.begin()), static_cast<unsigned long long>(*seeds.rbegin()),
      static_cast<unsigned long long>(sums["blows"]), static_cast<unsigned long long>(sums["workers"]),
      static_cast<unsigned long long>(sums["zygotes"]), static_cast<unsigned long long>(sums["clients"]),
      static_cast<unsigned long long>(sums["kill"]), static_cast<unsigned long long>(sums["abort"]),
      static_cast<unsigned long long>(sums["stop"]), static_cast<double>(sums["blows"]) / seconds,
      100.0 * static_cast<double>(sums["while_running"]) / static_cast<double>(sums["blows"]), shortest,
      static_cast<unsigned long long>(sums["asked"]), static_cast<unsigned long long>(sums["rerun"]),
      static_cast<unsigned long long>(sums["violations"]));
}

int run(int argc, char** argv) {
  std::uint64_t seed = 1, from = 0, to = 0;
  std::string results_file, directory = fs::temp_directory_path(), judged;
  PlanSettings settings;
  bool only_plan = false, only_row = false;
  CLI::App app(
      "Plans faults from a seed, kills and stops processes under load accordingly, and has the offline checker judge what "
      "clients "
      "saw. Exits with 1 when a promise was broken.");
  app.add_option("--seed", seed, "one run")->capture_default_str();
  app.add_option("--from-seed", from, "a long run: its first seed");
  app.add_option("--to-seed", to, "its last; those that --results has already are not run again");
  app.add_option("--results", results_file, "a line of JSON for each seed is appended here");
  app.add_option("--directory", directory, "for histories; kept for a seed that broke a promise")->capture_default_str();
  app.add_option("--faults", settings.faults, "of one seed")->capture_default_str();
  app.add_option("--rate", settings.faults_per_s, "faults a second")->capture_default_str();
  app.add_option("--daemons", settings.daemons, "side by side")->capture_default_str();
  app.add_option("--guilty", settings.guilty_share, "share of the requests that crash their worker")->capture_default_str();
  app.add_option("--workers", settings.workers, "of each model")->capture_default_str();
  app.add_option("--spin-ms", settings.spin_ms, "processor time of a request, for each model")->capture_default_str();
  app.add_flag("--only-kills", settings.only_kills, "SIGKILL of workers, nothing else");
  app.add_flag("--plan", only_plan, "print the plan of --seed and end");
  app.add_flag("--row", only_row, "print the sum of --results as a row of tests/crash/README.md and end");
  app.add_option("--check", judged, "judge the histories in a directory that was kept, and end");
  CLI11_PARSE(app, argc, argv);

  const auto show = [](const CheckReport& report) {
    for (const Violation& violation : report.violations) std::cout << to_string(violation) << '\n';
    return report.violation_count == 0;
  };
  if (only_plan) return std::cout << to_text(make_plan(seed, settings)), 0;
  if (only_row) return print_row(read_results(results_file)), 0;
  if (!judged.empty()) return show(check_directory(judged)) ? 0 : 1;
  if (to < from) to = from;
  if (from == 0) from = to = seed;

  std::set<std::uint64_t> done;
  for (const json& result : read_results(results_file)) done.insert(result.at("seed").get<std::uint64_t>());
  bool all_kept = true;
  for (std::uint64_t next = from; next <= to; ++next) {
    if (done.contains(next)) continue;
    const fs::path place = fs::path(directory) / ("shoal-crash-" + std::to_string(::getpid()) + "-seed-" + std::to_string(next));
    const CampaignResult result = run_campaign(make_plan(next, settings), place);
    std::cout << to_json(result).dump() << std::endl;
    if (!results_file.empty()) std::ofstream(results_file, std::ios::app) << to_json(result).dump() << std::endl;
    if (!show(result.report)) {
      all_kept = false;
      std::cout << "histories, snapshots and the daemon's log: " << place << "; once more: shoal-crash-driver --seed " << next
                << ' ' << to_options(settings) << std::endl;
    }
  }
  if (!results_file.empty()) print_row(read_results(results_file));
  return all_kept ? 0 : 1;
}

}  // namespace
}  // namespace shoal::test

int main(int argc, char** argv) { return shoal::test::run(argc, argv); }
