#include "tools/shoal/node_list.hpp"

#include <algorithm>
#include <unordered_map>

#include "worker/graph/operators.hpp"

namespace shoal::tool {
namespace {

/// Empty if they are not inferred.
std::string types_of(const worker::Graph& graph, const worker::Node& node) {
  if (graph.value(node.outputs.front()).dtype == DType::kInvalid) return {};
  std::string text;
  const auto add = [&](const std::vector<worker::ValueId>& values) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      text += format("{}{}", i == 0 ? "" : ", ", dtype_name(graph.value(values[i]).dtype));
    }
  };
  add(node.inputs);
  text += " -> ";
  add(node.outputs);
  return text;
}

/// A node may have several steps: copies of its inputs or results beside the one that computes. That one tells.
bool tells_more(const worker::StepInfo& step, const worker::StepInfo* than) {
  return than == nullptr || step.implementation == "oracle" || (step.flops > than->flops && than->implementation != "oracle");
}

/// `where`: before the names, that of the node with this body.
void list(const worker::Graph& graph, const std::vector<worker::StepInfo>* steps, std::string_view device, std::string_view host,
          const std::string& where, std::vector<ListedNode>& nodes) {
  std::unordered_map<std::string, const worker::StepInfo*> step_of;
  if (steps != nullptr) {
    for (const worker::StepInfo& step : *steps) {
      if (const worker::StepInfo*& known = step_of[step.name]; tells_more(step, known)) known = &step;
    }
  }
  std::vector<bool> is_constant(graph.values.size());
  for (std::size_t i = 0; i < graph.values.size(); ++i) is_constant[i] = graph.values[i].constant.has_value();
  const auto constant = [&](worker::ValueId id) { return is_constant[static_cast<std::size_t>(id)]; };
  for (const worker::Node& node : graph.nodes) {
    ListedNode listed{.name = where + node.name, .op = node.source_op, .types = types_of(graph, node)};
    if (listed.op.empty()) listed.op = node.op->name;
    const bool folds = node.bodies.empty() && std::ranges::all_of(node.inputs, constant);
    if (folds) {
      for (const worker::ValueId id : node.outputs) is_constant[static_cast<std::size_t>(id)] = true;
    }
    const auto found = step_of.find(worker::describe(node));
    const worker::StepInfo* const step = found == step_of.end() ? nullptr : found->second;
    if (steps != nullptr) listed.by = step != nullptr ? step->implementation : folds ? "constant" : "fused";
    if (step != nullptr) listed.device = step->on_device ? device : host;
    nodes.push_back(std::move(listed));
    for (std::size_t body = 0; body < node.bodies.size(); ++body) {
      const bool has_steps = step != nullptr && body < step->bodies.size();
      list(node.bodies[body], has_steps ? &step->bodies[body] : nullptr, device, host, where + node.name + "/", nodes);
    }
  }
}

}  // namespace

std::vector<ListedNode> list_nodes(const worker::Graph& graph, const std::vector<worker::StepInfo>* steps,
                                   std::string_view device, std::string_view host) {
  std::vector<ListedNode> nodes;
  list(graph, steps, device, host, "", nodes);
  return nodes;
}

void add_refused(std::span<const worker::RefusedNode> refused, std::vector<ListedNode>& nodes) {
  for (const worker::RefusedNode& node : refused) {
    const auto listed = std::ranges::find_if(
        nodes, [&](const ListedNode& each) { return each.name == node.node && each.op == node.op && each.missing.empty(); });
    if (listed != nodes.end()) {
      listed->missing = node.reason;
    } else {
      nodes.push_back({.name = node.node, .op = node.op, .missing = node.reason});
    }
  }
}

}  // namespace shoal::tool
