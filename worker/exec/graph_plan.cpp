#include "worker/exec/graph_plan.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "shm/base/errors.hpp"
#include "worker/exec/dynamic_step.hpp"
#include "worker/exec/oracle_step.hpp"
#include "worker/graph/operators.hpp"

namespace shoal::worker {

TensorSpec open_spec(const std::string& name, DType dtype, const SymbolicShape& sizes) {
  TensorSpec spec{name, dtype, sizes.bound()};
  for (int axis = 0; axis < sizes.rank(); ++axis) {
    if (sizes[axis].is_number()) continue;
    spec.ranges.resize(static_cast<std::size_t>(sizes.rank()));
    spec.ranges[static_cast<std::size_t>(axis)] = {std::max<std::int64_t>(sizes[axis].lowest(), 0), sizes[axis].highest()};
    spec.shape[axis] = -1;
  }
  return spec;
}

Plan start_plan(const Graph& graph) {
  Plan plan;
  for (const ValueId id : graph.inputs)
    plan.inputs.push_back({graph.value(id).name, graph.value(id).dtype, graph.value(id).shape});
  for (const GraphOutput& output : graph.outputs) {
    const Value& value = graph.value(output.value);
    plan.outputs.push_back(open_spec(output.name, value.dtype, value.sizes()));
  }
  return plan;
}

BufferId add_value_buffer(const Value& value, Plan& plan) {
  const BufferId buffer = plan.add_buffer(size_bytes_of(value));
  if (value.expressions) {
    const BufferId slot = plan.add_buffer(sizeof(Shape));
    plan.buffer(buffer).shape_slot = slot;
  }
  return buffer;
}

std::vector<bool> find_read_values(const Graph& graph) {
  std::vector<bool> read(graph.values.size());
  for (const Node& node : graph.nodes) {
    for (const ValueId id : node.inputs) read[static_cast<std::size_t>(id)] = true;
  }
  for (const GraphOutput& output : graph.outputs) read[static_cast<std::size_t>(output.value)] = true;
  return read;
}

std::string node_key(const Graph& graph, const Node& node) { return graph.scope + "n" + std::to_string(node.outputs.front()); }

Result<int> plain_entry(const Graph& graph, ValueId id, WeightStore& weights) {
  const Value& value = graph.value(id);
  const std::size_t bytes = size_bytes_of(value);
  const ConstantChain chain = chain_of(graph, id);
  const WeightForm form{.dtype = value.dtype};
  int index = weights.find(chain.key(), form);
  if (index < 0 && weights.is_sealed()) return unimplemented("constant '{}' was not packed in plain form", value.name);
  if (index < 0) index = weights.add(chain, form, bytes, write_source);
  SHOAL_RETURN_IF_ERROR(weights.check_size(index, bytes));
  return index;
}

Result<BufferId> add_plain_constant(const Graph& graph, ValueId id, WeightStore& weights, Plan& plan) {
  SHOAL_ASSIGN_OR_RETURN(const int index, plain_entry(graph, id, weights));
  return plan.add_buffer(size_bytes_of(graph.value(id)), Buffer::Home::kWeights, index);
}

void mark_bounds(Plan& plan, const Node& node, const std::vector<PlacedTensor>& src) {
  std::vector<BufferId> inputs;
  for (const PlacedTensor& tensor : src) inputs.push_back(tensor.buffer);
  mark_bounds(plan, node, inputs);
}

void mark_bounds(Plan& plan, const Node& node, std::span<const BufferId> inputs) {
  const int input = node.op->facts.index_input;
  const BufferId id = input >= 0 && std::cmp_less(input, inputs.size()) ? inputs[static_cast<std::size_t>(input)] : kNoBuffer;
  if (id != kNoBuffer) plan.buffer(id).holds_bounds = true;
}

void add_oracle_step(Plan& plan, const Node& node, const std::vector<PlacedTensor>& src, const std::vector<PlacedTensor>& dst,
                     NodeKernel kernel) {
  mark_bounds(plan, node, src);
  plan.steps.push_back(has_dynamic_tensor(plan, src, dst) ? make_dynamic_step(plan, node, src, dst, std::move(kernel))
                                                          : make_oracle_step(node, src, dst));
}

void deliver_output(Plan& plan, BufferId id, int index) {
  Buffer& buffer = plan.buffer(id);
  if (buffer.shape_slot != kNoBuffer) {
    plan.dynamic_outputs.push_back({static_cast<std::size_t>(index), id});
    return;
  }
  const bool has_parts =
      std::any_of(plan.buffers.begin(), plan.buffers.end(), [&](const Buffer& other) { return other.parent == id; });
  if (buffer.home == Buffer::Home::kArena && buffer.parent == kNoBuffer && !has_parts && !buffer.holds_bounds) {
    buffer.home = Buffer::Home::kOutput;
    buffer.index = index;
    return;
  }
  const std::size_t bytes = buffer.bytes;
  const BufferId dst = plan.add_buffer(bytes, Buffer::Home::kOutput, index);
  plan.steps.push_back(make_copy_step("output '" + plan.outputs[static_cast<std::size_t>(index)].name + "'", id, dst, bytes));
}

}  // namespace shoal::worker
