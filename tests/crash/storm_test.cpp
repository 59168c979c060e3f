// Sends 3000 random SIGKILL, SIGABRT and SIGSTOP to workers, zygotes and clients under load. The offline checker judges the
// result.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "tests/crash/driver/campaign.hpp"
#include "tests/crash/driver/client_processes.hpp"

namespace shoal::test {
namespace {

std::filesystem::path place_of(std::uint64_t seed) {
  return std::filesystem::temp_directory_path() / ("shoal-storm-" + std::to_string(::getpid()) + "-" + std::to_string(seed));
}

CampaignResult expect_clean(std::uint64_t seed, const PlanSettings& settings) {
  const CampaignResult result = run_campaign(make_plan(seed, settings), place_of(seed));
  for (const Violation& violation : result.report.violations) ADD_FAILURE() << to_string(violation);
  EXPECT_EQ(result.report.violation_count, 0u)
      << "histories in " << place_of(seed) << "; once more: shoal-crash-driver --seed " << seed << ' ' << to_options(settings);
  EXPECT_GT(result.report.ok, result.blows);
  std::printf("%s\n", to_json(result).dump().c_str());
  return result;
}

TEST(Storm, AHundredFaultsBreakNoPromise) { expect_clean(1, {.faults = 100, .faults_per_s = 25, .daemons = 1}); }

TEST(Storm, ClientsInPythonAreAmongThoseThatAreKilled) {
  if (!has_python_clients())
    GTEST_SKIP() << "SHOAL_PYTHON names no Python with nanobind and NumPy (tools/python-environment makes one): the clients of "
                    "these storms are in C++ and C only";
  // Of this seed's victims many are clients: which of them is hit depends on when each started.
  const CampaignResult result = expect_clean(106, {.faults = 150, .faults_per_s = 25, .daemons = 1});
  EXPECT_GT(result.report.clients_in.at("python").ok, 0u);
  EXPECT_GT(result.report.clients_in.at("python").killed, 0u);
}

TEST(Storm, ThreeThousandFaultsBreakNoPromise) {
  constexpr std::uint64_t kCampaigns = 3;
  std::uint64_t blows = 0, while_running = 0;
  double seconds = 0;
  std::map<std::string, ClientCounts> clients_in;
  for (std::uint64_t seed = 1; seed <= kCampaigns && !HasFailure(); ++seed) {
    const CampaignResult result = expect_clean(seed, {.faults = 1000});
    EXPECT_GE(result.shortest_interval_in_services, 3);
    blows += result.blows;
    while_running += result.while_running;
    seconds += result.seconds;
    for (const auto& [language, counts] : result.report.clients_in) {
      clients_in[language].ok += counts.ok;
      clients_in[language].killed += counts.killed;
    }
  }
  for (const char* const language : {"c++", "c"}) {
    EXPECT_GT(clients_in[language].ok, 0u) << language;
    EXPECT_GT(clients_in[language].killed, 0u) << language;
  }
  EXPECT_GE(static_cast<double>(while_running), 0.2 * static_cast<double>(blows));
  std::printf("%llu blows, %.0f a second\n", static_cast<unsigned long long>(blows), static_cast<double>(blows) / seconds);
}

TEST(Storm, GuiltyRequestsAreFoundAmongTheFaultsAndNoOthersAreBlamed) {
  const CampaignResult result = expect_clean(1, {.faults = 200, .faults_per_s = 20, .daemons = 1, .guilty_share = 0.01});
  EXPECT_GT(result.report.poisoned, 0u);
}

}  // namespace

void PrintTo(const PlanSettings& settings, std::ostream* out) { *out << to_options(settings); }

namespace {

/// One model of four workers, which are killed so often that most deaths hit a running request.
class Kills : public testing::TestWithParam<PlanSettings> {};
TEST_P(Kills, MostHitARequestThatIsThenRunAgain) {
  PlanSettings settings = GetParam();
  if (std::getenv("SHOAL_TEST_LONG")) settings.faults *= 12;
  const CampaignResult result = expect_clean(7, settings);
  EXPECT_EQ(result.kills, result.blows);
  EXPECT_GE(static_cast<double>(result.while_running), 0.4 * static_cast<double>(result.blows));  // 0.8 on a quiet machine
}
INSTANTIATE_TEST_SUITE_P(
    , Kills,
    testing::Values(
        PlanSettings{.faults = 100, .faults_per_s = 10, .daemons = 1, .spin_ms = {5}, .workers = 4, .only_kills = true},
        PlanSettings{.faults = 10, .faults_per_s = 1, .daemons = 1, .spin_ms = {200}, .workers = 4, .only_kills = true}),
    [](const auto& settings) { return "ModelOf" + std::to_string(settings.param.spin_ms[0]) + "Ms"; });

}  // namespace
}  // namespace shoal::test
