// link_parts(): one Plan of the plans of a graph's parts.
#pragma once

#include <memory>
#include <vector>

#include "worker/exec/plan.hpp"
#include "worker/exec/weight_store.hpp"
#include "worker/graph/graph.hpp"

namespace shoal::worker {

/// A part as its backend prepared it.
struct PreparedPart {
  Space space = kHost;
  std::vector<ValueId> inputs, outputs;  ///< of its graph, which are those of `plan`
  Plan plan;
};

/// Joins the plans in their order, which must be one in which they can run. Values that pass between the parts get a buffer in
/// each space that needs them, and steps that copy them; values pass from device to device through the host. A device works
/// while the host goes on: the wait comes before the first step that needs its results.
///   devices  those of the spaces 1, 2, ...
///   Errors   those of add_plain_constant(), for an output of the graph that is a constant
Result<Plan> link_parts(const Graph& graph, std::vector<PreparedPart> parts, std::vector<std::shared_ptr<const Backend>> devices,
                        WeightStore& weights);

}  // namespace shoal::worker
