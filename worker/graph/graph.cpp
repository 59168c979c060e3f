#include "worker/graph/graph.hpp"

#include <algorithm>
#include <iterator>
#include <set>

#include "shm/base/errors.hpp"
#include "shm/base/format.hpp"
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
  std::set<const std::byte*> counted;  // a constant that several bodies read is one
  std::uint64_t bytes = 0;
  for_each_graph(*this, [&](const Graph& graph) {
    const auto count = [&](ValueId id) {
      const auto& constant = graph.value(id).constant;
      if (constant && counted.insert(constant->bytes.data()).second) bytes += constant->bytes.size();
    };
    for (const Node& node : graph.nodes) std::ranges::for_each(node.inputs, count);
    for (const GraphOutput& output : graph.outputs) count(output.value);
  });
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
  for (Node& node : graph.nodes) {
    for (std::size_t body = 0; body < node.bodies.size(); ++body) {
      node.bodies[body].scope = format("{}n{}.{}/", graph.scope, node.outputs.front(), body);
      name_scopes(node.bodies[body]);
    }
  }
}

std::string constant_key(const Graph& graph, ValueId id) {
  const auto& constant = graph.value(id).constant;
  return constant && !constant->key.empty() ? constant->key : graph.scope + "v" + std::to_string(id);
}

std::string converted_key(const Graph& graph, ValueId id, DType dtype) {
  return format("{} as {}", constant_key(graph, id), dtype_name(dtype));
}

namespace {

bool nests_deeper(const Graph& graph, int most) {
  return std::ranges::any_of(graph.nodes, [most](const Node& node) {
    return !node.bodies.empty() &&
           (most == 0 || std::ranges::any_of(node.bodies, [most](const Graph& body) { return nests_deeper(body, most - 1); }));
  });
}

/// Does each body have an input for each capture? infer() refuses a node that is not so.
bool has_captures(const Node& node, std::size_t captures) {
  return std::ranges::all_of(node.bodies, [&](const Graph& body) { return body.inputs.size() >= captures; });
}

void move_captured_constants(Graph& graph, Node& node) {
  const std::size_t own = std::min(node.op->bodies.own_inputs(node), node.inputs.size());
  const std::size_t captures = node.inputs.size() - own;
  if (!has_captures(node, captures)) return;
  std::vector<ValueId> kept(node.inputs.begin(), node.inputs.begin() + static_cast<std::ptrdiff_t>(own));
  for (std::size_t i = 0; i < captures; ++i) {
    const ValueId captured = node.inputs[own + i];
    const auto& constant = graph.value(captured).constant;
    if (!constant) {
      kept.push_back(captured);
      continue;
    }
    for (Graph& body : node.bodies) {
      // The captures that are left stand behind those that were looked at.
      const auto at = body.inputs.end() - static_cast<std::ptrdiff_t>(captures - i);
      Value& inner = body.value(*at);
      inner.constant = constant;
      inner.constant->key = constant_key(graph, captured);
      inner.dtype = constant->dtype;
      inner.shape = constant->shape;
      inner.expressions = nullptr;
      body.inputs.erase(at);
    }
  }
  node.inputs = std::move(kept);
}

}  // namespace

Status check_nesting(const Graph& graph) {
  if (!nests_deeper(graph, kMostNesting)) return {};
  return invalid_argument("the graph has bodies within bodies, more than {} deep", kMostNesting);
}

void move_constants_into_bodies(Graph& whole) {
  for_each_graph(whole, [](Graph& graph) {
    for (Node& node : graph.nodes) {
      if (!node.bodies.empty() && node.op->bodies.count > 0) move_captured_constants(graph, node);
    }
  });
}

std::string describe(const Node& node) {
  return (node.source_op.empty() ? std::string(node.op->name) : node.source_op) + " '" + node.name + "'";
}

}  // namespace shoal::worker
