// The step of a node with bodies. Each body is a program of its own, compiled by the backend that runs the node.
#pragma once

#include <functional>
#include <vector>

#include "worker/exec/oracle_step.hpp"
#include "worker/exec/plan.hpp"
#include "worker/exec/weight_store.hpp"
#include "worker/graph/graph.hpp"

namespace shoal::worker {

/// Compiles a body, with the weights of the whole model.
using CompileBody = std::function<Result<Plan>(const Graph& body)>;

/// Adds the step that runs `node` on plain layout. The programs of the bodies are parts of the step. The arena of the plan has
/// room for the one that needs most, because they run one at a time.
///   src, dst  all inputs and outputs of the node, captures included
///   weights   a shared_ptr owns it
///   Errors    those of `compile`, with node and body named
Status add_body_step(Plan& plan, const Node& node, const std::vector<PlacedTensor>& src, const std::vector<PlacedTensor>& dst,
                     const WeightStore& weights, const CompileBody& compile);

}  // namespace shoal::worker
