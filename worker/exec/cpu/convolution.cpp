// Convolution: in the layout of its region, by the algorithm chosen for it, with the later nodes that oneDNN can fuse.
#include <algorithm>
#include <string_view>

#include "shm/base/errors.hpp"
#include "worker/exec/cpu/compiler.hpp"
#include "worker/exec/graph_plan.hpp"
#include "worker/graph/operators.hpp"
#include "worker/ops/convolution.hpp"

namespace shoal::worker::cpu {
namespace {

using ConvolutionPd = dnnl::convolution_forward::primitive_desc;

constexpr auto kDirect = dnnl::algorithm::convolution_direct, kWinograd = dnnl::algorithm::convolution_winograd;

bool is_winograd(const ConvolutionPd& pd) { return std::string_view(pd.impl_info_str()).find("wino") != std::string_view::npos; }

}  // namespace

struct Compiler::ConvolutionWork {
  dnnl::memory::dims src, weights, dst, stride, dilate, pad;
  Type type, dst_type;       ///< of data and weights, and of the result
  Desc bias;                 ///< empty: none
  std::vector<Desc> packed;  ///< the forms that the weights are packed in already

  dnnl::convolution_forward::desc operation(dnnl::algorithm algorithm, const Desc& from, const Desc& with, const Desc& to) const {
    return {dnnl::prop_kind::forward_inference, algorithm, from, with, bias, to, stride, dilate, pad, pad};
  }

