// Steps from a Graph to a Plan that all devices share.
#pragma once

#include <string>
#include <vector>

#include "worker/exec/oracle_step.hpp"
#include "worker/exec/plan.hpp"
#include "worker/exec/weight_store.hpp"
#include "worker/graph/graph.hpp"

namespace shoal::worker {

std::size_t size_bytes_of(const Value& value);
/// Makes a Plan with the graph's inputs and outputs only.
Plan start_plan(const Graph& graph);
/// Per value: does a node read it, or is it an output of the graph?
std::vector<bool> find_read_values(const Graph& graph);
/// The key of a constant of the graph in the WeightStore.
std::string constant_key(const Graph& graph, ValueId id);
/// Adds a buffer with the constant in row-major order and the value's dtype.
///   Errors  kUnimplemented: the constant exists only in another form now
Result<BufferId> add_plain_constant(const Graph& graph, ValueId id, WeightStore& weights, Plan& plan);
/// Adds the step that runs the oracle kernel on plain layout. Marks the buffer that `node` takes bounds from (`holds_bounds`).
void add_oracle_step(Plan& plan, const Node& node, const std::vector<PlacedTensor>& src, const std::vector<PlacedTensor>& dst);
/// Makes `buffer`, which is plain, output number `index`. The steps write into the output itself if that is allowed; otherwise a
/// copy is added.
void deliver_output(Plan& plan, BufferId buffer, int index);

}  // namespace shoal::worker
