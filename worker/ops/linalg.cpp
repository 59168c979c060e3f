// TriangularProduct, TriangularSolve, ExtractTriangle, MakeTriangle.
#include "worker/ops/linalg.hpp"

#include <cmath>
#include <cstring>

#include "shm/base/errors.hpp"
#include "worker/graph/shapes.hpp"
#include "worker/ops/diagonal.hpp"
#include "worker/ops/elements.hpp"
#include "worker/ops/linalg_functions.hpp"

namespace shoal::worker {
namespace {

Status check_square(const Node& node, const TypedValue& src) {
  SHOAL_RETURN_IF_ERROR(check_rank(node, src, 2));
  const int rank = src.shape.rank();
  if (!known_unequal(src.shape[rank - 2], src.shape[rank - 1])) return {};
  return invalid_argument("{}: '{}' of shape {} holds no square matrices", describe(node), src.name, src.shape.to_string());
}

Status infer_triangular(const Node& node, SourceValues src, ResultValues dst) {
  const TypedValue &a = src[0], &b = src[1];
  if (a.dtype != DType::kFloat32 && a.dtype != DType::kFloat64) {
    return invalid_argument("{}: '{}' is {}; float32 or float64 is needed", describe(node), a.name, dtype_name(a.dtype));
  }
  SHOAL_RETURN_IF_ERROR(check_same_dtype(node, src));
  SHOAL_RETURN_IF_ERROR(check_square(node, a));
  SymbolicShape wanted = b.shape;  // of a, if b fits
  const int rank = b.shape.rank();
  bool fits = rank == a.shape.rank();
  if (fits) {
    const Dim size = b.shape[rank - (node.attributes.get<TriangularAttributes>().from_right ? 1 : 2)];
    wanted[rank - 2] = wanted[rank - 1] = size;
    fits = !known_unequal(wanted, a.shape);
  }
  if (!fits) {
    return invalid_argument("{}: triangles '{}' of shape {} do not fit '{}' of shape {}", describe(node), a.name,
                            a.shape.to_string(), b.name, b.shape.to_string());
  }
  set_result(dst[0], b.dtype, b.shape);
  return {};
}

/// A triangle of `size` elements in the place of the last two axes, or a matrix in the place of the last one.
Status replace_last_axes(const Node& node, const TypedValue& src, int lost, std::initializer_list<Dim> made, TypedValue& dst) {
  Sizes out(src.shape.begin(), src.shape.end() - lost);
  out.insert(out.end(), made);
  SHOAL_ASSIGN_OR_RETURN(const SymbolicShape shape, make_shape(node, out));
  set_result(dst, src.dtype, shape);
  return {};
}

Status infer_extract_triangle(const Node& node, SourceValues src, ResultValues dst) {
  const std::int64_t offset = node.attributes.get<TriangleAttributes>().offset;
  SHOAL_RETURN_IF_ERROR(check_offset(node, offset));
  SHOAL_RETURN_IF_ERROR(check_square(node, src[0]));
  const Dim size = src[0].shape[src[0].shape.rank() - 1];
  if (known_less(size, diagonals_away(offset) + 1))
    return invalid_argument("{}: '{}' ({}) has no triangle {}", describe(node), src[0].name, src[0].shape.to_string(), offset);
  const Dim side = size - Dim(diagonals_away(offset));
  return replace_last_axes(node, src[0], 2, {floor_div(side * (side + Dim(1)), 2)}, dst[0]);
}

/// The side of a triangle of `count` elements; -1 if there is none.
std::int64_t side_of_triangle(std::int64_t count) {
  auto side = static_cast<std::int64_t>((std::sqrt(8.0 * static_cast<double>(count) + 1) - 1) / 2);
  while (side * (side + 1) / 2 < count) ++side;
  return side * (side + 1) / 2 == count ? side : -1;
}

Status infer_make_triangle(const Node& node, SourceValues src, ResultValues dst) {
  const std::int64_t offset = node.attributes.get<TriangleAttributes>().offset;
  SHOAL_RETURN_IF_ERROR(check_offset(node, offset));
  SHOAL_RETURN_IF_ERROR(check_rank(node, src[0], 1));
  const Dim count = src[0].shape[src[0].shape.rank() - 1];
  if (!count.is_number())
    return unimplemented("{}: the last axis of '{}' ({}) must be known", describe(node), src[0].name, src[0].shape.to_string());
  const std::int64_t side = count.number() > kMaxElements ? -1 : side_of_triangle(count.number());
  if (side < 0) {
    return invalid_argument("{}: {} elements, the last axis of '{}' ({}), are no triangle", describe(node), count.number(),
                            src[0].name, src[0].shape.to_string());
  }
  const Dim size = side + diagonals_away(offset);
  return replace_last_axes(node, src[0], 1, {size, size}, dst[0]);
}

/// Calls run(triangle, scale, line) for each line of dst.
template <typename T, typename Run>
void each_line(const TriangularAttributes& attributes, const TensorView& a, TensorView& dst, Run run) {
  const TriangularExtents extents(attributes, dst.shape);
  for (std::int64_t i = 0; i < extents.matrices * extents.lines; ++i)
    run(triangle_of(attributes, extents, elements<T>(a), i), attributes.scale, line_of(attributes, extents, elements<T>(dst), i));
}

Status compute_triangular_product(const Node& node, Sources src, Results dst) {
  std::memcpy(dst[0].data, src[1].data, dst[0].size_bytes());
  return dispatch<Types<float, double>>(node, dst[0].dtype, [&]<typename T>() {
    each_line<T>(node.attributes.get<TriangularAttributes>(), src[0], dst[0], triangular_product<T>);
    return Status();
  });
}

Status compute_triangular_solve(const Node& node, Sources src, Results dst) {
  std::memcpy(dst[0].data, src[1].data, dst[0].size_bytes());
  return dispatch<Types<float, double>>(node, dst[0].dtype, [&]<typename T>() {
    each_line<T>(node.attributes.get<TriangularAttributes>(), src[0], dst[0], triangular_solve<T>);
    return Status();
  });
}

/// Runs copy_line for every line of an ExtractTriangle (to_lines) or MakeTriangle.
void copy_lines(const TriangleAttributes& attributes, bool to_lines, const TensorView& src, TensorView& dst) {
  const LineExtents extents(to_lines ? src.shape : dst.shape, to_lines ? dst.shape : src.shape);
  with_word(dst.dtype, [&]<typename Word>() {
    for (std::int64_t i = 0; i < extents.count; ++i)
      copy_line(attributes, extents, to_lines, elements<Word>(src), elements<Word>(dst), i);
  });
}

Status compute_extract_triangle(const Node& node, Sources src, Results dst) {
  copy_lines(node.attributes.get<TriangleAttributes>(), true, src[0], dst[0]);
  return {};
}
Status compute_make_triangle(const Node& node, Sources src, Results dst) {
  copy_lines(node.attributes.get<TriangleAttributes>(), false, src[0], dst[0]);
  return {};
}

/// Each matrix has its triangle.
bool matrix_rows(const BatchedNode& batched) { return batched.rank() > 2; }
/// Each line is one row's.
bool line_rows(const BatchedNode& batched) { return batched.rank() > 1; }

constexpr const char* kSource = "MXNet 1.9.1 src/operator/tensor/la_op-inl.h";

}  // namespace

namespace ops {

const Operator kTriangularProduct({
    .name = "TriangularProduct",
    .inputs = 2,
    .attributes = &kSchema<TriangularAttributes>,
    .infer = infer_triangular,
    .constant_types = ConstantTypes::kAsData,
    .facts = layer_facts(matrix_rows, work_of_product, Accuracy::kLost),
    .oracle = compute_triangular_product,
    .formula = "a (..., n, n), of which one triangle counts, b (..., n, m): scale * a b, or scale * b a from the right",
    .source = kSource,
});

const Operator kTriangularSolve({
    .name = "TriangularSolve",
    .inputs = 2,
    .attributes = &kSchema<TriangularAttributes>,
    .infer = infer_triangular,
    .constant_types = ConstantTypes::kAsData,
    .facts = layer_facts(matrix_rows, work_of_product, Accuracy::kLost),
    .oracle = compute_triangular_solve,
    .formula =
        "a (..., n, n), of which one triangle counts, b (..., n, m): the x with a x = scale * b, or x a = scale * b from the "
        "right",
    .source = kSource,
});

const Operator kExtractTriangle({
    .name = "ExtractTriangle",
    .attributes = &kSchema<TriangleAttributes>,
    .infer = infer_extract_triangle,
    .facts = layer_facts(matrix_rows, work_of_elements, Accuracy::kLost),
    .oracle = compute_extract_triangle,
    .formula =
        "data (..., n, n): the elements of a triangle of each matrix, row by row; those of an upper triangle column by column",
    .source = kSource,
});

const Operator kMakeTriangle({
    .name = "MakeTriangle",
    .attributes = &kSchema<TriangleAttributes>,
    .infer = infer_make_triangle,
    .facts = layer_facts(line_rows, work_of_elements, Accuracy::kLost),
    .oracle = compute_make_triangle,
    .formula = "data (..., k): matrices with these elements in a triangle, in the order of ExtractTriangle, and zeros",
    .source = kSource,
});

}  // namespace ops

}  // namespace shoal::worker
