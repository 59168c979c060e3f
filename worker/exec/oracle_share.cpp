#include "worker/exec/oracle_share.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "shm/base/format.hpp"

namespace shoal::worker {
namespace {

// Of one core, roughly: an estimate shall tell a node that matters from one that does not.
constexpr double kFlopsPerNs = 60, kBytesPerNs = 8;             // of a step of oneDNN, or a kernel of Shoal
constexpr double kOracleFlopsPerNs = 3, kOracleBytesPerNs = 2;  // of an oracle kernel

bool is_oracle(const StepInfo& step) { return step.implementation == "oracle"; }

/// Of a step with bodies: as if each ran once.
double estimate_ns(const StepInfo& step) {
  double bodies = 0;
  for (const auto& body : step.bodies) {
    for (const StepInfo& inner : body) bodies += estimate_ns(inner);
  }
  if (!step.bodies.empty()) return bodies;
  return is_oracle(step) ? std::max(step.flops / kOracleFlopsPerNs, step.bytes / kOracleBytesPerNs)
                         : std::max(step.flops / kFlopsPerNs, step.bytes / kBytesPerNs);
}

void collect(const StepInfo& step, double time, const std::string& where, std::vector<OracleNode>& nodes) {
  if (is_oracle(step)) nodes.push_back({where + step.name, time});
  const double estimated = estimate_ns(step);
  for (const auto& body : step.bodies) {
    for (const StepInfo& inner : body)
      collect(inner, estimated > 0 ? time * estimate_ns(inner) / estimated : 0, where + step.name + ", ", nodes);
  }
}

std::size_t count_steps(std::span<const StepInfo> steps) {
  std::size_t count = steps.size();
  for (const StepInfo& step : steps) {
    for (const auto& body : step.bodies) count += count_steps(body);
  }
  return count;
}

}  // namespace

std::vector<OracleNode> find_oracle_nodes(std::span<const StepInfo> steps, std::span<const std::uint64_t> times) {
  std::vector<OracleNode> nodes;
  double total = 0;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const double time = times.empty() ? estimate_ns(steps[i]) : static_cast<double>(times[i]);
    total += time;
    collect(steps[i], time, "", nodes);
  }
  for (OracleNode& node : nodes) node.share = total > 0 ? node.share / total : 0;
  std::ranges::stable_sort(nodes, std::ranges::greater(), &OracleNode::share);
  return nodes;
}

std::string describe_oracle_nodes(const Program& program) {
  constexpr std::size_t kMostNames = 5;
  const std::vector<StepInfo> steps = program.steps();
  const std::vector<OracleNode> nodes = find_oracle_nodes(steps);
  if (nodes.empty()) return {};
  const auto percent = [](double share) { return static_cast<int>(std::lround(100 * share)); };
  const double share =
      std::accumulate(nodes.begin(), nodes.end(), 0.0, [](double sum, const auto& node) { return sum + node.share; });
  std::string text = format("oracle kernels, which are slow, run {} of {} steps (about {} % of the time):", nodes.size(),
                            count_steps(steps), percent(share));
  for (std::size_t i = 0; i < std::min(kMostNames, nodes.size()); ++i)
    text += format("{} {} ({} %)", i == 0 ? "" : ",", nodes[i].name, percent(nodes[i].share));
  if (nodes.size() > kMostNames) text += format(" and {} more", nodes.size() - kMostNames);
  return text;
}

}  // namespace shoal::worker
