// What a primitive can take along: BatchNorm folded into weights, residual additions and element-wise functions as
// post-operations.
#include <algorithm>

#include "worker/exec/cpu/compiler.hpp"
#include "worker/graph/operators.hpp"

namespace shoal::worker::cpu {
namespace {

std::optional<Eltwise> activation(const ActivationAttributes& attributes) {
  switch (attributes.kind) {
    case ActivationKind::kRelu:
      return Eltwise{dnnl::algorithm::eltwise_relu};
    case ActivationKind::kSigmoid:
      return Eltwise{dnnl::algorithm::eltwise_logistic};
    case ActivationKind::kTanh:
      return Eltwise{dnnl::algorithm::eltwise_tanh};
    case ActivationKind::kSoftRelu:
      return Eltwise{dnnl::algorithm::eltwise_soft_relu};
    case ActivationKind::kSoftSign:
      return std::nullopt;
  }
  return std::nullopt;
}

std::optional<Eltwise> leaky(const LeakyAttributes& attributes) {
  const auto slope = static_cast<float>(attributes.slope);
  switch (attributes.kind) {
    case LeakyKind::kLeaky:
      return Eltwise{dnnl::algorithm::eltwise_relu, slope};
    case LeakyKind::kElu:
      return Eltwise{dnnl::algorithm::eltwise_elu, slope};
    case LeakyKind::kGelu:
      return Eltwise{dnnl::algorithm::eltwise_gelu_erf};
    case LeakyKind::kPrelu:
    case LeakyKind::kSelu:
      return std::nullopt;
  }
  return std::nullopt;
}

std::optional<Eltwise> scalar(const ScalarAttributes& attributes) {
  const auto s = static_cast<float>(attributes.scalar);
  const auto linear = [](float alpha, float beta) { return Eltwise{dnnl::algorithm::eltwise_linear, alpha, beta}; };
  switch (attributes.kind) {
    case BinaryKind::kAdd:
      return linear(1, s);
    case BinaryKind::kSub:
      return attributes.reversed ? linear(-1, s) : linear(1, -s);
    case BinaryKind::kMul:
      return linear(s, 0);
    default:
      return std::nullopt;
  }
}

/// An addition of two tensors of one shape.
bool is_addition(const Graph& graph, const Node& node) {
  const auto* const binary = std::get_if<BinaryAttributes>(&node.attributes);
  const bool adds = binary ? binary->kind == BinaryKind::kAdd : node.op->name == "AddN" && node.inputs.size() == 2;
  return adds && graph.value(node.inputs[0]).shape == graph.value(node.inputs[1]).shape;
}

}  // namespace

std::optional<Eltwise> eltwise_of(const Node& node) {
  if (const auto* attributes = std::get_if<ActivationAttributes>(&node.attributes)) return activation(*attributes);
  if (const auto* attributes = std::get_if<LeakyAttributes>(&node.attributes)) return leaky(*attributes);
  if (const auto* attributes = std::get_if<ScalarAttributes>(&node.attributes)) return scalar(*attributes);
  if (const auto* attributes = std::get_if<ClipAttributes>(&node.attributes)) {
    return Eltwise{dnnl::algorithm::eltwise_clip, static_cast<float>(attributes->min), static_cast<float>(attributes->max)};
  }
  return std::nullopt;
}

// oneDNN 2.6.3 gives all element-wise functions of one algorithm in a chain the parameters of the first: x * 3 + 1 became x * 3
// * 3.
bool Compiler::clashes(std::span<const PostOp> chain, const Eltwise& next) {
  return std::any_of(chain.begin(), chain.end(), [&](const PostOp& operation) {
    const auto& other = operation.eltwise;
    return other && other->algorithm == next.algorithm && (other->alpha != next.alpha || other->beta != next.beta);
  });
}

std::vector<Compiler::PostOp> Compiler::find_post_ops(ValueId from, bool with_sum) {
  std::vector<PostOp> found;
  for (ValueId at = from;;) {
    const NodeId reader = sole_reader(at);
    if (reader == kNoNode || !all_float(node(reader))) return found;
    const Node& next = node(reader);
    if (with_sum && is_addition(graph_, next)) {
      const ValueId other = next.inputs[next.inputs[0] == at ? 1 : 0];
      if (!is_ready(other)) return found;
      found.push_back({.node = reader, .residual = other});
      with_sum = false;  // oneDNN takes one
    } else if (const auto eltwise = eltwise_of(next); eltwise && !clashes(found, *eltwise)) {
      found.push_back({.node = reader, .eltwise = eltwise});
    } else {
      return found;
    }
    at = next.outputs[0];
  }
}

dnnl::primitive_attr Compiler::attributes_for(std::span<const PostOp> post_ops) {
  dnnl::post_ops operations;
  for (const PostOp& operation : post_ops) {
    if (operation.eltwise) {
      operations.append_eltwise(1.0F, operation.eltwise->algorithm, operation.eltwise->alpha, operation.eltwise->beta);
    } else {
      operations.append_sum(1.0F);
    }
  }
  dnnl::primitive_attr attr;
  attr.set_post_ops(operations);
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attr;
}

ValueId Compiler::absorb_post_ops(ValueId from, std::span<const PostOp> post_ops) {
  for (const PostOp& operation : post_ops) {
    absorb(operation.node);
    from = node(operation.node).outputs[0];
  }
  return from;
}

const Node* Compiler::foldable_batch_norm(ValueId from) const {
  const NodeId reader = sole_reader(from);
  if (reader == kNoNode) return nullptr;
  const Node& next = node(reader);
  const auto* attributes = std::get_if<BatchNormAttributes>(&next.attributes);
  if (attributes == nullptr || attributes->axis != 1 || next.inputs[0] != from || !all_float(next)) return nullptr;
  for (std::size_t i = 1; i < next.inputs.size(); ++i) {
    if (!is_constant(next.inputs[i])) return nullptr;
  }
  return is_read(next.outputs[1]) || is_read(next.outputs[2]) ? nullptr : &next;
}

}  // namespace shoal::worker::cpu
