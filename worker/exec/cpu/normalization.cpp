// BatchNorm that is not folded into an earlier node, LRN, L2Normalization.
#include "worker/ops/normalization.hpp"
#include "shm/base/errors.hpp"
#include "worker/exec/cpu/compiler.hpp"
#include "worker/exec/cpu/kernels/axis_loops.hpp"
#include "worker/exec/graph_plan.hpp"
#include "worker/graph/operators.hpp"
#include "worker/ops/elements.hpp"

namespace shoal::worker::cpu {
namespace {

dnnl::primitive_attr user_scratchpad() {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attr;
}

bool is_relu(const Node& node) {
  const Functions functions = functions_of(node);
  return functions.size() == 1 && functions[0].kind == ElementFunction::Kind::kRelu && functions[0].alpha == 0;
}

}  // namespace

Compiler::Taken Compiler::batch_norm(const Node& node) {
  const auto& attributes = node.attributes.get<BatchNormAttributes>();
  const int rank = value(node.inputs[0]).shape.rank();
  if (attributes.axis != 1 || rank < 2 || rank > 5 || is_read(node.outputs[1]) || is_read(node.outputs[2])) return false;
  for (std::size_t i = 1; i < node.inputs.size(); ++i) {
    if (!is_constant(node.inputs[i])) return false;
  }
  const NodeId reader = sole_reader(node.outputs[0]);
  const bool with_relu = reader != kNoNode && is_relu(this->node(reader));
  const ValueId result = with_relu ? this->node(reader).outputs[0] : node.outputs[0];
  const bool by_rows = !is_constant(node.inputs[0]) && lies_channels_last(forms(node.inputs[0]).front().desc);
  SHOAL_ASSIGN_OR_RETURN(const Form src, by_rows ? forms(node.inputs[0]).front() : first_form(node.inputs[0], type_of(result)));
  auto flags =
      dnnl::normalization_flags::use_global_stats | dnnl::normalization_flags::use_scale | dnnl::normalization_flags::use_shift;
  if (with_relu) flags = flags | dnnl::normalization_flags::fuse_norm_relu;
  dnnl::batch_normalization_forward::primitive_desc pd;
  if (!by_rows) {
    const dnnl::batch_normalization_forward::desc desc(dnnl::prop_kind::forward_inference, src.desc,
                                                       static_cast<float>(attributes.eps), flags);
    pd = {desc, user_scratchpad(), engine(), /*allow_empty=*/true};
    if (!pd || !is_optimized(pd)) return false;
  }

  if (with_relu) absorb(reader);
  const auto channels = value(node.inputs[1]).shape.element_count();
  std::vector<Argument> arguments = {{DNNL_ARG_SRC, src.desc, src.buffer}};
  const auto add_constant = [&](int kind, const ConstantChain& chain) -> Status {
    SHOAL_ASSIGN_OR_RETURN(const Form form, weights_form(chain, plain_desc({channels})));
    arguments.push_back({kind, form.desc, form.buffer});
    return {};
  };
  const auto gamma = attributes.fix_gamma ? ConstantChain{.fill = 1, .fill_count = channels} : chain_of(graph_, node.inputs[1]);
  SHOAL_RETURN_IF_ERROR(add_constant(DNNL_ARG_SCALE, gamma));
  SHOAL_RETURN_IF_ERROR(add_constant(DNNL_ARG_SHIFT, chain_of(graph_, node.inputs[2])));
  SHOAL_RETURN_IF_ERROR(add_constant(DNNL_ARG_MEAN, chain_of(graph_, node.inputs[3])));
  SHOAL_RETURN_IF_ERROR(add_constant(DNNL_ARG_VARIANCE, chain_of(graph_, node.inputs[4])));
  if (by_rows) {
    const Desc desc = channels_last_desc(src.desc.dims(), type_of(result));
    const Form dst = src.desc == desc && may_overwrite(node.inputs[0], src.buffer) ? src : new_form(desc);
    std::vector<BufferId> operands;
    for (const Argument& argument : arguments) operands.push_back(argument.buffer);
    operands.push_back(dst.buffer);
    // oneDNN takes descriptors for equal that differ in the stride of an axis of size 1, so that of a dense one says nothing.
    const std::int64_t stride = has_gaps(src.desc) ? src.desc.data.format_desc.blocking.strides[rank - 1] : channels;
    const ChannelRows rows{value(node.inputs[0]).shape.element_count() / channels, channels, stride};
    plan_.steps.push_back(make_loop_step(
        describe(node), "batch_norm", std::move(operands),
        batch_norm_loop(rows, dtype_of(src.desc), dtype_of(dst.desc), static_cast<float>(attributes.eps), with_relu)));
    add_form(result, dst);
    return true;
  }
  const Form dst = may_overwrite(node.inputs[0], src.buffer) ? src : new_form(pd.dst_desc());
  arguments.push_back({DNNL_ARG_DST, dst.desc, dst.buffer});
  add_step(describe(node), dnnl::batch_normalization_forward(pd), pd.scratchpad_desc(), std::move(arguments));
  add_form(result, dst);
  return true;
}

Compiler::Taken Compiler::lrn(const Node& node) {
  const auto& attributes = node.attributes.get<LrnAttributes>();
  if (attributes.nsize % 2 == 0 || (node.outputs.size() > 1 && is_read(node.outputs[1]))) return false;
  const auto make = [&](const Desc& src) {
    const dnnl::lrn_forward::desc desc(dnnl::prop_kind::forward_inference, dnnl::algorithm::lrn_across_channels, src,
                                       attributes.nsize, static_cast<float>(attributes.alpha),
                                       static_cast<float>(attributes.beta), static_cast<float>(attributes.knorm));
    return dnnl::lrn_forward::primitive_desc(desc, user_scratchpad(), engine(), /*allow_empty=*/true);
  };
  SHOAL_ASSIGN_OR_RETURN(const Form src, first_form(node.inputs[0], type_of(node.outputs[0])));
  const auto pd = make(src.desc);
  if (!pd || !is_optimized(pd)) return false;
  const Form dst = new_form(pd.dst_desc());
  add_step(describe(node), dnnl::lrn_forward(pd), pd.scratchpad_desc(),
           {{DNNL_ARG_SRC, src.desc, src.buffer}, {DNNL_ARG_DST, dst.desc, dst.buffer}});
  add_form(node.outputs[0], dst);
  return true;
}

Compiler::Taken Compiler::l2_normalization(const Node& node) {
  const auto& attributes = node.attributes.get<L2NormalizationAttributes>();
  const ValueId from = node.inputs[0], to = node.outputs[0], root = node.outputs[1];
  if (!is_read(to)) return false;
  const Shape& shape = value(from).shape;
  AxisExtents extents{1, 1, 1};
  switch (attributes.mode) {
    case L2NormalizationMode::kChannel: {
      const AxisView channels(shape, 1);
      extents = {channels.outer, channels.size, channels.inner};
      break;
    }
    case L2NormalizationMode::kInstance:
      extents = {shape[0], shape.element_count() / shape[0], 1};
      break;
    case L2NormalizationMode::kSpatial:
      extents = {shape[0] * shape[1], shape.element_count() / (shape[0] * shape[1]), 1};
      break;
  }
  SHOAL_ASSIGN_OR_RETURN(const Form src, plain_form(from));
  const Form dst = may_overwrite(from, src.buffer) ? src : new_form(plain_desc(shape));
  Form lengths;
  if (is_read(root)) lengths = new_form(plain_desc(value(root).shape));
  plan_.steps.push_back(make_loop_step(describe(node), "l2_normalization", {src.buffer, dst.buffer, lengths.buffer},
                                       l2_normalization_loop(extents, attributes.eps)));
  add_form(to, dst);
  if (is_read(root)) add_form(root, lengths);
  return true;
}

}  // namespace shoal::worker::cpu
