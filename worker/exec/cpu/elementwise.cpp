// Element-wise functions and pairs, views, concatenation.
#include <algorithm>

#include "shm/base/errors.hpp"
#include "worker/exec/cpu/compiler.hpp"
#include "worker/exec/graph_plan.hpp"
#include "worker/exec/reference_step.hpp"
#include "worker/graph/operators.hpp"

namespace shoal::worker::cpu {

Compiler::Taken Compiler::view(const Node& node) {
  const ValueId from = node.inputs[0], to = node.outputs[0];
  if (value(from).dtype != value(to).dtype) return false;
  if (value(from).shape == value(to).shape) {
    SHOAL_RETURN_IF_ERROR(first_form(from).status());
    const std::vector<Form> all = forms(from);
    for (const Form& form : all) add_form(to, form);
    return true;
  }
  SHOAL_ASSIGN_OR_RETURN(const Form form, plain_form(from));
  add_form(to, {form.buffer, is_float(to) ? plain_desc(value(to).shape) : Desc()});
  return true;
}

Compiler::Taken Compiler::eltwise(const Node& node) {
  const auto function = eltwise_of(node);
  // oneDNN's clip turns NaN into the lower bound, its relu into 0; behind a convolution, where speed matters, they are taken all
  // the same.
  if (!function || function->algorithm == dnnl::algorithm::eltwise_clip) return false;
  SHOAL_ASSIGN_OR_RETURN(const Form src, first_form(node.inputs[0]));
  if (function->algorithm == dnnl::algorithm::eltwise_relu && function->alpha == 0) {
    // Our kernel on the buffer as it lies: the zeros that fill the blocks stay zeros.
    const Form dst = new_form(src.desc);
    SHOAL_ASSIGN_OR_RETURN(const ReferenceKernel kernel, reference_kernel_of(node));
    const Shape flat{static_cast<std::int64_t>(src.desc.get_size() / sizeof(float))};
    plan_.steps.push_back(
        make_reference_step(node, kernel, {{DType::kFloat32, flat, src.buffer}}, {{DType::kFloat32, flat, dst.buffer}}));
    add_form(node.outputs[0], dst);
    return true;
  }
  const dnnl::eltwise_forward::desc desc(dnnl::prop_kind::forward_inference, function->algorithm, src.desc, function->alpha,
                                         function->beta);
  const dnnl::eltwise_forward::primitive_desc pd(desc, attributes_for({}), engine(), /*allow_empty=*/true);
  if (!pd || !is_optimised(pd)) return false;
  const Form dst = may_overwrite(node.inputs[0], src.buffer) ? src : new_form(pd.dst_desc());
  add_step(describe(node), dnnl::eltwise_forward(pd), pd.scratchpad_desc(),
           {{DNNL_ARG_SRC, src.desc, src.buffer}, {DNNL_ARG_DST, dst.desc, dst.buffer}});
  add_form(node.outputs[0], dst);
  return true;
}

Compiler::Taken Compiler::binary(const Node& node) {
  switch (std::get<BinaryAttributes>(node.attributes).kind) {
    case BinaryKind::kAdd:
      return pair(node, dnnl::algorithm::binary_add);
    case BinaryKind::kSub:
      return pair(node, dnnl::algorithm::binary_sub);
    case BinaryKind::kMul:
      return pair(node, dnnl::algorithm::binary_mul);
    case BinaryKind::kDiv:
      return pair(node, dnnl::algorithm::binary_div);
    default:
      return false;
  }
}

Compiler::Taken Compiler::pair(const Node& node, dnnl::algorithm algorithm) {
  // The first operand's buffer may become the result's; an addition may turn them round for that.
  ValueId a = node.inputs[0], b = node.inputs[1];
  if (value(a).shape != value(b).shape) return false;
  const bool swaps = algorithm == dnnl::algorithm::binary_add || algorithm == dnnl::algorithm::binary_mul;
  if (swaps && (is_constant(a) || !may_overwrite(a, forms(a).front().buffer))) std::swap(a, b);
  SHOAL_ASSIGN_OR_RETURN(const Form left, first_form(a));
  const auto make = [&](std::span<const PostOp> post_ops) {
    const dnnl::binary::desc desc(algorithm, left.desc, left.desc, left.desc);
    return dnnl::binary::primitive_desc(desc, attributes_for(post_ops), engine(), /*allow_empty=*/true);
  };
  std::vector<PostOp> post_ops = find_post_ops(node.outputs[0], /*with_sum=*/false);
  auto pd = make(post_ops);
  while (!post_ops.empty() && (!pd || !is_optimised(pd))) {
    post_ops.pop_back();
    pd = make(post_ops);
  }
  if (!pd || !is_optimised(pd)) return false;
  const ValueId result = absorb_post_ops(node.outputs[0], post_ops);
  SHOAL_ASSIGN_OR_RETURN(const Form right, form_as(b, left.desc));
  const Form dst = may_overwrite(a, left.buffer) ? left : new_form(left.desc);
  add_step(describe(node), dnnl::binary(pd), pd.scratchpad_desc(),
           {{DNNL_ARG_SRC_0, left.desc, left.buffer},
            {DNNL_ARG_SRC_1, right.desc, right.buffer},
            {DNNL_ARG_DST, dst.desc, dst.buffer}});
  add_form(result, dst);
  return true;
}

Compiler::Taken Compiler::add_n(const Node& node) {
  if (node.inputs.size() == 1) return view(node);
  if (node.inputs.size() == 2) return pair(node, dnnl::algorithm::binary_add);
  SHOAL_ASSIGN_OR_RETURN(const Form first, first_form(node.inputs[0]));
  const dnnl::binary::desc desc(dnnl::algorithm::binary_add, first.desc, first.desc, first.desc);
  const dnnl::binary::primitive_desc pd(desc, attributes_for({}), engine(), /*allow_empty=*/true);
  if (!pd || !is_optimised(pd)) return false;
  const Form sum = new_form(first.desc);
  Form so_far = first;
  for (std::size_t i = 1; i < node.inputs.size(); ++i) {
    SHOAL_ASSIGN_OR_RETURN(const Form next, form_as(node.inputs[i], first.desc));
    add_step(describe(node), dnnl::binary(pd), pd.scratchpad_desc(),
             {{DNNL_ARG_SRC_0, so_far.desc, so_far.buffer},
              {DNNL_ARG_SRC_1, next.desc, next.buffer},
              {DNNL_ARG_DST, sum.desc, sum.buffer}});
    so_far = sum;
  }
  add_form(node.outputs[0], sum);
  return true;
}

Status Compiler::concat_in_place(const Node& node, const std::vector<Form>& parts, const Desc& desc) {
  const Form whole = new_form(desc);
  has_parts_.resize(plan_.buffers.size());
  has_parts_[static_cast<std::size_t>(whole.buffer)] = true;
  std::size_t offset = 0;
  std::vector<BufferId> used;
  for (const Form& form : parts) {
    const std::size_t bytes = form.desc.get_size();
    Buffer& part = plan_.buffer(form.buffer);
    const bool movable = part.home == Buffer::Home::kArena && part.parent == kNoBuffer && part.bytes == bytes &&
                         std::find(used.begin(), used.end(), form.buffer) == used.end();
    used.push_back(form.buffer);
    if (movable) {
      part.parent = whole.buffer;
      part.offset_bytes = offset;
    } else {
      const BufferId copy = plan_.add_buffer(bytes);
      plan_.buffer(copy).parent = whole.buffer;
      plan_.buffer(copy).offset_bytes = offset;
      plan_.steps.push_back(make_copy_step(describe(node), form.buffer, copy, bytes));
    }
    offset += bytes;
  }
  add_form(node.outputs[0], whole);
  return {};
}

Compiler::Taken Compiler::concat(const Node& node) {
  const Shape& shape = value(node.outputs[0]).shape;
  const auto given = std::get<ConcatAttributes>(node.attributes).axis;
  const int axis = static_cast<int>(given < 0 ? given + shape.rank() : given);
  // Blocked when some part lies so and every part fills its blocks; else plain.
  const Desc blocked = blocked_desc(dims_of(shape));
  bool fits_blocks = axis == 1 && blocked != Desc(), lies_blocked = false;
  for (const ValueId id : node.inputs) {
    fits_blocks = fits_blocks && value(id).shape[1] % channel_block() == 0;
    SHOAL_ASSIGN_OR_RETURN(const Form form, first_form(id));
    lies_blocked |= fits_blocks && form.desc == blocked_desc(dims_of(value(id).shape));
  }
  const bool in_blocks = fits_blocks && lies_blocked;
  const auto desc_of_part = [&](const Shape& part) { return in_blocks ? blocked_desc(dims_of(part)) : plain_desc(part); };
  std::vector<Form> parts;
  std::vector<Desc> descs;
  for (const ValueId id : node.inputs) {
    SHOAL_ASSIGN_OR_RETURN(const Form form, form_as(id, desc_of_part(value(id).shape)));
    parts.push_back(form);
    descs.push_back(form.desc);
  }
  const Desc desc = desc_of_part(shape);
  std::int64_t before = 1;
  for (int i = 0; i < axis; ++i) before *= shape[i];
  if (before == 1) {
    SHOAL_RETURN_IF_ERROR(concat_in_place(node, parts, desc));
    return true;
  }
  const dnnl::concat::primitive_desc pd(desc, axis, descs, engine(), attributes_for({}));
  const Form whole = new_form(desc);
  std::vector<Argument> arguments;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    arguments.push_back({DNNL_ARG_MULTIPLE_SRC + static_cast<int>(i), parts[i].desc, parts[i].buffer});
  }
  arguments.push_back({DNNL_ARG_DST, whole.desc, whole.buffer});
  add_step(describe(node), dnnl::concat(pd), pd.scratchpad_desc(), std::move(arguments));
  add_form(node.outputs[0], whole);
  return true;
}

}  // namespace shoal::worker::cpu
