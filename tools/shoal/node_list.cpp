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

}  // namespace

std::vector<ListedNode> list_nodes(const worker::Graph& graph, const std::vector<worker::StepInfo>& steps,
                                   std::string_view device, std::string_view host,
                                   const std::vector<worker::Survey::Unsupported>& unsupported) {
  std::unordered_map<std::string, const worker::StepInfo*> step_of;
  for (const worker::StepInfo& step : steps) {
    if (const worker::StepInfo*& known = step_of[step.name]; tells_more(step, known)) known = &step;
  }
  std::vector<bool> is_constant(graph.values.size());
  for (std::size_t i = 0; i < graph.values.size(); ++i) is_constant[i] = graph.values[i].constant.has_value();
  const auto constant = [&](worker::ValueId id) { return is_constant[static_cast<std::size_t>(id)]; };
  std::vector<ListedNode> nodes;
  for (const worker::Node& node : graph.nodes) {
    ListedNode listed{.name = node.name, .op = node.source_op, .types = types_of(graph, node)};
    if (listed.op.empty()) listed.op = node.op->name;
    const bool folds = node.bodies.empty() && std::ranges::all_of(node.inputs, constant);
    if (folds) {
      for (const worker::ValueId id : node.outputs) is_constant[static_cast<std::size_t>(id)] = true;
    }
    if (!steps.empty()) {
      const auto step = step_of.find(worker::describe(node));
      listed.by = step != step_of.end() ? step->second->implementation : folds ? "constant" : "fused";
      if (step != step_of.end()) listed.device = step->second->on_device ? device : host;
    }
    nodes.push_back(std::move(listed));
  }
  for (const auto& [op, node, reason] : unsupported) nodes.push_back({.name = node, .op = op, .missing = reason});
  return nodes;
}

}  // namespace shoal::tool
