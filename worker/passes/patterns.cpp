#include "worker/passes/patterns.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

#include "worker/graph/operators.hpp"
#include "worker/ops/arithmetic.hpp"
#include "worker/ops/convolution.hpp"
#include "worker/ops/deconvolution.hpp"
#include "worker/ops/fully_connected.hpp"
#include "worker/ops/normalization.hpp"

namespace shoal::worker {
namespace {

using Kind = ElementFunction::Kind;

bool near(float a, double b) { return std::abs(a - b) <= 1e-6 * std::abs(b); }

/// x * gate(x) as one function: swish or hard swish.
Functions gated(const Functions& gate) {
  if (gate.empty() || gate.size() > 2) return {};
  const ElementFunction first = gate.size() == 2 ? gate[0] : ElementFunction{Kind::kLinear, 1, -0.0F};
  const ElementFunction& last = gate.back();
  if (first.kind != Kind::kLinear) return {};
  if (last.kind == Kind::kLogistic && first.beta == 0) return {{Kind::kSwish, first.alpha}};
  // x * clip(a x + b, 0, 6 a), where 6 a is the height of the gate and b its half.
  const bool is_hard = last.kind == Kind::kClip && last.alpha == 0 && last.beta > 0 && near(first.alpha * 6, last.beta) &&
                       near(first.beta * 2, last.beta);
  if (!is_hard) return {};
  Functions row{{Kind::kHardSwish}};
  if (!near(last.beta, 1)) row.push_back({Kind::kLinear, last.beta, -0.0F});
  return row;
}

bool is_product(const Node& node) {
  const auto* const binary = node.attributes.get_if<BinaryAttributes>();
  return binary != nullptr && binary->kind == BinaryKind::kMul;
}

/// The gate of x that begins with the node `at`.
std::optional<Gate> gate_from(const Graph& graph, const Readers& readers, ValueId x, NodeId at) {
  Gate found;
  Functions row;
  for (ValueId gate = x; at != kNoNode; at = readers.sole(gate)) {
    const Node& node = graph.nodes[static_cast<std::size_t>(at)];
    found.nodes.push_back(at);
    if (is_product(node) && gate != x && other_input(node, gate) == x) {
      found.functions = gated(row);
      return found.functions.empty() ? std::nullopt : std::optional(std::move(found));
    }
    const Functions functions = functions_of(node);
    if (functions.empty()) return std::nullopt;
    for (const ElementFunction& function : functions) append(row, as_product(function));
    gate = node.outputs[0];
  }
  return std::nullopt;
}

bool are_constant(const Graph& graph, std::span<const ValueId> ids) {
  return std::ranges::all_of(ids, [&](ValueId id) { return graph.value(id).constant.has_value(); });
}

}  // namespace

Readers::Readers(const Graph& graph) : readers_(graph.values.size()), is_output_(graph.values.size()) {
  for (std::size_t index = 0; index < graph.nodes.size(); ++index) {
    for (const ValueId id : graph.nodes[index].inputs)
      readers_[static_cast<std::size_t>(id)].push_back(static_cast<NodeId>(index));
  }
  for (const GraphOutput& output : graph.outputs) is_output_[static_cast<std::size_t>(output.value)] = true;
}

std::map<ValueId, Gate> find_gates(const Graph& graph, const Readers& readers) {
  std::map<ValueId, Gate> gates;
  for (std::size_t index = 0; index < graph.values.size(); ++index) {
    const auto x = static_cast<ValueId>(index);
    if (readers.is_output(x) || readers.of(x).size() != 2 || graph.value(x).dtype != DType::kFloat32) continue;
    for (const NodeId at : readers.of(x)) {
      if (auto gate = gate_from(graph, readers, x, at)) {
        gates.emplace(x, *std::move(gate));
        break;
      }
    }
  }
  return gates;
}

std::vector<NodeId> find_foldable_norms(const Graph& graph, const Readers& readers) {
  std::vector<NodeId> found(graph.nodes.size(), kNoNode);
  for (std::size_t index = 0; index < graph.nodes.size(); ++index) {
    const Node& node = graph.nodes[index];
    // If a FullyConnected keeps leading axes, the channels of a BatchNorm are not the rows of its weights.
    const bool has_filters = node.op == &ops::kConvolution || node.op == &ops::kDeconvolution ||
                             (node.op == &ops::kFullyConnected && graph.value(node.outputs[0]).shape.rank() == 2);
    if (!has_filters || !are_constant(graph, std::span(node.inputs).subspan(1))) continue;
    const NodeId reader = readers.sole(node.outputs[0]);
    if (reader == kNoNode) continue;
    const Node& norm = graph.nodes[static_cast<std::size_t>(reader)];
    const auto* const attributes = norm.attributes.get_if<BatchNormAttributes>();
    const auto is_float = [&](ValueId id) { return graph.value(id).dtype == DType::kFloat32; };
    if (attributes != nullptr && attributes->axis == 1 && norm.inputs[0] == node.outputs[0] &&
        std::ranges::all_of(node.inputs, is_float) && std::ranges::all_of(norm.inputs, is_float) &&
        are_constant(graph, std::span(norm.inputs).subspan(1)) && !readers.is_read(norm.outputs[1]) &&
        !readers.is_read(norm.outputs[2]))
      found[index] = reader;
  }
  return found;
}

}  // namespace shoal::worker
