// Diagonal: of two axes. MakeDiagonal: back. LowerTriangle: what lies on one or below it.
#include "worker/ops/diagonal.hpp"

#include <algorithm>
#include <cstring>

#include "shm/base/errors.hpp"
#include "worker/graph/shapes.hpp"
#include "worker/ops/diagonal_functions.hpp"

namespace shoal::worker {

Status check_offset(const Node& node, std::int64_t offset) {
  constexpr std::int64_t kMost = std::int64_t{1} << 20;
  if (offset >= -kMost && offset <= kMost) return {};
  return invalid_argument("{}: offset {} is not in {} to {}", describe(node), offset, -kMost, kMost);
}

namespace {

/// Matrices of which the lines along the last axis of src are diagonals.
Status infer_matrices(const Node& node, const TypedValue& src, std::int64_t offset, TypedValue& dst) {
  SHOAL_RETURN_IF_ERROR(check_offset(node, offset));
  SHOAL_RETURN_IF_ERROR(check_rank(node, src, 1));
  const DiagonalStart start(offset);
  Sizes out(src.shape.begin(), src.shape.end());
  out.back() = out.back() + start.row + start.column;
  out.push_back(out.back());
  SHOAL_ASSIGN_OR_RETURN(const SymbolicShape shape, make_shape(node, out));
  set_result(dst, src.dtype, shape);
  return {};
}

Status infer_make_diagonal(const Node& node, SourceValues src, ResultValues dst) {
  return infer_matrices(node, src[0], node.attributes.get<MakeDiagonalAttributes>().offset, dst[0]);
}

Status infer_diagonal(const Node& node, SourceValues src, ResultValues dst) {
  const auto& diagonal = node.attributes.get<DiagonalAttributes>();
  const TypedValue& data = src[0];
  SHOAL_RETURN_IF_ERROR(check_rank(node, data, diagonal.is_square ? 2 : 1));
  if (data.shape.rank() == 1) return infer_matrices(node, data, diagonal.offset, dst[0]);
  SHOAL_RETURN_IF_ERROR(check_offset(node, diagonal.offset));
  SHOAL_ASSIGN_OR_RETURN(const int rows, normalize_axis(node, diagonal.rows, data.shape));
  SHOAL_ASSIGN_OR_RETURN(const int columns, normalize_axis(node, diagonal.columns, data.shape));
  if (diagonal.is_square && known_unequal(data.shape[rows], data.shape[columns])) {
    return invalid_argument("{}: '{}' of shape {} holds no square matrices", describe(node), data.name, data.shape.to_string());
  }
  const DiagonalStart start(diagonal.offset);
  const Dim size = min(data.shape[rows] - start.row, data.shape[columns] - start.column);
  if (rows == columns || known_less(size, 1)) {
    return invalid_argument("{}: axes {} and {} of '{}' ({}) have no diagonal {}", describe(node), diagonal.rows,
                            diagonal.columns, data.name, data.shape.to_string(), diagonal.offset);
  }
  Sizes out;
  for (int axis = 0; axis < data.shape.rank(); ++axis) {
    if (axis != rows && axis != columns) out.push_back(data.shape[axis]);
  }
  out.push_back(max(0, size));
  set_result(dst[0], data.dtype, SymbolicShape(out));
  return {};
}

Status infer_lower_triangle(const Node& node, SourceValues src, ResultValues dst) {
  SHOAL_RETURN_IF_ERROR(check_rank(node, src[0], 1));
  Sizes sizes(src[0].shape.begin(), src[0].shape.end());
  if (sizes.size() == 1) sizes.push_back(sizes[0]);
  set_result(dst[0], src[0].dtype, SymbolicShape(sizes));
  return {};
}

/// A vector is the row of each line of a square matrix.
Status compute_lower_triangle(const Node& node, Sources src, Results dst) {
  const std::int64_t offset = node.attributes.get<LowerTriangleAttributes>().offset;
  const std::int64_t rows = dst[0].shape[dst[0].shape.rank() - 2], columns = dst[0].shape[dst[0].shape.rank() - 1];
  const std::size_t bytes = dtype_size_bytes(dst[0].dtype), length = static_cast<std::size_t>(columns) * bytes;
  std::memset(dst[0].data, 0, dst[0].size_bytes());
  for (std::int64_t line = 0; line < dst[0].element_count() / columns; ++line) {
    const std::int64_t count = std::clamp<std::int64_t>(line % rows + offset + 1, 0, columns);
    const std::int64_t from = src[0].shape.rank() == 1 ? 0 : line;
    std::memcpy(dst[0].data + static_cast<std::size_t>(line) * length, src[0].data + static_cast<std::size_t>(from) * length,
                static_cast<std::size_t>(count) * bytes);
  }
  return {};
}

Status make_diagonals(std::int64_t offset, const TensorView& src, TensorView& dst) {
  const std::int64_t length = src.shape[src.shape.rank() - 1], size = dst.shape[dst.shape.rank() - 1];
  with_word(dst.dtype, [&]<typename Word>() {
    for (std::int64_t i = 0, count = dst.element_count() / (size * size); i < count; ++i)
      make_diagonal(offset, elements<Word>(src) + i * length, length, elements<Word>(dst) + i * size * size);
  });
  return {};
}

Status compute_make_diagonal(const Node& node, Sources src, Results dst) {
  return make_diagonals(node.attributes.get<MakeDiagonalAttributes>().offset, src[0], dst[0]);
}

Status compute_diagonal(const Node& node, Sources src, Results dst) {
  const auto& diagonal = node.attributes.get<DiagonalAttributes>();
  if (src[0].shape.rank() == 1) return make_diagonals(diagonal.offset, src[0], dst[0]);
  const DiagonalPlaces places(diagonal, src[0].shape);
  copy_strided(src[0], places.first, places.strides, dst[0]);
  return {};
}

bool diagonal_rows(const BatchedNode& batched) {
  const auto& diagonal = batched.node.attributes.get<DiagonalAttributes>();
  return batched.rank() > 1 && !batched.is_of_rows(diagonal.rows) && !batched.is_of_rows(diagonal.columns);
}

bool line_rows(const BatchedNode& batched) { return batched.rank() > 1; }
bool triangle_rows(const BatchedNode& batched) { return batched.rank() > 2; }

}  // namespace

namespace ops {

const Operator kDiagonal({
    .name = "Diagonal",
    .attributes = &kSchema<DiagonalAttributes>,
    .infer = infer_diagonal,
    .facts = layer_facts(diagonal_rows, work_of_elements, Accuracy::kLost),
    .oracle = compute_diagonal,
    .formula =
        "data: the diagonal of two axes, as last axis in place of the two. A vector becomes the diagonal of a square matrix of "
        "zeros",
    .source = "MXNet 1.9.1 src/operator/tensor/diag_op-inl.h",
});

const Operator kMakeDiagonal({
    .name = "MakeDiagonal",
    .attributes = &kSchema<MakeDiagonalAttributes>,
    .infer = infer_make_diagonal,
    .facts = layer_facts(line_rows, work_of_elements, Accuracy::kLost),
    .oracle = compute_make_diagonal,
    .formula = "data (..., n): matrices (..., n + |offset|, n + |offset|) with that diagonal and zeros",
    .source = "MXNet 1.9.1 src/operator/tensor/la_op-inl.h",
});

const Operator kLowerTriangle({
    .name = "LowerTriangle",
    .attributes = &kSchema<LowerTriangleAttributes>,
    .infer = infer_lower_triangle,
    .facts = layer_facts(triangle_rows, work_of_elements, Accuracy::kLost),
    .oracle = compute_lower_triangle,
    .formula = "data (..., m, n), with 0 above a diagonal. A vector becomes each row of a square matrix first",
    .source = "MXNet 1.9.1 src/operator/numpy/np_tril_op-inl.h",
});

}  // namespace ops

}  // namespace shoal::worker
