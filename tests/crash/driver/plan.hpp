// Plans models, clients and faults from a seed. The same seed gives the same plan on any machine.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tests/crash/driver/pattern.hpp"

namespace shoal::test {

struct PlanSettings {
  int faults = 1000;                     ///< in all daemons together
  double faults_per_s = 50;              ///< at most; see Fault
  int daemons = 2;                       ///< side by side
  double guilty_share = 0;               ///< share of requests whose input crashes their worker
  std::vector<int> spin_ms = {1, 2, 4};  ///< one model for each, whose requests take this processor time; and builtin:identity
  int workers = 2;                       ///< of each model
  bool only_kills = false;               ///< only SIGKILL, only to workers of these models
};
/// As options of shoal-crash-driver.
std::string to_options(const PlanSettings& settings);

struct PlannedModel {
  std::string name;
  PatternModel pattern;
  int spin_ms = 0;  ///< processor time of one request; 0 = builtin:identity
  int workers = 2, lanes = 1;
};

/// What a client program is written in. They ask alike, by different interfaces.
enum class Language : std::uint8_t { kCpp, kC, kPython };
inline constexpr Language kLanguages[] = {Language::kCpp, Language::kC, Language::kPython};
const char* name_of(Language language);

/// One client, which draws its requests from `seed`.
struct ClientPlan {
  Language language = Language::kCpp;
  std::uint32_t seed = 0;
  int window = 4;  ///< requests under way
  double cancel_share = 0, deadline_share = 0, guilty_share = 0;
  std::uint64_t timeout_ms = 0;  ///< of those with a deadline
};

/// One signal to one process. It is sent at `at_ms`, or later: when the model has answered `progress` requests since the last
/// blow to it, and at least three of the model's service times have passed.
struct Fault {
  enum class Victim : std::uint8_t { kWorker, kZygote, kClient };
  std::uint64_t at_ms = 0;
  Victim victim{};
  int signal = 0;  ///< SIGKILL, SIGABRT, or SIGSTOP followed by SIGCONT
  std::uint64_t stop_ms = 0;
  std::size_t model = 0;   ///< the model whose worker or zygote is hit
  std::uint32_t pick = 0;  ///< which of the processes that exist then
  std::uint64_t progress = 0;
  bool while_running = false;  ///< hit a worker that runs a request, if there is one within two seconds
};

struct DaemonPlan {
  std::vector<PlannedModel> models;
  std::vector<ClientPlan> clients;  ///< a killed client is replaced, with another seed
  std::vector<Fault> faults;        ///< by time
};

struct Plan {
  std::uint64_t seed = 0;
  PlanSettings settings;
  std::vector<DaemonPlan> daemons;
};

Plan make_plan(std::uint64_t seed, const PlanSettings& settings);
/// The plan as text.
std::string to_text(const Plan& plan);

PatternModels patterns_of(const DaemonPlan& plan);
/// The arguments of a client program, behind the daemon's directory and the history: SEED WINDOW CANCEL_SHARE DEADLINE_SHARE
/// GUILTY_SHARE TIMEOUT_MS, then NAME INPUTS SIZES CONTENTS of each model.
std::vector<std::string> to_words(const ClientPlan& plan, const PatternModels& models);
ClientPlan client_plan_from(std::span<char* const> words);
PatternModels pattern_models_from(std::span<char* const> words);  ///< without factors

}  // namespace shoal::test
