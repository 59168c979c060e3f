#include "tests/crash/driver/plan.hpp"

#include <signal.h>

#include <algorithm>
#include <random>
#include <sstream>

namespace shoal::test {
namespace {

constexpr std::size_t kPlanWords = 6, kModelWords = 4;  // of to_words()

// std::mt19937_64 is the same everywhere; the standard's distributions are not.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : random_(seed) {}
  std::uint64_t below(std::uint64_t end) { return random_() % end; }
  bool chance(double share) { return static_cast<double>(random_() >> 11) * 0x1p-53 < share; }

 private:
  std::mt19937_64 random_;
};

std::vector<PlannedModel> plan_models(Dice& dice, const PlanSettings& settings) {
  std::vector<PlannedModel> models;
  for (const int spin_ms : settings.spin_ms) {
    models.push_back({.name = "spin" + std::to_string(spin_ms),
                      .pattern = {.inputs = PatternModel::Inputs::kRows, .factors = {{1, 3.0f}}},
                      .spin_ms = spin_ms,
                      .workers = settings.workers,
                      .lanes = 1 + static_cast<int>(dice.below(2))});
  }
  models.push_back({.name = "echo", .pattern = {.inputs = PatternModel::Inputs::kFlat, .factors = {{1, 1.0f}}}, .lanes = 2});
  return models;
}

ClientPlan plan_client(Dice& dice, double guilty_share) {
  return {.seed = static_cast<std::uint32_t>(dice.below(1u << 30)),
          .window = 4 + static_cast<int>(dice.below(8)),
          .cancel_share = dice.chance(0.5) ? 0.05 : 0,
          .deadline_share = dice.chance(0.5) ? 0.1 : 0,
          .guilty_share = guilty_share,
          .timeout_ms = 20 + dice.below(400)};
}

Fault plan_fault(Dice& dice, std::uint64_t at_ms, std::size_t models, bool only_kills) {
  Fault fault{
      .at_ms = at_ms, .signal = SIGKILL, .model = dice.below(models), .pick = static_cast<std::uint32_t>(dice.below(1u << 30))};
  const std::uint64_t victim = dice.below(100), signal = dice.below(100);
  fault.victim = victim < 84 ? Fault::Victim::kWorker : victim < 90 ? Fault::Victim::kZygote : Fault::Victim::kClient;
  if (only_kills)
    return {.at_ms = at_ms, .signal = SIGKILL, .model = fault.model % (models - 1), .pick = fault.pick, .while_running = true};
  // Slow models are hit more often than fast ones, and builtin:identity rarely: fast requests are hardly ever hit while they run.
  if (fault.model < models - 1 || dice.below(4) != 0) fault.model = std::max(dice.below(models - 1), dice.below(models - 1));
  if (signal >= 70) fault.signal = SIGABRT;
  if (signal >= 85) {
    fault.signal = SIGSTOP;
    fault.stop_ms = 5 + dice.below(dice.chance(0.1) ? 400 : 60);
  }
  if (dice.chance(0.25)) fault.progress = 1 + dice.below(20);
  fault.while_running = dice.chance(0.5);
  return fault;
}

}  // namespace

Plan make_plan(std::uint64_t seed, const PlanSettings& settings) {
  Dice dice(seed);
  Plan plan{.seed = seed, .settings = settings};
  for (int i = 0; i < settings.daemons; ++i) {
    DaemonPlan daemon{.models = plan_models(dice, settings)};
    for (const Language language : kLanguages) {
      daemon.clients.push_back(plan_client(dice, settings.guilty_share));
      daemon.clients.back().language = language;
    }
    const double mean_gap_ms = 1000 * settings.daemons / settings.faults_per_s;
    double at_ms = 0;
    for (int fault = i; fault < settings.faults; fault += settings.daemons) {
      at_ms += mean_gap_ms * (0.2 + 1.6 * static_cast<double>(dice.below(1000)) / 1000);
      daemon.faults.push_back(plan_fault(dice, static_cast<std::uint64_t>(at_ms), daemon.models.size(), settings.only_kills));
    }
    plan.daemons.push_back(std::move(daemon));
  }
  return plan;
}

std::string to_options(const PlanSettings& settings) {
  std::ostringstream text;
  text << "--faults " << settings.faults << " --rate " << settings.faults_per_s << " --daemons " << settings.daemons
       << " --guilty " << settings.guilty_share << " --workers " << settings.workers
       << (settings.only_kills ? " --only-kills" : "") << " --spin-ms";
  for (const int spin_ms : settings.spin_ms) text << ' ' << spin_ms;
  return text.str();
}

std::string to_text(const Plan& plan) {
  std::ostringstream text;
  text << "seed " << plan.seed << ' ' << to_options(plan.settings) << '\n';
  for (std::size_t i = 0; i < plan.daemons.size(); ++i) {
    const DaemonPlan& daemon = plan.daemons[i];
    for (const PlannedModel& model : daemon.models)
      text << "daemon " << i << " model " << model.name << " workers " << model.workers << " lanes " << model.lanes << '\n';
    for (const ClientPlan& client : daemon.clients) {
      text << "daemon " << i << " client " << name_of(client.language);
      for (const std::string& word : to_words(client, {})) text << ' ' << word;
      text << '\n';
    }
    for (const Fault& fault : daemon.faults) {
      text << "daemon " << i << " fault at " << fault.at_ms << " ms signal " << fault.signal << " victim "
           << static_cast<int>(fault.victim) << " model " << fault.model << " pick " << fault.pick << " stop " << fault.stop_ms
           << " progress " << fault.progress << (fault.while_running ? " while running" : "") << '\n';
    }
  }
  return text.str();
}

PatternModels patterns_of(const DaemonPlan& plan) {
  PatternModels patterns;
  for (const PlannedModel& model : plan.models) patterns[model.name] = model.pattern;
  return patterns;
}

const char* name_of(Language language) {
  switch (language) {
    case Language::kCpp:
      return "c++";
    case Language::kC:
      return "c";
    case Language::kPython:
      return "python";
  }
  return "";
}

std::vector<std::string> to_words(const ClientPlan& plan, const PatternModels& models) {
  std::vector<std::string> words{std::to_string(plan.seed),         std::to_string(plan.window),
                                 std::to_string(plan.cancel_share), std::to_string(plan.deadline_share),
                                 std::to_string(plan.guilty_share), std::to_string(plan.timeout_ms)};
  for (const auto& [name, model] : models) {
    words.push_back(name);
    for (const int number : {static_cast<int>(model.inputs), model.sizes, model.contents})
      words.push_back(std::to_string(number));
  }
  return words;
}

ClientPlan client_plan_from(std::span<char* const> words) {
  return {.seed = static_cast<std::uint32_t>(std::stoul(words[0])),
          .window = std::stoi(words[1]),
          .cancel_share = std::stod(words[2]),
          .deadline_share = std::stod(words[3]),
          .guilty_share = std::stod(words[4]),
          .timeout_ms = std::stoul(words[5])};
}

PatternModels pattern_models_from(std::span<char* const> words) {
  PatternModels models;
  for (std::size_t i = kPlanWords; i + kModelWords <= words.size(); i += kModelWords) {
    models[words[i]] = {.inputs = static_cast<PatternModel::Inputs>(std::stoi(words[i + 1])),
                        .sizes = std::stoi(words[i + 2]),
                        .contents = std::stoi(words[i + 3])};
  }
  return models;
}

}  // namespace shoal::test
