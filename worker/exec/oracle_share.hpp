// Which nodes of a program run by their oracle kernels, and what part of its time they take.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "worker/exec/program.hpp"

namespace shoal::worker {

struct OracleNode {
  std::string name;  ///< "Softmax 'prob'"; of a body "Loop 'foreach0', Softmax 'prob'"
  double share = 0;  ///< of the time of a run
};

/// The nodes that run by their oracle kernels, those that take longest first.
///   times  of each step, in any unit; if there are none, the time is estimated from the operations and bytes of a step. The time
///          of a step with bodies is divided among their steps as that estimate says
std::vector<OracleNode> find_oracle_nodes(std::span<const StepInfo> steps, std::span<const std::uint64_t> times = {});
/// "oracle kernels, which are slow, run 2 of 30 steps (about 34 % of the time): Convolution 'a' (30 %), Softmax 'b' (4 %)"; empty
/// if there are none.
std::string describe_oracle_nodes(const Program& program);

}  // namespace shoal::worker
