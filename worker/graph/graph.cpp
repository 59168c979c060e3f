#include "worker/graph/graph.hpp"

#include <algorithm>
#include <iterator>
#include <set>

#include "shm/base/format.hpp"
#include "worker/graph/operators.hpp"

namespace shoal::worker {

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
  for (const Node& node : nodes) {
    for (const Graph& body : node.bodies) bytes += body.constant_bytes();
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

void name_scopes(Graph& graph) {
  for (std::size_t node = 0; node < graph.nodes.size(); ++node) {
    for (std::size_t body = 0; body < graph.nodes[node].bodies.size(); ++body) {
      Graph& inner = graph.nodes[node].bodies[body];
      inner.scope = format("{}n{}.{}/", graph.scope, node, body);
      name_scopes(inner);
    }
  }
}

void move_constants_into_bodies(Graph& graph) {
  for (Node& node : graph.nodes) {
    if (node.bodies.empty()) continue;
    const std::size_t own = node.op->bodies.own_inputs(node);
    std::vector<ValueId> kept(node.inputs.begin(), node.inputs.begin() + static_cast<std::ptrdiff_t>(own));
    const std::size_t captures = node.inputs.size() - own;
    for (std::size_t i = 0; i < captures; ++i) {
      const ValueId captured = node.inputs[own + i];
      const auto& constant = graph.value(captured).constant;
      if (!constant) kept.push_back(captured);
      for (Graph& body : node.bodies) {
        // The captures that are left stand behind those that were looked at.
        const auto at = body.inputs.end() - static_cast<std::ptrdiff_t>(captures - i);
        if (!constant) continue;
        Value& inner = body.value(*at);
        inner.constant = constant;
        inner.dtype = constant->dtype;
        inner.shape = constant->shape;
        body.inputs.erase(at);
      }
    }
    node.inputs = std::move(kept);
    for (Graph& body : node.bodies) move_constants_into_bodies(body);
  }
}

std::string describe(const Node& node) {
  return (node.source_op.empty() ? std::string(node.op->name) : node.source_op) + " '" + node.name + "'";
}

}  // namespace shoal::worker
