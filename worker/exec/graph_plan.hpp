// What every device's way from a Graph to a Plan shares.
#pragma once

#include <string>
#include <vector>

#include "worker/exec/plan.hpp"
#include "worker/exec/weight_store.hpp"
#include "worker/graph/graph.hpp"

namespace shoal::worker {

std::size_t size_bytes_of(const Value& value);
/// A Plan that has the graph's inputs and outputs and nothing else.
Plan start_plan(const Graph& graph);
/// Per value: is it read by a node or an output of the graph.
std::vector<bool> find_read_values(const Graph& graph);
/// How WeightStore names a constant of the graph.
std::string constant_key(ValueId id);
/// A buffer with the constant in row-major order and the value's dtype.
///   Errors  kUnimplemented: the constant exists only in another form by now
Result<BufferId> add_plain_constant(const Graph& graph, ValueId id, WeightStore& weights, Plan& plan);
/// Makes `buffer`, plain, output number `index`: the steps write straight into it where nothing forbids, else a copy is added.
void deliver_output(Plan& plan, BufferId buffer, int index);

}  // namespace shoal::worker
