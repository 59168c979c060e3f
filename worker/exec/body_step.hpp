// A step that runs the bodies of a node: each is a program of its own, compiled by the device that runs the node.
#pragma once

#include <functional>
#include <vector>

#include "worker/exec/oracle_step.hpp"
#include "worker/exec/plan.hpp"
#include "worker/exec/weight_store.hpp"
#include "worker/graph/graph.hpp"

namespace shoal::worker {

/// Compiles a body against the same weights.
using CompileBody = std::function<Result<Plan>(const Graph& body)>;

/// Adds the step that runs `node`, which has bodies, on plain layout. Their programs, and the memory in which they run, are parts
/// of the step: the arena of the plan has room for the largest of them.
///   src, dst  of all inputs and outputs of the node, captures included
///   weights   owned by a shared_ptr
///   Errors    those of `compile`, with node and body named
Status add_body_step(Plan& plan, const Node& node, const std::vector<PlacedTensor>& src, const std::vector<PlacedTensor>& dst,
                     const WeightStore& weights, const CompileBody& compile);

}  // namespace shoal::worker
