// Convolution: direct, in blocked layout where the channels allow, with everything behind it that oneDNN can take along.
#include "shm/base/errors.hpp"
#include "worker/exec/cpu/batch_norm_folding.hpp"
#include "worker/exec/cpu/compiler.hpp"
#include "worker/exec/graph_plan.hpp"
#include "worker/graph/operators.hpp"

namespace shoal::worker::cpu {
namespace {

using PrimitiveDesc = dnnl::convolution_forward::primitive_desc;

std::optional<PrimitiveDesc> make_desc(const Desc& src, const Desc& weights, const Desc& bias, const Desc& dst,
                                       const dnnl::memory::dims& stride, const dnnl::memory::dims& dilate,
                                       const dnnl::memory::dims& pad, const dnnl::primitive_attr& attr) {
  const dnnl::convolution_forward::desc desc(dnnl::prop_kind::forward_inference, dnnl::algorithm::convolution_direct, src,
                                             weights, bias, dst, stride, dilate, pad, pad);
  PrimitiveDesc pd(desc, attr, engine(), /*allow_empty=*/true);
  if (!pd) return std::nullopt;
  return pd;
}

}  // namespace

struct Compiler::ConvolutionWork {
  dnnl::memory::dims src, weights, dst, stride, dilate, pad;
  Desc bias;                 ///< empty: none
  std::vector<Desc> packed;  ///< the forms that the weights are packed in already

  std::optional<PrimitiveDesc> make(const Desc& from, const Desc& with, const Desc& to, const dnnl::primitive_attr& attr) const {
    return make_desc(from, with, bias, to, stride, dilate, pad, attr);
  }
};

std::optional<PrimitiveDesc> Compiler::choose_convolution(const ConvolutionWork& work, const dnnl::primitive_attr& attr) const {
  const auto preferred = [](const dnnl::memory::dims& dims) {
    return channel_block() > 0 && dims[1] >= channel_block() && dims.size() <= 5 ? blocked_desc(dims) : plain_desc(dims);
  };
  const std::pair<Desc, Desc> layouts[] = {{preferred(work.src), preferred(work.dst)},
                                           {any_desc(work.src), any_desc(work.dst)},
                                           {plain_desc(work.src), plain_desc(work.dst)}};
  // Layouts the weights are packed in come first: one copy for all programs. A slow "ref" implementation is worse than a second
  // packing.
  std::vector<Desc> weights = work.packed;
  weights.push_back(any_desc(work.weights));
  for (const Desc& with : weights) {
    for (const auto& [src, dst] : layouts) {
      const auto pd = work.make(src, with, dst, attr);
      // Made again from what it chose, so that a program built on packed weights is the very same.
      if (pd && is_optimised(*pd)) return work.make(pd->src_desc(), pd->weights_desc(), pd->dst_desc(), attr);
    }
  }
  return std::nullopt;
}

Result<Compiler::Form> Compiler::residual_form(ValueId residual, const Desc& desc, std::span<const BufferId> also_read) {
  SHOAL_ASSIGN_OR_RETURN(const Form form, form_as(residual, desc));
  bool free = may_overwrite(residual, form.buffer);
  for (const BufferId other : also_read) free = free && other != form.buffer;
  if (free) return form;
  return reorder("copy '" + value(residual).name + "'", form, desc);
}

Compiler::Taken Compiler::convolution(const Node& node) {
  const auto& attributes = std::get<ConvolutionAttributes>(node.attributes);
  const ValueId weights = node.inputs[1];
  const bool has_bias = node.inputs.size() > 2;
  if (!is_constant(weights) || (has_bias && !is_constant(node.inputs[2])) || attributes.kernel.size() > 3) return false;

  const Node* norm = foldable_batch_norm(node.outputs[0]);
  const ValueId last_folded = norm == nullptr ? node.outputs[0] : norm->outputs[0];
  ConvolutionWork work{.src = dims_of(value(node.inputs[0]).shape),
                       .weights = dims_of(value(weights).shape),
                       .dst = dims_of(value(node.outputs[0]).shape),
                       .stride = attributes.stride,
                       .dilate = attributes.dilate,
                       .pad = attributes.pad};
  for (auto& step : work.dilate) --step;  // oneDNN counts the holes
  if (attributes.num_group > 1) {
    work.weights[0] /= attributes.num_group;
    work.weights.insert(work.weights.begin(), attributes.num_group);
  }
  const FoldedNames names = folded_names(graph_, node, norm);
  const Desc plain_weights = plain_desc(work.weights);
  if (names.has_bias) work.bias = plain_desc({attributes.num_filter});
  work.packed = packed_descs(names.weights, plain_weights);

  std::vector<PostOp> post_ops = find_post_ops(last_folded, /*with_addition=*/true);
  std::optional<PrimitiveDesc> chosen;
  for (;; post_ops.pop_back()) {
    chosen = choose_convolution(work, attributes_for(post_ops));
    if (chosen || post_ops.empty()) break;
  }
  if (!chosen) return false;

  if (norm != nullptr) absorb(static_cast<NodeId>(norm - graph_.nodes.data()));
  const ValueId result = absorb_post_ops(last_folded, post_ops);
  const BatchNormFolding folding(graph_, node, norm);
  SHOAL_ASSIGN_OR_RETURN(const Form src, form_as(node.inputs[0], chosen->src_desc()));
  SHOAL_ASSIGN_OR_RETURN(const Form packed,
                         weights_form(names.weights, plain_weights, chosen->weights_desc(), folding.weights()));
  std::vector<Argument> arguments = {{DNNL_ARG_SRC, src.desc, src.buffer}, {DNNL_ARG_WEIGHTS, packed.desc, packed.buffer}};
  if (names.has_bias) {
    SHOAL_ASSIGN_OR_RETURN(const Form bias, weights_form(names.bias, work.bias, work.bias, folding.bias()));
    arguments.push_back({DNNL_ARG_BIAS, bias.desc, bias.buffer});
  }
  Form dst;
  for (const PostOp& operation : post_ops) {
    if (operation.operand < 0) continue;
    SHOAL_ASSIGN_OR_RETURN(dst, residual_form(operation.operand, chosen->dst_desc(), std::span(&src.buffer, 1)));
  }
  if (dst.buffer == kNoBuffer) dst = new_form(chosen->dst_desc());
  arguments.push_back({DNNL_ARG_DST, dst.desc, dst.buffer});
  add_step(describe(node), dnnl::convolution_forward(*chosen), chosen->scratchpad_desc(), std::move(arguments));
  add_form(result, dst);
  return true;
}

}  // namespace shoal::worker::cpu
