#include "tests/fuzz/sensitive_nodes.hpp"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "worker/graph/operators.hpp"
#include "worker/ops/arithmetic.hpp"
#include "worker/ops/cast.hpp"
#include "worker/ops/quantization.hpp"
#include "worker/ops/statistics.hpp"
#include "worker/ops/unary.hpp"

namespace shoal::fuzz {

using namespace shoal::worker;

bool has_steps(const Node& node) {
  if (node.op == &ops::kQuantize || node.op == &ops::kAround || node.op == &ops::kHistogram) return true;
  if (node.op->bodies.count == 0 && node.op->facts.index_input >= 0) return true;
  constexpr std::string_view kOfOrder[] = {"boxes", "detection", "ordering", "proposal", "regions", "searching"};
  if (std::ranges::find(kOfOrder, node.op->family()) != std::end(kOfOrder)) return true;
  if (const auto* unary = node.attributes.get_if<UnaryAttributes>()) {
    return unary->kind == UnaryKind::kSign || (unary->kind >= UnaryKind::kLogicalNot && unary->kind <= UnaryKind::kRint);
  }
  const auto is_step = [](BinaryKind kind) {
    return kind == BinaryKind::kMod || kind == BinaryKind::kArctan2 || kind == BinaryKind::kCopySign ||
           (kind >= BinaryKind::kEqual && kind <= BinaryKind::kLogicalXor);
  };
  if (const auto* binary = node.attributes.get_if<BinaryAttributes>()) return is_step(binary->kind);
  if (const auto* scalar = node.attributes.get_if<ScalarAttributes>()) return is_step(scalar->kind);
  if (const auto* cast = node.attributes.get_if<CastAttributes>())
    return dtype_size_bytes(cast->dtype) < 4 || cast->dtype == DType::kInt32 || cast->dtype == DType::kInt64;
  return false;
}

bool has_border(const Node& node) {
  if (const auto* unary = node.attributes.get_if<UnaryAttributes>()) {
    constexpr UnaryKind kLimited[] = {UnaryKind::kSqrt,    UnaryKind::kRsqrt,   UnaryKind::kLog,    UnaryKind::kLog2,
                                      UnaryKind::kLog10,   UnaryKind::kLog1p,   UnaryKind::kArcsin, UnaryKind::kArccos,
                                      UnaryKind::kArccosh, UnaryKind::kArctanh, UnaryKind::kErfinv, UnaryKind::kGamma};
    return std::ranges::find(kLimited, unary->kind) != std::end(kLimited);
  }
  const auto* binary = node.attributes.get_if<BinaryAttributes>();
  const auto* scalar = node.attributes.get_if<ScalarAttributes>();
  if (binary && binary->kind == BinaryKind::kDiv) return true;  // 0 / 0
  return (binary && binary->kind == BinaryKind::kPower) || (scalar && scalar->kind == BinaryKind::kPower);
}

bool has_infinite_slope(const Node& node) {
  const auto* unary = node.attributes.get_if<UnaryAttributes>();
  return unary && (unary->kind == UnaryKind::kCbrt || unary->kind == UnaryKind::kSqrt);
}

bool is_periodic(const Node& node) {
  const auto* unary = node.attributes.get_if<UnaryAttributes>();
  return unary && (unary->kind == UnaryKind::kSin || unary->kind == UnaryKind::kCos || unary->kind == UnaryKind::kTan);
}

bool counts_equal_numbers(const Node& node) { return node.op->name == "Unique"; }

std::vector<const Node*> nodes_behind(const Graph& graph, std::size_t output) {
  std::vector<bool> is_behind(graph.nodes.size(), output >= graph.outputs.size());
  const auto visit = [&](ValueId id) {
    if (const NodeId producer = graph.value(id).producer; producer != kNoNode)
      is_behind[static_cast<std::size_t>(producer)] = true;
  };
  if (output < graph.outputs.size()) visit(graph.outputs[output].value);
  std::vector<const Node*> nodes;
  for (std::size_t i = graph.nodes.size(); i-- > 0;) {  // a node comes after those whose results it reads
    if (!is_behind[i]) continue;
    nodes.push_back(&graph.nodes[i]);
    std::ranges::for_each(graph.nodes[i].inputs, visit);
  }
  return nodes;
}

}  // namespace shoal::fuzz
