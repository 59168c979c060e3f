// Deconvolution: oneDNN runs it as the backward pass of a convolution.
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "shm/base/errors.hpp"
#include "worker/exec/cpu/compiler.hpp"
#include "worker/graph/operators.hpp"
#include "worker/ops/deconvolution.hpp"

namespace shoal::worker::cpu {
namespace {

using DeconvolutionPd = dnnl::deconvolution_forward::primitive_desc;

struct DeconvolutionWork {
  dnnl::memory::dims src, weights, dst, stride, dilate, pad, pad_end;
  Desc bias;  ///< empty: none

  DeconvolutionPd make(const Desc& from, const Desc& with, const Desc& to, const dnnl::primitive_attr& attr) const {
    const dnnl::deconvolution_forward::desc operation(dnnl::prop_kind::forward_inference, dnnl::algorithm::deconvolution_direct,
                                                      from, with, bias, to, stride, dilate, pad, pad_end);
    return {operation, attr, engine(), /*allow_empty=*/true};
  }
  /// Empty if the library has no fast implementation.
  DeconvolutionPd find(const Desc& from, const Desc& with, const Desc& to, const dnnl::primitive_attr& attr) const {
    const auto is_fast = [](const DeconvolutionPd& pd) {
      return pd && std::string_view(pd.impl_info_str()).find("ref") == std::string_view::npos;  // it names the convolution's, too
    };
    const DeconvolutionPd wish = make(from, with, to, attr);
    if (!is_fast(wish)) return {};
    // Made again from the forms that it chose: a program that is built from packed weights is identical.
    DeconvolutionPd found = make(wish.src_desc(), wish.weights_desc(), wish.dst_desc(), attr);
    return is_fast(found) ? found : DeconvolutionPd();
  }
};

}  // namespace

Compiler::Taken Compiler::deconvolution(const Node& node) {
  const auto& attributes = node.attributes.get<DeconvolutionAttributes>();
  const Shape &data = value(node.inputs[0]).shape, &result = value(node.outputs[0]).shape;
  const bool has_bias = node.inputs.size() > 2;
  if (!is_constant(node.inputs[1]) || (has_bias && !is_constant(node.inputs[2]))) return false;

  const Dims pad = cut_before(attributes, data);
  if (!counts_positions(data, {}) || !counts_positions(result, pad)) return false;
  const std::int64_t groups = attributes.num_group;
  DeconvolutionWork work{.src = dims_of(data),
                         .weights = {attributes.num_filter / groups, data[1] / groups},
                         .dst = dims_of(result),
                         .stride = attributes.stride,
                         .dilate = attributes.dilate,
                         .pad = pad};
  for (auto& step : work.dilate) --step;  // oneDNN counts the gaps between taps
  for (std::size_t axis = 0; axis < pad.size(); ++axis) {
    const int place = static_cast<int>(axis) + 2;
    const std::int64_t whole =
        attributes.stride[axis] * (data[place] - 1) + attributes.dilate[axis] * (attributes.kernel[axis] - 1) + 1;
    work.pad_end.push_back(whole - pad[axis] - result[place]);
  }
  if (groups > 1) work.weights.insert(work.weights.begin(), groups);
  work.weights.insert(work.weights.end(), attributes.kernel.begin(), attributes.kernel.end());

  const Node* norm = foldable_norm();
  const ConstantChain weights_chain = folded_weights(graph_, node, norm);
  const std::optional<ConstantChain> bias_chain = folded_bias(graph_, node, norm);
  if (bias_chain) work.bias = plain_desc({attributes.num_filter});
  const auto attr = attributes_for({});

  const std::pair<Desc, Desc> layouts[] = {{layer_desc(work.src, Type::f32), layer_desc(work.dst, Type::f32)},
                                           {any_desc(work.src), any_desc(work.dst)},
                                           {plain_desc(work.src), plain_desc(work.dst)}};
  // Forms in which the weights are packed already come first: one copy for all programs.
  SHOAL_ASSIGN_OR_RETURN(std::vector<Desc> forms, packed_descs(weights_chain.key(), plain_desc(work.weights), Type::f32));
  forms.push_back(any_desc(work.weights));
  DeconvolutionPd chosen;
  for (const Desc& with : forms) {
    for (const auto& [from, to] : layouts) {
      if (!chosen) chosen = work.find(from, with, to, attr);
    }
  }
  if (!chosen) return false;

  if (norm != nullptr) absorb(static_cast<NodeId>(norm - graph_.nodes.data()));
  SHOAL_ASSIGN_OR_RETURN(const Form src, form_as(node.inputs[0], chosen.src_desc()));
  SHOAL_ASSIGN_OR_RETURN(const Form packed, weights_form(weights_chain, chosen.weights_desc()));
  std::vector<Argument> arguments = {{DNNL_ARG_SRC, src.desc, src.buffer}, {DNNL_ARG_WEIGHTS, packed.desc, packed.buffer}};
  if (bias_chain) {
    SHOAL_ASSIGN_OR_RETURN(const Form bias, weights_form(*bias_chain, work.bias));
    arguments.push_back({DNNL_ARG_BIAS, bias.desc, bias.buffer});
  }
  const Form dst = new_form(chosen.dst_desc());
  arguments.push_back({DNNL_ARG_DST, dst.desc, dst.buffer});
  add_step(describe(node), dnnl::deconvolution_forward(chosen), chosen.scratchpad_desc(), std::move(arguments));
  add_form(norm == nullptr ? node.outputs[0] : norm->outputs[0], dst);
  return true;
}

}  // namespace shoal::worker::cpu
