// What oneDNN can fuse into a primitive: additions, gates and element-wise functions as post-operations.
#include <algorithm>

#include "worker/exec/cpu/compiler.hpp"
#include "worker/graph/operators.hpp"
#include "worker/ops/arithmetic.hpp"

namespace shoal::worker::cpu {
namespace {

using dnnl::algorithm;

/// An addition of two tensors of one shape.
bool is_addition(const Graph& graph, const Node& node) {
  const auto* const binary = node.attributes.get_if<BinaryAttributes>();
  const bool adds = binary ? binary->kind == BinaryKind::kAdd : node.op == &ops::kAddN && node.inputs.size() == 2;
  return adds && graph.value(node.inputs[0]).shape == graph.value(node.inputs[1]).shape;
}

bool divides(const Functions& functions) { return std::any_of(functions.begin(), functions.end(), is_division); }

}  // namespace

dnnl::algorithm eltwise_algorithm(ElementFunction::Kind kind) {
  using Kind = ElementFunction::Kind;
  switch (kind) {
    case Kind::kLinear:
      return algorithm::eltwise_linear;
    case Kind::kClip:
      return algorithm::eltwise_clip;
    case Kind::kRelu:
      return algorithm::eltwise_relu;
    case Kind::kAbs:
      return algorithm::eltwise_abs;
    case Kind::kSquare:
      return algorithm::eltwise_square;
    case Kind::kSqrt:
      return algorithm::eltwise_sqrt;
    case Kind::kLogistic:
      return algorithm::eltwise_logistic;
    case Kind::kTanh:
      return algorithm::eltwise_tanh;
    case Kind::kGelu:
      return algorithm::eltwise_gelu_erf;
    case Kind::kSwish:
      return algorithm::eltwise_swish;
    case Kind::kHardSwish:
      return algorithm::eltwise_hardswish;
    case Kind::kDivision:
      break;
  }
  return algorithm::undef;
}

// oneDNN 2.6.3 gives all element-wise functions of one algorithm in a chain the parameters of the first: x * 3 + 1 became x * 3
// * 3.
bool Compiler::clashes(std::span<const PostOp> chain) {
  Functions all;
  for (const PostOp& operation : chain) {
    for (const ElementFunction& next : operation.functions) {
      const bool clash = std::any_of(all.begin(), all.end(), [&](const ElementFunction& other) {
        return other.kind == next.kind && (other.alpha != next.alpha || other.beta != next.beta);
      });
      if (clash) return true;
      all.push_back(next);
    }
  }
  return false;
}

std::optional<Compiler::PostOp> Compiler::find_gated(ValueId from) const {
  const auto gate = gates_.find(from);
  if (gate == gates_.end()) return std::nullopt;
  const auto is_float_node = [this](NodeId id) { return suits_onednn(node(id)); };
  if (!std::ranges::all_of(gate->second.nodes, is_float_node)) return std::nullopt;
  return PostOp{.nodes = gate->second.nodes, .functions = gate->second.functions};
}

std::optional<Compiler::PostOp> Compiler::find_function(ValueId from) const {
  if (auto found = find_gated(from)) return found;
  const NodeId reader = sole_reader(from);
  if (reader == kNoNode || !suits_onednn(node(reader))) return std::nullopt;
  Functions functions = functions_of(node(reader));
  if (functions.empty()) return std::nullopt;
  return PostOp{.nodes = {reader}, .functions = std::move(functions)};
}

bool Compiler::extend(std::vector<PostOp>& chain, PostOp next) {
  constexpr std::size_t kMostFunctions = 16;  // oneDNN takes 32; and clashes() compares all pairs
  std::size_t functions = next.functions.size();
  for (const PostOp& operation : chain) functions += operation.functions.size();
  if (functions > kMostFunctions) return false;
  std::vector<PostOp> longer = chain;
  if (longer.empty() || longer.back().operand >= 0 || next.operand >= 0) {
    longer.push_back(std::move(next));
  } else {
    PostOp& last = longer.back();
    last.nodes.insert(last.nodes.end(), next.nodes.begin(), next.nodes.end());
    for (const ElementFunction& function : next.functions) append(last.functions, function);
  }
  if (clashes(longer)) return false;
  chain = std::move(longer);
  return true;
}

std::vector<Compiler::PostOp> Compiler::find_post_ops(ValueId from, bool with_addition) {
  std::vector<PostOp> found;
  for (ValueId at = from;;) {
    if (auto function = find_function(at)) {
      at = node(function->nodes.back()).outputs[0];
      std::vector<PostOp> longer = found;
      if (!extend(longer, std::move(*function)) || divides(longer.back().functions)) return found;
      found = std::move(longer);
      continue;
    }
    const NodeId reader = sole_reader(at);
    if (reader == kNoNode || !with_addition || !suits_onednn(node(reader)) || !is_addition(graph_, node(reader))) return found;
    const ValueId operand = other_input(node(reader), at);
    if (!is_ready(operand)) return found;
    found.push_back({.nodes = {reader}, .operand = operand});
    with_addition = false;  // oneDNN takes one sum
    at = node(reader).outputs[0];
  }
}

dnnl::primitive_attr Compiler::attributes_for(std::span<const PostOp> post_ops) {
  dnnl::post_ops operations;
  for (const PostOp& operation : post_ops) {
    if (operation.operand >= 0 && operation.operand_desc != Desc()) {
      operations.append_binary(algorithm::binary_add, operation.operand_desc);
    } else if (operation.operand >= 0) {
      operations.append_sum(1.0F);
    }
    for (const ElementFunction& function : operation.functions) {
      operations.append_eltwise(1.0F, eltwise_algorithm(function.kind), function.alpha, function.beta);
    }
  }
  dnnl::primitive_attr attr;
  attr.set_post_ops(operations);
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attr;
}

ValueId Compiler::result_of(ValueId from, std::span<const PostOp> post_ops) const {
  return post_ops.empty() ? from : node(post_ops.back().nodes.back()).outputs[0];
}

ValueId Compiler::absorb_post_ops(ValueId from, std::span<const PostOp> post_ops) {
  for (const PostOp& operation : post_ops) {
    for (const NodeId id : operation.nodes) absorb(id);
  }
  return result_of(from, post_ops);
}

const Node* Compiler::foldable_norm() const {
  const NodeId norm = norms_[static_cast<std::size_t>(now_)];
  return norm != kNoNode && suits_onednn(node(norm)) ? &node(norm) : nullptr;
}

}  // namespace shoal::worker::cpu
