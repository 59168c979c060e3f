// Where: one of two elements.
#include "worker/ops/selection.hpp"

#include "shm/base/errors.hpp"
#include "worker/graph/shapes.hpp"
#include "worker/ops/elements.hpp"

namespace shoal::worker {
namespace {

/// The ranks of the condition and of x.
bool is_by_rows(const Node& node, int condition, int x) {
  return node.attributes.get<WhereAttributes>().selects_rows && condition == 1 && x > 1;
}

Status infer_where(const Node& node, SourceValues src, ResultValues dst) {
  SHOAL_RETURN_IF_ERROR(check_same_dtype(node, src.subspan(1)));
  const TypedValue &condition = src[0], &x = src[1], &y = src[2];
  if (node.attributes.get<WhereAttributes>().selects_rows) {
    SHOAL_RETURN_IF_ERROR(check_shape(node, "y", y, x.shape));
    const SymbolicShape wanted = is_by_rows(node, condition.shape.rank(), x.shape.rank()) ? SymbolicShape{x.shape[0]} : x.shape;
    SHOAL_RETURN_IF_ERROR(check_shape(node, "condition", condition, wanted));
    set_result(dst[0], x.dtype, x.shape);
    return {};
  }
  SHOAL_ASSIGN_OR_RETURN(const SymbolicShape both, broadcast(node, x, y));
  SHOAL_ASSIGN_OR_RETURN(const SymbolicShape all, broadcast(node, condition, {.name = x.name, .shape = both}));
  set_result(dst[0], x.dtype, all);
  return {};
}

void promote_where(const Node& node, std::span<DType> types) {
  promote_all(node.attributes.get<WhereAttributes>().promotion, types.subspan(1));
}

/// A condition by rows has the rows.
bool where_rows(const BatchedNode& batched) {
  const auto rank_of = [&](std::size_t input) { return batched.graph.value(batched.node.inputs[input]).shape.rank(); };
  const bool condition_aligns = batched.rows_align(0) || is_by_rows(batched.node, rank_of(0), rank_of(1));
  return condition_aligns && batched.rows_align(1) && batched.rows_align(2);
}

/// NaN counts as true, as every number but 0.
template <typename Condition, typename Word>
void where(const Shape& condition_shape, Sources src, TensorView& dst) {
  const Shape& shape = dst.shape;
  const std::array strides{broadcast_strides(condition_shape, shape), broadcast_strides(src[1].shape, shape),
                           broadcast_strides(src[2].shape, shape)};
  const std::int64_t length = row_length(shape);
  const std::array steps{row_stride(shape, strides[0]), row_stride(shape, strides[1]), row_stride(shape, strides[2])};
  Word* to = elements<Word>(dst);
  each_row(shape, strides, [&](const std::array<std::int64_t, 3>& offsets) {
    const Condition* const condition = elements<Condition>(src[0]) + offsets[0];
    const Word *const x = elements<Word>(src[1]) + offsets[1], *const y = elements<Word>(src[2]) + offsets[2];
    for (std::int64_t i = 0; i < length; ++i)
      *to++ = static_cast<Compute<Condition>>(condition[i * steps[0]]) != 0 ? x[i * steps[1]] : y[i * steps[2]];
  });
}

Status compute_where(const Node& node, Sources src, Results dst) {
  const Shape condition = condition_along(node, src[0].shape, dst[0].shape);
  const DType type = src[0].dtype == DType::kBool ? DType::kUInt8 : src[0].dtype;  // a bool of a client may be any byte
  return dispatch<Numbers>(node, type, [&]<typename Condition>() {
    with_word(dst[0].dtype, [&]<typename Word>() { where<Condition, Word>(condition, src, dst[0]); });
    return Status();
  });
}

}  // namespace

Shape condition_along(const Node& node, const Shape& condition, const Shape& x) {
  if (!is_by_rows(node, condition.rank(), x.rank())) return condition;
  Shape laid = x;
  for (int axis = 0; axis < x.rank(); ++axis) laid[axis] = axis == 0 ? condition[0] : 1;
  return laid;
}

namespace ops {

const Operator kWhere({
    .name = "Where",
    .inputs = 3,
    .attributes = &kSchema<WhereAttributes>,
    .infer = infer_where,
    .promote = promote_where,
    .facts = elementwise_facts(where_rows, Accuracy::kLost),
    .oracle = compute_where,
    .formula = "condition, x, y: x where the condition is not 0, else y. Any types; x and y have the same. The three are "
               "broadcast by NumPy's rule",
    .source = "MXNet 1.9.1 src/operator/tensor/control_flow_op.h, numpy/np_where_op-inl.h",
});

}  // namespace ops

}  // namespace shoal::worker
