// What can be fused into a primitive: BatchNorm folded into weights; additions, gates and element-wise functions as
// post-operations.
#include <algorithm>
#include <cmath>

#include "worker/exec/cpu/compiler.hpp"
#include "worker/graph/operators.hpp"
#include "worker/ops/activation.hpp"
#include "worker/ops/arithmetic.hpp"
#include "worker/ops/normalization.hpp"
#include "worker/ops/unary.hpp"

namespace shoal::worker::cpu {
namespace {

using dnnl::algorithm;

Eltwise linear(double alpha, double beta) {
  return {algorithm::eltwise_linear, static_cast<float>(alpha), static_cast<float>(beta)};
}

Functions activation(const ActivationAttributes& attributes) {
  switch (attributes.kind) {
    case ActivationKind::kRelu:
      return {{algorithm::eltwise_relu}};
    case ActivationKind::kSigmoid:
      return {{algorithm::eltwise_logistic}};
    case ActivationKind::kTanh:
      return {{algorithm::eltwise_tanh}};
    case ActivationKind::kSoftRelu:  // oneDNN's is exact only to 2e-6, and negative for some x below -14
    case ActivationKind::kSoftSign:
      return {};
  }
  return {};
}

Functions leaky(const LeakyAttributes& attributes) {
  const auto slope = static_cast<float>(attributes.slope);
  switch (attributes.kind) {
    case LeakyKind::kLeaky:
      if (slope == 0) return {};  // for -inf this gives NaN, and a relu gives 0
      return {{algorithm::eltwise_relu, slope}};
    case LeakyKind::kElu:
      return {{algorithm::eltwise_elu, slope}};
    case LeakyKind::kSelu:  // scale * elu
      return {{algorithm::eltwise_elu, 1.6732632F}, linear(1.0507009873554804934, 0)};
    case LeakyKind::kGelu:
      return {{algorithm::eltwise_gelu_erf}};
    case LeakyKind::kPrelu:
      return {};
  }
  return {};
}

/// For a power of two, x / s and x * (1 / s) are the same number. For others they are not: floor(41 * (1 / 41)) is 0.
bool is_power_of_two(float s) {
  int exponent = 0;
  return std::isnormal(s) && std::isnormal(1 / s) && std::abs(std::frexp(s, &exponent)) == 0.5F;
}

Functions scalar(const ScalarAttributes& attributes) {
  const auto s = static_cast<float>(attributes.scalar);
  switch (attributes.kind) {
    case BinaryKind::kAdd:
      return {linear(1, s)};
    case BinaryKind::kSub:
      return {attributes.reversed ? linear(-1, s) : linear(1, -s)};
    case BinaryKind::kMul:
      return {linear(s, 0)};
    case BinaryKind::kDiv:
      if (attributes.reversed) return {};
      return {is_power_of_two(s) ? linear(1.0 / s, 0) : Eltwise{algorithm::binary_div, s}};
    case BinaryKind::kPower:
      return !attributes.reversed && s == 2 ? Functions{{algorithm::eltwise_square}} : Functions{};
    default:
      return {};
  }
}

Functions unary(const UnaryAttributes& attributes) {
  switch (attributes.kind) {
    case UnaryKind::kAbs:
      return {{algorithm::eltwise_abs}};
    case UnaryKind::kNegative:
      return {linear(-1, 0)};
    case UnaryKind::kSquare:
      return {{algorithm::eltwise_square}};
    case UnaryKind::kSqrt:
      return {{algorithm::eltwise_sqrt}};
    default:
      return {};
  }
}

bool near(float a, double b) { return std::abs(a - b) <= 1e-6 * std::abs(b); }
bool is(const Eltwise& function, algorithm wanted) { return function.algorithm == wanted; }

/// A division as a product. Within a gate (hard sigmoid, hard swish) the results are the same.
Eltwise as_product(const Eltwise& function) {
  return is_division(function) && std::isnormal(1 / function.alpha) ? linear(1.0 / function.alpha, 0) : function;
}

/// Does the row end in a gate of that height: clip(x + 3, 0, 6), or a hard swish with that factor?
bool ends_in_gate(const Functions& row, float height) {
  if (row.size() < 2) return false;
  const Eltwise &before = row[row.size() - 2], &last = row.back();
  const bool is_clip = is(before, algorithm::eltwise_linear) && is(last, algorithm::eltwise_clip) && last.alpha == 0;
  const bool is_swish = is(before, algorithm::eltwise_hardswish) && is(last, algorithm::eltwise_linear) && last.beta == 0;
  return (is_clip && last.beta == height) || (is_swish && last.alpha == height);
}

/// Do the two numbers nearly cancel? x + 12582912 - 12582912 rounds x to a whole number. Such a rounding is intended, so the
/// two additions must not become one.
bool cancels(double a, double b) {
  constexpr double kLeastLeft = 1.0 / 16;
  return (a != 0 || b != 0) && std::abs(a + b) < kLeastLeft * std::max(std::abs(a), std::abs(b));
}

/// outer(inner(x)) as one linear function. Empty if it is not linear, not the same in float32, or not finite.
std::optional<Eltwise> compose(const Eltwise& inner, const Eltwise& outer) {
  if (!is(inner, algorithm::eltwise_linear) || !is(outer, algorithm::eltwise_linear)) return std::nullopt;
  const double moved = static_cast<double>(outer.alpha) * inner.beta, beta = outer.beta;
  if (cancels(moved, beta)) return std::nullopt;
  const Eltwise both = linear(static_cast<double>(outer.alpha) * inner.alpha, moved + beta);
  if (!std::isnormal(both.alpha) || !std::isfinite(both.beta)) return std::nullopt;
  return both;
}

/// Appends a function to a row and keeps the row short. Consecutive linear functions become one. A linear function after a clip
/// moves into the linear function before the clip: clip(x + 3, 0, 6) / 6 = clip(x / 6 + 0.5, 0, 1).
void append(Functions& row, const Eltwise& given) {
  const Eltwise next = is_division(given) && ends_in_gate(row, given.alpha) ? as_product(given) : given;
  const std::size_t size = row.size();
  if (size >= 1) {
    if (const auto both = compose(row[size - 1], next)) {
      row.pop_back();
      if (both->alpha != 1 || both->beta != 0) row.push_back(*both);
      return;
    }
  }
  if (size >= 2 && is(row[size - 1], algorithm::eltwise_clip)) {
    if (const auto both = compose(row[size - 2], next)) {
      Eltwise& clip = row[size - 1];
      float low = next.alpha * clip.alpha + next.beta, high = next.alpha * clip.beta + next.beta;
      if (next.alpha < 0) std::swap(low, high);
      row[size - 2] = *both;
      clip = {algorithm::eltwise_clip, low, high};
      return;
    }
  }
  row.push_back(next);
}

/// x * gate(x) as one function of oneDNN: swish or hard swish.
Functions gated(const Functions& gate) {
  if (gate.empty() || gate.size() > 2) return {};
  const Eltwise first = gate.size() == 2 ? gate[0] : linear(1, 0);
  const Eltwise& last = gate.back();
  if (!is(first, algorithm::eltwise_linear)) return {};
  if (is(last, algorithm::eltwise_logistic) && first.beta == 0) return {{algorithm::eltwise_swish, first.alpha}};
  // x * clip(a x + b, 0, 6 a), where 6 a is the height of the gate and b its half.
  const bool is_hard = is(last, algorithm::eltwise_clip) && last.alpha == 0 && last.beta > 0 &&
                       near(first.alpha * 6, last.beta) && near(first.beta * 2, last.beta);
  if (!is_hard) return {};
  Functions row{{algorithm::eltwise_hardswish}};
  if (!near(last.beta, 1)) row.push_back(linear(last.beta, 0));
  return row;
}

/// An addition of two tensors of one shape.
bool is_addition(const Graph& graph, const Node& node) {
  const auto* const binary = node.attributes.get_if<BinaryAttributes>();
  const bool adds = binary ? binary->kind == BinaryKind::kAdd : node.op == &ops::kAddN && node.inputs.size() == 2;
  return adds && graph.value(node.inputs[0]).shape == graph.value(node.inputs[1]).shape;
}

bool is_product(const Node& node) {
  const auto* const binary = node.attributes.get_if<BinaryAttributes>();
  return binary != nullptr && binary->kind == BinaryKind::kMul;
}

bool divides(const Functions& functions) { return std::any_of(functions.begin(), functions.end(), is_division); }

ValueId other_input(const Node& node, ValueId one) { return node.inputs[node.inputs[0] == one ? 1 : 0]; }

}  // namespace

Functions functions_of(const Node& node) {
  const auto& attributes = node.attributes;
  if (const auto* const given = attributes.get_if<ActivationAttributes>()) return activation(*given);
  if (const auto* const given = attributes.get_if<LeakyAttributes>()) return leaky(*given);
  if (const auto* const given = attributes.get_if<ScalarAttributes>()) return scalar(*given);
  if (const auto* const given = attributes.get_if<UnaryAttributes>()) return unary(*given);
  if (const auto* const given = attributes.get_if<HardSigmoidAttributes>()) {
    return {linear(given->alpha, given->beta), {algorithm::eltwise_clip, 0, 1}};
  }
  if (const auto* const given = attributes.get_if<ClipAttributes>()) {
    if (given->min > given->max) return {};  // for x between max and min, MXNet gives max and oneDNN gives min
    return {{algorithm::eltwise_clip, static_cast<float>(given->min), static_cast<float>(given->max)}};
  }
  return {};
}

// oneDNN 2.6.3 gives all element-wise functions of one algorithm in a chain the parameters of the first: x * 3 + 1 became x * 3
// * 3.
bool Compiler::clashes(std::span<const PostOp> chain) {
  std::vector<Eltwise> all;
  for (const PostOp& operation : chain) {
    for (const Eltwise& next : operation.functions) {
      const bool clash = std::any_of(all.begin(), all.end(), [&](const Eltwise& other) {
        return other.algorithm == next.algorithm && (other.alpha != next.alpha || other.beta != next.beta);
      });
      if (clash) return true;
      all.push_back(next);
    }
  }
  return false;
}

std::optional<Compiler::PostOp> Compiler::find_gated(ValueId from) const {
  const auto& readers = readers_[static_cast<std::size_t>(from)];
  if (!options_.fuse || is_output_[static_cast<std::size_t>(from)] || readers.size() != 2) return std::nullopt;
  for (NodeId at : readers) {
    PostOp found;
    for (ValueId gate = from; at != kNoNode && all_float(node(at)); at = sole_reader(gate)) {
      const Node& next = node(at);
      found.nodes.push_back(at);
      if (is_product(next) && gate != from && other_input(next, gate) == from) {
        found.functions = gated(found.functions);
        if (found.functions.empty()) return std::nullopt;
        return found;
      }
      const Functions functions = functions_of(next);
      if (functions.empty()) break;
      for (const Eltwise& function : functions) append(found.functions, as_product(function));
      gate = next.outputs[0];
    }
  }
  return std::nullopt;
}

std::optional<Compiler::PostOp> Compiler::find_function(ValueId from) const {
  if (auto found = find_gated(from)) return found;
  const NodeId reader = sole_reader(from);
  if (reader == kNoNode || !all_float(node(reader))) return std::nullopt;
  Functions functions = functions_of(node(reader));
  if (functions.empty()) return std::nullopt;
  return PostOp{.nodes = {reader}, .functions = std::move(functions)};
}

bool Compiler::extend(std::vector<PostOp>& chain, PostOp next) {
  std::vector<PostOp> longer = chain;
  if (longer.empty() || longer.back().operand >= 0 || next.operand >= 0) {
    longer.push_back(std::move(next));
  } else {
    PostOp& last = longer.back();
    last.nodes.insert(last.nodes.end(), next.nodes.begin(), next.nodes.end());
    for (const Eltwise& function : next.functions) append(last.functions, function);
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
    if (reader == kNoNode || !with_addition || !all_float(node(reader)) || !is_addition(graph_, node(reader))) return found;
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
    for (const Eltwise& function : operation.functions) {
      operations.append_eltwise(1.0F, function.algorithm, function.alpha, function.beta);
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

const Node* Compiler::foldable_batch_norm(ValueId from) const {
  const NodeId reader = sole_reader(from);
  if (reader == kNoNode) return nullptr;
  const Node& next = node(reader);
  const auto* attributes = next.attributes.get_if<BatchNormAttributes>();
  if (attributes == nullptr || attributes->axis != 1 || next.inputs[0] != from || !all_float(next)) return nullptr;
  for (std::size_t i = 1; i < next.inputs.size(); ++i) {
    if (!is_constant(next.inputs[i])) return nullptr;
  }
  return is_read(next.outputs[1]) || is_read(next.outputs[2]) ? nullptr : &next;
}

}  // namespace shoal::worker::cpu
