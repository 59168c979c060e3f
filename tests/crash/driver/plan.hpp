// From a seed: which models, which clients, which faults, when. The same seed is the same plan, on any machine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/crash/driver/pattern.hpp"

namespace shoal::test {

struct PlanSettings {
  int faults = 1000;                     ///< in all daemons together
  double faults_per_s = 50;              ///< as far as the models allow: see Fault
  int daemons = 2;                       ///< side by side
  double guilty_share = 0;               ///< of the requests: inputs that crash their worker
  std::vector<int> spin_ms = {1, 2, 4};  ///< a model for each: processor time of its requests; and builtin:identity
  int workers = 2;                       ///< of each model
  bool only_kills = false;               ///< SIGKILL of workers of the spinning models, nothing else
};
/// As options of shoal-crash-driver.
std::string to_options(const PlanSettings& settings);

struct PlannedModel {
  std::string name;
  PatternModel pattern;
  int spin_ms = 0;  ///< processor time of one request; 0 = builtin:identity
  int workers = 2, lanes = 1;
};

/// What one client asks; it draws its requests from `seed`.
struct ClientPlan {
  std::uint32_t seed = 0;
  int window = 4;  ///< requests under way
  double cancel_share = 0, deadline_share = 0, guilty_share = 0;
  std::uint64_t timeout_ms = 0;  ///< of those with a deadline
};

/// One blow. It falls when its time has come and the model has answered that many requests since the last one, and never sooner
/// than three of the model's service times after the last blow to that model.
struct Fault {
  enum class Victim : std::uint8_t { kWorker, kZygote, kClient };
  std::uint64_t at_ms = 0;
  Victim victim{};
  int signal = 0;  ///< SIGKILL, SIGABRT, or SIGSTOP followed by SIGCONT
  std::uint64_t stop_ms = 0;
  std::size_t model = 0;   ///< whose worker or zygote
  std::uint32_t pick = 0;  ///< which of those there are then
  std::uint64_t progress = 0;
  bool while_running = false;  ///< a worker that runs a request, if there is one within two seconds
};

struct DaemonPlan {
  std::vector<PlannedModel> models;
  std::vector<ClientPlan> clients;  ///< one that was killed is started again, with another seed
  std::vector<Fault> faults;        ///< by time
};

struct Plan {
  std::uint64_t seed = 0;
  PlanSettings settings;
  std::vector<DaemonPlan> daemons;
};

Plan make_plan(std::uint64_t seed, const PlanSettings& settings);
/// The plan in words: what two runs of one seed have in common.
std::string to_text(const Plan& plan);

PatternModels patterns_of(const DaemonPlan& plan);
nlohmann::json to_json(const ClientPlan& plan);
ClientPlan client_plan_from(const nlohmann::json& json);

}  // namespace shoal::test
