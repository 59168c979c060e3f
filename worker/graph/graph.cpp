#include "worker/graph/graph.hpp"

#include <algorithm>
#include <iterator>
#include <set>

#include "worker/graph/operators.hpp"

namespace shoal::worker {

std::size_t size_bytes_of(const Value& value) {
  return static_cast<std::size_t>(value.shape.element_count()) * dtype_size_bytes(value.dtype);
}

ValueId Graph::add_value(Value value) {
  values.push_back(std::move(value));
  return static_cast<ValueId>(values.size() - 1);
}

std::vector<TensorSpec> Graph::input_specs() const {
  std::vector<TensorSpec> specs;
  for (const ValueId id : inputs) {
    const Value& input = value(id);
    specs.push_back({input.name, input.dtype == DType::kInvalid ? DType::kFloat32 : input.dtype, input.shape});
  }
  return specs;
}

std::uint64_t Graph::constant_bytes() const {
  std::set<ValueId> used;
  for (const Node& node : nodes) used.insert(node.inputs.begin(), node.inputs.end());
  for (const GraphOutput& output : outputs) used.insert(output.value);
  std::uint64_t bytes = 0;
  for (const ValueId id : used) {
    if (const auto& constant = value(id).constant) bytes += constant->bytes.size();
  }
  return bytes;
}

void Graph::remove_unneeded_nodes() {
  std::vector<bool> is_needed(values.size());
  const auto need = [&](ValueId id) { is_needed[static_cast<std::size_t>(id)] = true; };
  for (const GraphOutput& output : outputs) need(output.value);
  std::vector<Node> kept;
  while (!nodes.empty()) {
    Node& node = nodes.back();
    if (std::ranges::any_of(node.outputs, [&](ValueId id) { return is_needed[static_cast<std::size_t>(id)]; })) {
      std::ranges::for_each(node.inputs, need);
      kept.push_back(std::move(node));
    }
    nodes.pop_back();
  }
  nodes.assign(std::make_move_iterator(kept.rbegin()), std::make_move_iterator(kept.rend()));
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    for (const ValueId id : nodes[i].outputs) value(id).producer = static_cast<NodeId>(i);
  }
}

std::string describe(const Node& node) {
  return (node.source_op.empty() ? std::string(node.op->name) : node.source_op) + " '" + node.name + "'";
}

}  // namespace shoal::worker
