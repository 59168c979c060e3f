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

double estimate_ns(const StepInfo& step) {
  return is_oracle(step) ? std::max(step.flops / kOracleFlopsPerNs, step.bytes / kOracleBytesPerNs)
                         : std::max(step.flops / kFlopsPerNs, step.bytes / kBytesPerNs);
}

}  // namespace

std::vector<OracleNode> find_oracle_nodes(std::span<const StepInfo> steps, std::span<const std::uint64_t> times) {
  std::vector<OracleNode> nodes;
  double total = 0;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const double time = times.empty() ? estimate_ns(steps[i]) : static_cast<double>(times[i]);
    total += time;
    if (is_oracle(steps[i])) nodes.push_back({steps[i].name, time});
  }
  for (OracleNode& node : nodes) node.share = total > 0 ? node.share / total : 0;
  std::ranges::stable_sort(nodes, std::ranges::greater(), &OracleNode::share);
  return nodes;
}

std::string describe_oracle_nodes(const Program& program) {
  constexpr std::size_t kMostNames = 5;
  const std::vector<OracleNode> nodes = find_oracle_nodes(program.steps());
  if (nodes.empty()) return {};
  const auto percent = [](double share) { return static_cast<int>(std::lround(100 * share)); };
  const double share =
      std::accumulate(nodes.begin(), nodes.end(), 0.0, [](double sum, const auto& node) { return sum + node.share; });
  std::string text = format("oracle kernels, which are slow, run {} of {} steps (about {} % of the time):", nodes.size(),
                            program.step_count(), percent(share));
  for (std::size_t i = 0; i < std::min(kMostNames, nodes.size()); ++i)
    text += format("{} {} ({} %)", i == 0 ? "" : ",", nodes[i].name, percent(nodes[i].share));
  if (nodes.size() > kMostNames) text += format(" and {} more", nodes.size() - kMostNames);
  return text;
}

}  // namespace shoal::worker
