// Steps from a Graph to a Plan that all devices share.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "worker/exec/dynamic_step.hpp"
#include "worker/exec/oracle_step.hpp"
#include "worker/exec/plan.hpp"
#include "worker/exec/weight_store.hpp"
#include "worker/graph/graph.hpp"

namespace shoal::worker {

/// The description of a tensor: a size that is not known is -1, with its bound as range.
TensorSpec open_spec(const std::string& name, DType dtype, const SymbolicShape& sizes);
/// Makes a Plan with the graph's inputs and outputs only.
Plan start_plan(const Graph& graph);
/// Adds a buffer in the arena for the value, and one for its shape if that depends on data.
BufferId add_value_buffer(const Value& value, Plan& plan);
/// Per value: does a node read it, or is it an output of the graph?
std::vector<bool> find_read_values(const Graph& graph);
/// The key of a node in Choices. It is the same in a part of a graph.
std::string node_key(const Graph& graph, const Node& node);
/// The entry of the store with the constant in row-major order and the value's dtype; it is added before the store is sealed.
///   Errors  kUnimplemented: the constant exists only in another form now
Result<int> plain_entry(const Graph& graph, ValueId id, WeightStore& weights);
/// Adds a buffer for that entry.
Result<BufferId> add_plain_constant(const Graph& graph, ValueId id, WeightStore& weights, Plan& plan);
/// Marks the buffer that `node` takes bounds from (`holds_bounds`).
void mark_bounds(Plan& plan, const Node& node, const std::vector<PlacedTensor>& src);
/// Likewise; `inputs` are the buffers of the node's inputs.
void mark_bounds(Plan& plan, const Node& node, std::span<const BufferId> inputs);
/// Adds the step that runs the oracle kernel on plain layout; where sizes depend on data, with those of each run, and by
/// `kernel` if there is one. Calls mark_bounds().
void add_oracle_step(Plan& plan, const Node& node, const std::vector<PlacedTensor>& src, const std::vector<PlacedTensor>& dst,
                     NodeKernel kernel = {});
/// Makes `buffer`, which is plain, output number `index`. If its size depends on data, it is copied when a run ends. Else the
/// steps write into the output itself if that is allowed; otherwise a copy is added.
void deliver_output(Plan& plan, BufferId buffer, int index);

}  // namespace shoal::worker
