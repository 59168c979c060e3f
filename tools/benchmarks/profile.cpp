// Compares the time of each step of a model with the machine's lower bound.
#include <algorithm>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>

#include "shm/base/errors.hpp"
#include "tools/benchmarks/machine_peak.hpp"
#include "tools/benchmarks/runnable_model.hpp"
#include "worker/exec/oracle_share.hpp"

namespace shoal::bench {
namespace {

struct StepProfile {
  worker::StepInfo info;
  double ms = 0;                         // the best time
  double compute_ms = 0, memory_ms = 0;  // the lower bounds
  double bound_ms() const { return std::max(compute_ms, memory_ms); }
  const char* bound() const { return compute_ms > memory_ms ? "compute" : "memory"; }
};

Result<std::vector<StepProfile>> time_steps(RunnableModel& model, int runs) {
  std::vector<StepProfile> steps;
  for (worker::StepInfo& info : model.program().steps()) steps.push_back({.info = std::move(info)});
  SHOAL_RETURN_IF_ERROR(model.run());
  std::vector<std::uint64_t> times(steps.size());
  model.context().step_times = times;
  for (int run = 0; run < runs; ++run) {
    std::ranges::fill(times, 0);
    SHOAL_RETURN_IF_ERROR(model.run());
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const double ms = static_cast<double>(times[i]) / 1e6;
      steps[i].ms = run == 0 ? ms : std::min(steps[i].ms, ms);
    }
  }
  model.context().step_times = {};
  return steps;
}

double sum(const std::vector<StepProfile>& steps, double (*of)(const StepProfile&)) {
  double total = 0;
  for (const StepProfile& step : steps) total += of(step);
  return total;
}
/// Of the steps that run by oracle kernels, those of bodies too, in the time of all.
double oracle_share(const std::vector<StepProfile>& steps) {
  std::vector<worker::StepInfo> infos;
  std::vector<std::uint64_t> times_ns;
  for (const StepProfile& step : steps) {
    infos.push_back(step.info);
    times_ns.push_back(static_cast<std::uint64_t>(1e6 * step.ms));
  }
  double share = 0;
  for (const worker::OracleNode& node : worker::find_oracle_nodes(infos, times_ns)) share += node.share;
  return share;
}
double time_of(const StepProfile& step) { return step.ms; }
double bound_of(const StepProfile& step) { return step.bound_ms(); }

nlohmann::json to_json(const std::vector<StepProfile>& steps, const MachinePeak& peak) {
  nlohmann::json rows = nlohmann::json::array();
  for (const StepProfile& step : steps) {
    rows.push_back({{"step", step.info.name},
                    {"implementation", step.info.implementation},
                    {"ms", step.ms},
                    {"gflop", step.info.flops / 1e9},
                    {"mb", step.info.bytes / 1e6},
                    {"bound", step.bound()},
                    {"bound_ms", step.bound_ms()}});
  }
  return {{"peak_gflops_per_s", peak.flops_per_s / 1e9},
          {"peak_gb_per_s", peak.bytes_per_s / 1e9},
          {"total_ms", sum(steps, time_of)},
          {"bound_ms", sum(steps, bound_of)},
          {"oracle_share", oracle_share(steps)},
          {"steps", std::move(rows)}};
}

void print_implementations(const std::vector<StepProfile>& steps) {
  struct Total {
    int count = 0;
    double ms = 0, bound_ms = 0;
  };
  std::map<std::string, Total> totals;
  for (const StepProfile& step : steps) {
    Total& total = totals[step.info.implementation];
    ++total.count;
    total.ms += step.ms;
    total.bound_ms += step.bound_ms();
  }
  std::vector<std::pair<std::string, Total>> sorted(totals.begin(), totals.end());
  std::ranges::sort(sorted, [](const auto& a, const auto& b) { return a.second.ms > b.second.ms; });
  std::printf("\n%9s %9s %6s  implementation\n", "ms", "bound ms", "steps");
  for (const auto& [name, total] : sorted)
    std::printf("%9.3f %9.3f %6d  %s\n", total.ms, total.bound_ms, total.count, name.c_str());
}

void print(const std::vector<StepProfile>& steps, const MachinePeak& peak) {
  const double total_ms = sum(steps, time_of), bound_ms = sum(steps, bound_of);
  std::printf("machine: %.1f GFLOP/s, %.1f GB/s from memory; reading from a cache can be faster than the memory bound\n\n",
              peak.flops_per_s / 1e9, peak.bytes_per_s / 1e9);
  std::printf("%9s %6s %9s %8s %8s %8s  %-28s step\n", "ms", "share", "bound ms", "bound by", "GFLOP/s", "GB/s",
              "implementation");
  for (const StepProfile& step : steps) {
    std::printf("%9.3f %5.1f%% %9.3f %8s %8.1f %8.1f  %-28s %s\n", step.ms, 100 * step.ms / total_ms, step.bound_ms(),
                step.bound(), step.info.flops / 1e6 / step.ms, step.info.bytes / 1e6 / step.ms, step.info.implementation.c_str(),
                step.info.name.c_str());
  }
  print_implementations(steps);
  std::printf("%9.3f %9.3f %6zu  total: %.2f x the bound; %.1f %% of the time in oracle kernels\n", total_ms, bound_ms,
              steps.size(), total_ms / bound_ms, 100 * oracle_share(steps));
}

}  // namespace

Status profile_model(const ModelBenchOptions& options, const ProfileOptions& profile) {
  SHOAL_ASSIGN_OR_RETURN(RunnableModel model, RunnableModel::load(options));
  if (model.program().steps().empty()) return unimplemented("{}: this model has no steps to profile", options.path);
  if (!profile.inputs.empty()) SHOAL_RETURN_IF_ERROR(model.read_inputs(profile.inputs));
  const MachinePeak peak = measure_machine_peak(options.threads);
  SHOAL_ASSIGN_OR_RETURN(std::vector<StepProfile> steps, time_steps(model, profile.runs));
  for (StepProfile& step : steps) {
    step.compute_ms = step.info.flops / peak.flops_per_s * 1e3;
    step.memory_ms = step.info.bytes / peak.bytes_per_s * 1e3;
  }
  std::ranges::stable_sort(steps, std::ranges::greater(), &StepProfile::ms);
  if (profile.json) {
    std::printf("%s\n", to_json(steps, peak).dump(1).c_str());
  } else {
    print(steps, peak);
  }
  return {};
}

}  // namespace shoal::bench
