// Arithmetic of two or more tensors. Operands are broadcast where oneDNN can do it.
#include <algorithm>

#include "shm/base/errors.hpp"
#include "worker/exec/cpu/compiler.hpp"
#include "worker/graph/operators.hpp"
#include "worker/ops/arithmetic.hpp"

namespace shoal::worker::cpu {
namespace {

using dnnl::algorithm;

algorithm algorithm_of(BinaryKind kind) {
  switch (kind) {
    case BinaryKind::kAdd:
      return algorithm::binary_add;
    case BinaryKind::kSub:
      return algorithm::binary_sub;
    case BinaryKind::kMul:
      return algorithm::binary_mul;
    case BinaryKind::kDiv:
      return algorithm::binary_div;
    default:
      return algorithm::undef;
  }
}

/// The shape with ones in front, so that it has as many axes as the result it is broadcast to.
dnnl::memory::dims broadcast_dims(const Shape& shape, int rank) {
  dnnl::memory::dims dims(static_cast<std::size_t>(rank - shape.rank()), 1);
  dims.insert(dims.end(), shape.begin(), shape.end());
  return dims;
}

}  // namespace

Compiler::Taken Compiler::binary(const Node& node) {
  const algorithm wanted = algorithm_of(node.attributes.get<BinaryAttributes>().kind);
  return wanted == algorithm::undef ? Taken(false) : pair(node, wanted);
}

// The first operand has the shape and the layout of the result, and its buffer may become the result's. An addition or product
// may swap its operands for that.
Compiler::Taken Compiler::pair(const Node& node, algorithm wanted) {
  ValueId a = node.inputs[0], b = node.inputs[1];
  const Shape& shape = value(node.outputs[0]).shape;
  const auto fits = [&](ValueId id) { return value(id).shape == shape && !is_constant(id); };
  const bool swaps = wanted == algorithm::binary_add || wanted == algorithm::binary_mul;
  if (swaps && fits(b) && (!fits(a) || !may_overwrite(a, forms(a).front().buffer))) std::swap(a, b);
  if (value(a).shape != shape) return false;

  SHOAL_ASSIGN_OR_RETURN(const Form first, first_form(a));
  const auto dims = broadcast_dims(value(b).shape, shape.rank());
  const bool is_same = value(b).shape == shape;
  std::vector<PostOp> post_ops = find_post_ops(node.outputs[0], /*with_addition=*/true);
  post_ops.erase(std::ranges::find_if(post_ops, loses_nan), post_ops.end());  // clamp_loop keeps NaN
  if (post_ops.empty() && is_row_data(first.desc) && type_of(node.outputs[0]) == Type::f32) return false;
  for (;; post_ops.pop_back()) {
    const Type type = type_of(result_of(node.outputs[0], post_ops));
    const Desc left = as_type(first.desc, type);
    for (PostOp& operation : post_ops) {
      if (operation.operand >= 0) operation.operand_desc = left;
    }
    const Desc candidates[] = {is_same ? left : Desc(), is_same ? Desc() : blocked_desc(dims, type), plain_desc(dims, type)};
    for (const Desc& right : candidates) {
      if (right == Desc() || (is_same && right != left)) continue;
      const dnnl::binary::primitive_desc pd({wanted, left, right, left}, attributes_for(post_ops), engine(),
                                            /*allow_empty=*/true);
      if (!pd || !is_optimized(pd)) continue;
      SHOAL_RETURN_IF_ERROR(add_pair(node, pd, a, left, b, right, post_ops));
      return true;
    }
    if (post_ops.empty()) return false;
  }
}

Status Compiler::add_pair(const Node& node, const dnnl::binary::primitive_desc& pd, ValueId a, const Desc& left_desc, ValueId b,
                          const Desc& right_desc, std::span<const PostOp> post_ops) {
  const ValueId result = absorb_post_ops(node.outputs[0], post_ops);
  SHOAL_ASSIGN_OR_RETURN(const Form left, form_as(a, left_desc));
  SHOAL_ASSIGN_OR_RETURN(const Form right, broadcast_form(b, right_desc));
  std::vector<Argument> arguments = {{DNNL_ARG_SRC_0, left.desc, left.buffer}, {DNNL_ARG_SRC_1, right.desc, right.buffer}};
  // oneDNN 2.6.3 clears padded blocks before it reads them when a binary primitive with post-operations runs in place.
  bool overwrites = may_overwrite(a, left.buffer) && !share_memory(right.buffer, left.buffer) && !is_padded(left.desc);
  int index = 0;
  for (const PostOp& operation : post_ops) {
    if (operation.operand >= 0) {
      SHOAL_ASSIGN_OR_RETURN(const Form operand, form_as(operation.operand, operation.operand_desc));
      arguments.push_back({DNNL_ARG_ATTR_MULTIPLE_POST_OP(index) | DNNL_ARG_SRC_1, operand.desc, operand.buffer});
      overwrites = overwrites && !share_memory(operand.buffer, left.buffer);
      ++index;
    }
    index += static_cast<int>(operation.functions.size());
  }
  const Form dst = overwrites ? left : new_form(left.desc);
  arguments.push_back({DNNL_ARG_DST, dst.desc, dst.buffer});
  add_step(describe(node), dnnl::binary(pd), pd.scratchpad_desc(), std::move(arguments));
  add_form(result, dst);
  return {};
}

// The value seen with ones in front of its shape.
Result<Compiler::Form> Compiler::broadcast_form(ValueId id, const Desc& desc) {
  const Shape& shape = value(id).shape;
  if (desc.dims().size() == static_cast<std::size_t>(shape.rank())) return form_as(id, desc);
  SHOAL_ASSIGN_OR_RETURN(const Form plain, plain_form(id, desc.data_type()));
  const Form seen{plain.buffer, plain_desc(desc.dims(), desc.data_type())};
  return same_memory(seen.desc, desc) ? Form{seen.buffer, desc} : reorder("reorder '" + value(id).name + "'", seen, desc);
}

Compiler::Taken Compiler::add_n(const Node& node) {
  if (node.inputs.size() == 1) return view(node);
  if (node.inputs.size() == 2) return pair(node, algorithm::binary_add);
  SHOAL_ASSIGN_OR_RETURN(const Form first, first_form(node.inputs[0], type_of(node.outputs[0])));
  const dnnl::binary::desc desc(algorithm::binary_add, first.desc, first.desc, first.desc);
  const dnnl::binary::primitive_desc pd(desc, attributes_for({}), engine(), /*allow_empty=*/true);
  if (!pd || !is_optimized(pd)) return false;
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

}  // namespace shoal::worker::cpu