  /// Adds the library's first fast implementations. Each is made again from the forms that it chose, so that a program which is
  /// built from packed weights is identical.
  bool collect(dnnl::algorithm algorithm, const Desc& from, const Desc& with, const Desc& to, const dnnl::primitive_attr& attr,
               std::vector<ConvolutionPd>& found) const {
    const std::size_t before = found.size();
    const auto wish = operation(algorithm, from, with, to);  // next_impl() reads it again
    for (ConvolutionPd pd{wish, attr, engine(), /*allow_empty=*/true}; pd && is_optimized(pd);) {
      const auto same = operation(algorithm, pd.src_desc(), pd.weights_desc(), pd.dst_desc());
      ConvolutionPd again{same, attr, engine(), /*allow_empty=*/true};
      const std::string name = pd.impl_info_str();
      while (again && again.impl_info_str() != name && again.next_impl()) {
      }
      if (again && again.impl_info_str() == name) found.push_back(again);
      if (found.size() == before + kCandidates || !pd.next_impl()) break;
    }
    return found.size() > before;
  }
};

Desc Compiler::layer_desc(const dnnl::memory::dims& dims, Type type) const {
  if (dims.size() > 5) return plain_desc(dims, type);
  if (choices_.layout == kChannelsLast) return channels_last_desc(dims, type);
  return channel_block() > 0 && dims[1] >= channel_block() ? blocked_desc(dims, type) : plain_desc(dims, type);
}

// Winograd's come first, if they are allowed, because they are nearly always faster.
std::vector<ConvolutionPd> Compiler::convolution_candidates(const ConvolutionWork& work, const dnnl::primitive_attr& attr) const {
  const std::pair<Desc, Desc> layouts[] = {{layer_desc(work.src, work.type), layer_desc(work.dst, work.dst_type)},
                                           {any_desc(work.src, work.type), any_desc(work.dst, work.dst_type)},
                                           {plain_desc(work.src, work.type), plain_desc(work.dst, work.dst_type)}};
  // Layouts the weights are packed in come first: one copy for all programs. A slow "ref" implementation is worse than a second
  // packing.
  std::vector<Desc> direct_weights, winograd_weights;
  for (const Desc& packed : work.packed) (is_opaque(packed) ? winograd_weights : direct_weights).push_back(packed);
  direct_weights.push_back(any_desc(work.weights, work.type));
  // Winograd's form can only be made from the imported constant.
  if (!weights_.is_sealed()) winograd_weights.push_back(any_desc(work.weights));

  std::vector<ConvolutionPd> found;
  const auto& [src_layout, dst_layout] = layouts[0];
  if (precision_ == Precision::kF32Fast && src_layout == blocked_desc(work.src) && dst_layout == blocked_desc(work.dst)) {
    for (const Desc& with : winograd_weights) {
      if (work.collect(kWinograd, src_layout, with, dst_layout, attr, found)) break;
    }
  }
  for (const Desc& with : direct_weights) {
    for (const auto& [src, dst] : layouts) {
      if (work.collect(kDirect, src, with, dst, attr, found)) return found;
    }
  }
  return found;
}

// Winograd's form of the weights serves one shape. Programs compiled later for other shapes read the direct form, or are packed
// from it.
Status Compiler::pack_direct_too(const std::vector<ConvolutionPd>& candidates, const ConstantChain& weights) {
  const auto direct = std::find_if_not(candidates.begin(), candidates.end(), is_winograd);
  if (direct == candidates.end() || weights_.is_sealed()) return {};
  return weights_form(weights, direct->weights_desc()).status();
}

Result<Compiler::Form> Compiler::residual_form(ValueId residual, const Desc& desc, std::span<const BufferId> also_read) {
  SHOAL_ASSIGN_OR_RETURN(const Form form, form_as(residual, desc));
  bool free = may_overwrite(residual, form.buffer);
  for (const BufferId other : also_read) free = free && !share_memory(other, form.buffer);
  if (free) return form;
  return reorder("copy '" + value(residual).name + "'", form, desc);
}

Compiler::Taken Compiler::convolution(const Node& node) {
  const auto& attributes = node.attributes.get<ConvolutionAttributes>();
  const ValueId weights = node.inputs[1];
  const bool has_bias = node.inputs.size() > 2;
  if (!is_constant(weights) || (has_bias && !is_constant(node.inputs[2])) || attributes.kernel.size() > 3) return false;

  if (!counts_positions(value(node.inputs[0]).shape, attributes.pad)) return false;

  const Node* norm = foldable_norm();
  const ValueId last_folded = norm == nullptr ? node.outputs[0] : norm->outputs[0];
  ConvolutionWork work{.src = dims_of(value(node.inputs[0]).shape),
                       .weights = dims_of(value(weights).shape),
                       .dst = dims_of(value(node.outputs[0]).shape),
                       .stride = attributes.stride,
                       .dilate = attributes.dilate,
                       .pad = attributes.pad};
  for (auto& step : work.dilate) --step;  // oneDNN counts the gaps between taps
  if (attributes.num_group > 1) {
    work.weights[0] /= attributes.num_group;
    work.weights.insert(work.weights.begin(), attributes.num_group);
  }
  const ConstantChain weights_chain = folded_weights(graph_, node, norm);
  const std::optional<ConstantChain> bias_chain = folded_bias(graph_, node, norm);
  const Desc plain_weights = plain_desc(work.weights);
  if (bias_chain) work.bias = plain_desc({attributes.num_filter});

  std::vector<PostOp> post_ops;
  std::vector<ConvolutionPd> candidates;
  for (const Type type : types_of_products()) {
    work.type = type;
    SHOAL_ASSIGN_OR_RETURN(work.packed, packed_descs(weights_chain.key(), plain_weights, type));
    for (post_ops = find_post_ops(last_folded, /*with_addition=*/true);; post_ops.pop_back()) {
      work.dst_type = type == Type::f32 ? type : type_of(result_of(last_folded, post_ops));
      candidates = convolution_candidates(work, attributes_for(post_ops));
      if (!candidates.empty() || post_ops.empty()) break;
    }
    if (!candidates.empty()) break;
  }
  if (candidates.empty()) return false;
  const ConvolutionPd chosen = choose(candidates);

  if (norm != nullptr) absorb(static_cast<NodeId>(norm - graph_.nodes.data()));
  const ValueId result = absorb_post_ops(last_folded, post_ops);
  SHOAL_ASSIGN_OR_RETURN(const Form src, form_as(node.inputs[0], chosen.src_desc()));
  SHOAL_ASSIGN_OR_RETURN(const Form packed, weights_form(weights_chain, chosen.weights_desc()));
  std::vector<Argument> arguments = {{DNNL_ARG_SRC, src.desc, src.buffer}, {DNNL_ARG_WEIGHTS, packed.desc, packed.buffer}};
  if (bias_chain) {
    SHOAL_ASSIGN_OR_RETURN(const Form bias, weights_form(*bias_chain, work.bias));
    arguments.push_back({DNNL_ARG_BIAS, bias.desc, bias.buffer});
  }
  Form dst;
  for (const PostOp& operation : post_ops) {
    if (operation.operand < 0) continue;
    SHOAL_ASSIGN_OR_RETURN(dst, residual_form(operation.operand, chosen.dst_desc(), std::span(&src.buffer, 1)));
  }
  if (dst.buffer == kNoBuffer) dst = new_form(chosen.dst_desc());
  arguments.push_back({DNNL_ARG_DST, dst.desc, dst.buffer});
  if (is_winograd(chosen)) SHOAL_RETURN_IF_ERROR(pack_direct_too(candidates, weights_chain));
  note_tunable(chosen);
  add_step(describe(node), dnnl::convolution_forward(chosen), chosen.scratchpad_desc(), std::move(arguments));
  add_form(result, dst);
  return true;
}

}  // namespace shoal::worker::cpu
