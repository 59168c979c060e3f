// MatMul, Dot, KhatriRao.
#include "worker/ops/products.hpp"

#include <algorithm>
#include <string_view>
#include <vector>

#include "shm/base/errors.hpp"
#include "worker/graph/shapes.hpp"
#include "worker/ops/elements.hpp"
#include "worker/ops/matrix_product.hpp"

namespace shoal::worker {
namespace {

Status no_product(const Node& node, const TypedValue& a, const TypedValue& b, std::string_view why) {
  return invalid_argument("{}: '{}' of shape {} and '{}' of shape {} have no product: {}", describe(node), a.name,
                          a.shape.to_string(), b.name, b.shape.to_string(), why);
}

/// Checks that the sum runs over axes of one size.
Status check_depth(const Node& node, const TypedValue& a, int axis_a, const TypedValue& b, int axis_b) {
  if (!known_unequal(a.shape[axis_a], b.shape[axis_b])) return {};
  return no_product(node, a, b, format("the sum runs over axes {} and {}, which differ", axis_a, axis_b));
}

/// The axes of a shape but the last two.
SymbolicShape lead_of(const SymbolicShape& shape) {
  return SymbolicShape(shape.dims().first(static_cast<std::size_t>(shape.rank() - 2)));
}
Shape lead_of(const Shape& shape) { return Shape(shape.dims().first(static_cast<std::size_t>(shape.rank() - 2))); }

Status infer_mat_mul(const Node& node, SourceValues src, ResultValues dst) {
  const auto& product = node.attributes.get<MatMulAttributes>();
  TypedValue a = src[0], b = src[1];
  SHOAL_RETURN_IF_ERROR(product.integers ? check_number(node, a) : check_float(node, a));
  SHOAL_RETURN_IF_ERROR(check_same_dtype(node, src));
  SHOAL_RETURN_IF_ERROR(check_rank(node, a, product.has_vectors ? 1 : product.least_rank));
  SHOAL_RETURN_IF_ERROR(check_rank(node, b, product.has_vectors ? 1 : product.least_rank));
  const bool is_row = a.shape.rank() == 1, is_column = b.shape.rank() == 1;
  if (is_row) a.shape = SymbolicShape{1, a.shape[0]};
  if (is_column) b.shape = SymbolicShape{b.shape[0], 1};
  const SymbolicShape left = lead_of(a.shape), right = lead_of(b.shape);
  SymbolicShape lead = left;
  if (product.broadcast) {
    SHOAL_ASSIGN_OR_RETURN(lead, broadcast(node, {.name = a.name, .shape = left}, {.name = b.name, .shape = right}));
  } else if (known_unequal(left, right)) {
    return no_product(node, a, b, "the axes before the last two must be equal");
  }
  SHOAL_RETURN_IF_ERROR(
      check_depth(node, a, a.shape.rank() - (product.transpose_a ? 2 : 1), b, b.shape.rank() - (product.transpose_b ? 1 : 2)));
  Sizes out(lead.begin(), lead.end());
  if (!is_row) out.push_back(a.shape[a.shape.rank() - (product.transpose_a ? 1 : 2)]);
  if (!is_column) out.push_back(b.shape[b.shape.rank() - (product.transpose_b ? 2 : 1)]);
  set_result(dst[0], a.dtype, SymbolicShape(out));
  return {};
}

int summed_axis_of_b(const DotAttributes& product, int rank) {
  if (product.as_numpy) return std::max(0, rank - 2);
  return product.transpose_b ? rank - 1 : 0;
}

Status infer_dot(const Node& node, SourceValues src, ResultValues dst) {
  const auto& product = node.attributes.get<DotAttributes>();
  const TypedValue &a = src[0], &b = src[1];
  SHOAL_RETURN_IF_ERROR(check_float(node, a));
  SHOAL_RETURN_IF_ERROR(check_same_dtype(node, src));
  const int rank_a = a.shape.rank(), rank_b = b.shape.rank();
  if (product.as_numpy && (rank_a == 0 || rank_b == 0)) {
    set_result(dst[0], a.dtype, rank_a == 0 ? b.shape : a.shape);
    return {};
  }
  SHOAL_RETURN_IF_ERROR(check_rank(node, a, 1));
  SHOAL_RETURN_IF_ERROR(check_rank(node, b, 1));
  if (rank_a == 1 && rank_b == 1 && (product.transpose_a || product.transpose_b))
    return no_product(node, a, b, "a vector cannot be transposed");
  const int summed_a = product.transpose_a ? 0 : rank_a - 1, summed_b = summed_axis_of_b(product, rank_b);
  SHOAL_RETURN_IF_ERROR(check_depth(node, a, summed_a, b, summed_b));
  Sizes out;
  for (int axis = 0; axis < rank_a; ++axis) {
    if (axis != summed_a) out.push_back(a.shape[axis]);
  }
  for (int axis = 0; axis < rank_b; ++axis) {
    if (axis != summed_b) out.push_back(b.shape[axis]);
  }
  if (out.empty() && !product.as_numpy) out.push_back(1);
  SHOAL_ASSIGN_OR_RETURN(const SymbolicShape shape, make_shape(node, out));
  set_result(dst[0], a.dtype, shape);
  return {};
}

Status infer_khatri_rao(const Node& node, SourceValues src, ResultValues dst) {
  SHOAL_RETURN_IF_ERROR(check_float(node, src[0]));
  SHOAL_RETURN_IF_ERROR(check_same_dtype(node, src));
  Dim rows = 1;
  for (const TypedValue& matrix : src) {
    SHOAL_RETURN_IF_ERROR(check_rank(node, matrix, 2, 2));
    if (known_unequal(matrix.shape[1], src[0].shape[1]))
      return no_product(node, src[0], matrix, "they need the same number of columns");
    rows *= matrix.shape[0];
  }
  set_result(dst[0], src[0].dtype, SymbolicShape{rows, src[0].shape[1]});
  return {};
}

/// The matrix that lies row-major at `first` with `width` elements in a row, or the transposed one.
template <typename T>
MatrixView<T> matrix_at(const T* first, std::int64_t width, bool transposed) {
  return transposed ? MatrixView<T>{first, 1, width} : MatrixView<T>{first, width, 1};
}

/// Broadcast strides of the matrices of `shape` along the axes of `lead`, in elements.
Strides matrix_strides(const Shape& shape, const Shape& lead) {
  Strides strides = broadcast_strides(lead_of(shape), lead);
  const int rank = shape.rank();
  for (std::int64_t& stride : strides) stride *= shape[rank - 2] * shape[rank - 1];
  return strides;
}

template <typename T>
void mat_mul(const MatMulAttributes& product, const TensorView& a, const TensorView& b, TensorView& dst) {
  const Shape lead = lead_of(dst.shape);
  const int rank = dst.shape.rank();
  const std::int64_t rows = dst.shape[rank - 2], columns = dst.shape[rank - 1];
  const std::int64_t width_a = a.shape[a.shape.rank() - 1], width_b = b.shape[b.shape.rank() - 1];
  const std::int64_t depth = product.transpose_a ? a.shape[a.shape.rank() - 2] : width_a;
  const std::array strides{matrix_strides(a.shape, lead), matrix_strides(b.shape, lead)};
  const std::int64_t length = row_length(lead), step_a = row_stride(lead, strides[0]), step_b = row_stride(lead, strides[1]);
  T* to = elements<T>(dst);
  if (static_cast<Compute<T>>(product.scale) == 0) {  // as BLAS: NaN and infinities do not matter
    std::fill_n(to, dst.shape.element_count(), T());
    return;
  }
  each_row(lead, strides, [&](const std::array<std::int64_t, 2>& offsets) {
    for (std::int64_t i = 0; i < length; ++i, to += rows * columns) {
      multiply<T>(rows, depth, columns, static_cast<Compute<T>>(product.scale),
                  matrix_at(elements<T>(a) + offsets[0] + i * step_a, width_a, product.transpose_a),
                  matrix_at(elements<T>(b) + offsets[1] + i * step_b, width_b, product.transpose_b), to, columns);
    }
  });
}

Status compute_mat_mul(const Node& node, Sources src, Results dst) {
  TensorView a = src[0], b = src[1], result = dst[0];
  Dims made(result.shape.begin(), result.shape.end());  // with the axes of one element that vectors have as matrices
  if (b.shape.rank() == 1) made.push_back(1);
  if (a.shape.rank() == 1) made.insert(made.end() - 1, 1);
  if (a.shape.rank() == 1) a.shape = Shape{1, a.shape[0]};
  if (b.shape.rank() == 1) b.shape = Shape{b.shape[0], 1};
  result.shape = Shape(made);
  return dispatch<Numbers>(node, src[0].dtype, [&]<typename T>() {
    mat_mul<T>(node.attributes.get<MatMulAttributes>(), a, b, result);
    return Status();
  });
}

Status compute_dot(const Node& node, Sources src, Results dst) {
  const auto& product = node.attributes.get<DotAttributes>();
  const DotExtents extents = dot_extents(product, src[0].shape, src[1].shape);
  return dispatch<Floats>(node, src[0].dtype, [&]<typename T>() {
    if (!is_matrix_product(product, src[1].shape)) {  // the matrices of b make ranges of each row
      const std::int64_t columns = src[1].shape[src[1].shape.rank() - 1];
      for (std::int64_t first = 0; first < extents.columns; first += columns) {
        multiply<T>(extents.rows, extents.depth, columns, Compute<T>{1}, matrix_at(elements<T>(src[0]), extents.depth, false),
                    matrix_at(elements<T>(src[1]) + first * extents.depth, columns, false), elements<T>(dst[0]) + first,
                    extents.columns);
      }
      return Status();
    }
    multiply<T>(extents.rows, extents.depth, extents.columns, Compute<T>{1},
                matrix_at(elements<T>(src[0]), product.transpose_a ? extents.rows : extents.depth, product.transpose_a),
                matrix_at(elements<T>(src[1]), product.transpose_b ? extents.depth : extents.columns, product.transpose_b),
                elements<T>(dst[0]), extents.columns);
    return Status();
  });
}

Status compute_khatri_rao(const Node& node, Sources src, Results dst) {
  return dispatch<Floats>(node, src[0].dtype, [&]<typename T>() {
    std::vector<KhatriRaoFactor<T>> factors;
    for (const TensorView& matrix : src) factors.push_back({elements<T>(matrix), matrix.shape[0]});
    const std::int64_t columns = dst[0].shape[1];
    for (std::int64_t row = 0; row < dst[0].shape[0]; ++row)
      khatri_rao_row<T>(factors, columns, row, elements<T>(dst[0]) + row * columns);
    return Status();
  });
}

/// Of matrices, only the rows of a are rows of the result.
bool mat_mul_rows(const BatchedNode& batched) {
  if (batched.rank() == 1) return false;
  if (batched.graph.value(batched.node.inputs[1]).shape.rank() == 1) return batched.only_first_has_rows();
  if (batched.graph.value(batched.node.outputs[0]).shape.rank() == 2)
    return batched.only_first_has_rows() && !batched.node.attributes.get<MatMulAttributes>().transpose_a;
  return batched.rows_align(0) && batched.rows_align(1);
}

bool dot_rows(const BatchedNode& batched) {
  return batched.only_first_has_rows() && batched.rank() > 1 && !batched.node.attributes.get<DotAttributes>().transpose_a;
}

}  // namespace

bool is_matrix_product(const DotAttributes& product, const Shape& b) { return !product.as_numpy || b.rank() <= 2; }

DotExtents dot_extents(const DotAttributes& product, const Shape& a, const Shape& b) {
  if (a.rank() == 0 || b.rank() == 0) return {a.element_count(), 1, b.element_count()};
  const int summed_a = product.transpose_a ? 0 : a.rank() - 1, summed_b = summed_axis_of_b(product, b.rank());
  DotExtents extents{1, a[summed_a], 1};
  for (int axis = 0; axis < a.rank(); ++axis) extents.rows *= axis == summed_a ? 1 : a[axis];
  for (int axis = 0; axis < b.rank(); ++axis) extents.columns *= axis == summed_b ? 1 : b[axis];
  return extents;
}

namespace ops {

const Operator kMatMul({
    .name = "MatMul",
    .inputs = 2,
    .attributes = &kSchema<MatMulAttributes>,
    .infer = infer_mat_mul,
    .constant_types = ConstantTypes::kAsData,
    .facts = layer_facts(mat_mul_rows, work_of_product, Accuracy::kLost),
    .oracle = compute_mat_mul,
    .formula = "a (..., m, k), b (..., k, n): scale * a b (..., m, n), for each position of the axes before the last two",
    .source = "MXNet 1.9.1 src/operator/tensor/dot-inl.h, la_op.h",
});

const Operator kDot({
    .name = "Dot",
    .inputs = 2,
    .attributes = &kSchema<DotAttributes>,
    .infer = infer_dot,
    .constant_types = ConstantTypes::kAsData,
    .facts = layer_facts(dot_rows, work_of_product, Accuracy::kLost),
    .oracle = compute_dot,
    .formula = "a (..., k), b (k, ...): the sum of products over k. The result has the other axes of a, then those of b; of two "
               "vectors it has shape (1)",
    .source = "MXNet 1.9.1 src/operator/tensor/dot-inl.h",
});

const Operator kKhatriRao({
    .name = "KhatriRao",
    .inputs = {1, Arity::kAny},
    .infer = infer_khatri_rao,
    .constant_types = ConstantTypes::kAsData,
    .facts = layer_facts(rows_mixed, work_of_pairs, Accuracy::kLost),
    .oracle = compute_khatri_rao,
    .formula = "matrices with the same number of columns: column c of the result is the Kronecker product of their columns c",
    .source = "MXNet 1.9.1 src/operator/contrib/krprod.cc",
});

}  // namespace ops

}  // namespace shoal::worker
