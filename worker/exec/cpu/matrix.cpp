// FullyConnected as a matrix product, with BatchNorm folded and element-wise functions fused.
#include <algorithm>

#include "shm/base/errors.hpp"
#include "worker/exec/cpu/compiler.hpp"
#include "worker/exec/cpu/kernels/panel_product.hpp"
#include "worker/exec/cpu/kernels/row_functions.hpp"
#include "worker/exec/cpu/kernels/rows_product.hpp"
#include "worker/graph/operators.hpp"
#include "worker/ops/fully_connected.hpp"

namespace shoal::worker::cpu {
namespace {

using InnerProductPd = dnnl::inner_product_forward::primitive_desc;

bool is_clamp(const ElementFunction& function) {
  using Kind = ElementFunction::Kind;
  return function.kind == Kind::kClip || (function.kind == Kind::kRelu && function.alpha == 0);
}

}  // namespace

std::vector<InnerProductPd> Compiler::product_candidates(const Desc& src, const std::vector<Desc>& weights, const Desc& bias,
                                                         const Desc& dst, const dnnl::primitive_attr& attr) {
  const auto operation = [&](const Desc& with) {
    return dnnl::inner_product_forward::desc(dnnl::prop_kind::forward_inference, src, with, bias, dst);
  };
  std::vector<InnerProductPd> found;
  for (const Desc& with : weights) {
    const auto wish = operation(with);  // next_impl() reads it again
    for (InnerProductPd pd{wish, attr, engine(), /*allow_empty=*/true}; pd && is_optimized(pd) && found.size() < kCandidates;) {
      const std::string name = pd.impl_info_str();
      const auto same = operation(pd.weights_desc());
      InnerProductPd again{same, attr, engine(), /*allow_empty=*/true};
      while (again && again.impl_info_str() != name && again.next_impl()) {
      }
      if (again && again.impl_info_str() == name) found.push_back(again);
      if (!pd.next_impl()) break;
    }
    if (!found.empty()) break;
  }
  return found;
}

// In float32, with any number of rows: a kernel of Shoal reads panels of the weights, whose layout does not depend on the rows.
Compiler::Taken Compiler::rows_product(const Node& node, const ConstantChain& weights, const std::optional<ConstantChain>& bias,
                                       ValueId last_folded) {
  const Shape& shape = value(node.inputs[1]).shape;
  RowsProduct product{.depth = shape[1], .columns = shape[0], .panel_columns = panel_columns_for(shape[0])};
  product.rows = value(node.inputs[0]).shape.element_count() / product.depth;
  std::vector<PostOp> post_ops = find_post_ops(last_folded, /*with_addition=*/false);
  const auto is_unknown = [](const PostOp& operation) {
    return std::ranges::any_of(operation.functions, [](const auto& function) { return row_function(function.kind) == nullptr; });
  };
  post_ops.erase(std::ranges::find_if(post_ops, is_unknown), post_ops.end());
  for (const PostOp& operation : post_ops)
    product.functions.insert(product.functions.end(), operation.functions.begin(), operation.functions.end());

  if (last_folded != node.outputs[0]) absorb(norms_[static_cast<std::size_t>(now_)]);
  const ValueId result = absorb_post_ops(last_folded, post_ops);
  SHOAL_ASSIGN_OR_RETURN(const Form src, plain_form(node.inputs[0]));
  SHOAL_ASSIGN_OR_RETURN(const Form packed, weights_form(weights, panels_desc({shape[0], shape[1]}, product.panel_columns)));
  BufferId bias_buffer = kNoBuffer;
  if (bias) {
    SHOAL_ASSIGN_OR_RETURN(const Form form, weights_form(*bias, plain_desc({shape[0]})));
    bias_buffer = form.buffer;
  }
  const Form dst = new_form(plain_desc(value(result).shape));
  plan_.steps.push_back(make_loop_step(describe(node), "kernel", {src.buffer, packed.buffer, bias_buffer, dst.buffer},
                                       rows_product_loop(product), flops_of(product)));
  add_form(result, dst);
  return true;
}

bool Compiler::loses_nan(const PostOp& operation) { return std::ranges::any_of(operation.functions, is_clamp); }

Compiler::Taken Compiler::fully_connected(const Node& node) {
  const auto& attributes = node.attributes.get<FullyConnectedAttributes>();
  const ValueId weights = node.inputs[1];
  const bool has_bias = node.inputs.size() > 2;
  if (!is_constant(weights) || (has_bias && !is_constant(node.inputs[2]))) return computed_weights(node);
  const Shape& src_shape = value(node.inputs[0]).shape;
  const auto depth = value(weights).shape[1];
  const auto rows = src_shape.element_count() / depth;

  const Node* norm = foldable_norm();
  const ValueId last_folded = norm == nullptr ? node.outputs[0] : norm->outputs[0];
  const ConstantChain weights_chain = folded_weights(graph_, node, norm);
  const std::optional<ConstantChain> bias_chain = folded_bias(graph_, node, norm);
  if (precision_ != Precision::kBf16 && has_panel_products()) return rows_product(node, weights_chain, bias_chain, last_folded);
  const Desc plain_weights = plain_desc({attributes.num_hidden, depth});
  const Desc bias_desc = bias_chain ? plain_desc({attributes.num_hidden}) : Desc();

  Desc src_desc, dst_desc;
  std::vector<PostOp> post_ops;
  std::vector<InnerProductPd> candidates;
  for (const Type type : types_of_products()) {
    src_desc = plain_desc({rows, depth}, type);
    SHOAL_ASSIGN_OR_RETURN(std::vector<Desc> layouts, packed_descs(weights_chain.key(), plain_weights, type));
    layouts.push_back(any_desc({attributes.num_hidden, depth}, type));
    post_ops = find_post_ops(last_folded, /*with_addition=*/false);
    // A clamp by itself keeps NaN (clamp_loop) and costs almost nothing compared with a product.
    post_ops.erase(std::ranges::find_if(post_ops, loses_nan), post_ops.end());
    for (;; post_ops.pop_back()) {
      dst_desc = plain_desc({rows, attributes.num_hidden}, type == Type::f32 ? type : type_of(result_of(last_folded, post_ops)));
      candidates = product_candidates(src_desc, layouts, bias_desc, dst_desc, attributes_for(post_ops));
      if (!candidates.empty() || post_ops.empty()) break;
    }
    if (!candidates.empty()) break;
  }
  if (candidates.empty()) return false;
  const InnerProductPd chosen = choose(candidates);

  if (norm != nullptr) absorb(static_cast<NodeId>(norm - graph_.nodes.data()));
  const ValueId result = absorb_post_ops(last_folded, post_ops);
  SHOAL_ASSIGN_OR_RETURN(const Form src, plain_form(node.inputs[0], src_desc.data_type()));
  SHOAL_ASSIGN_OR_RETURN(const Form packed, weights_form(weights_chain, chosen.weights_desc()));
  std::vector<Argument> arguments = {{DNNL_ARG_SRC, src_desc, src.buffer}, {DNNL_ARG_WEIGHTS, packed.desc, packed.buffer}};
  if (bias_chain) {
    SHOAL_ASSIGN_OR_RETURN(const Form bias, weights_form(*bias_chain, bias_desc));
    arguments.push_back({DNNL_ARG_BIAS, bias.desc, bias.buffer});
  }
  const Form dst = new_form(plain_desc(value(result).shape, dst_desc.data_type()));
  arguments.push_back({DNNL_ARG_DST, dst_desc, dst.buffer});
  note_tunable(chosen);
  add_step(describe(node), dnnl::inner_product_forward(chosen), chosen.scratchpad_desc(), std::move(arguments));
  add_form(result, dst);
  return true;
}

}  // namespace shoal::worker::cpu
