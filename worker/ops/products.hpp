// MatMul, Dot, KhatriRao.
#pragma once

#include "worker/graph/operators.hpp"

namespace shoal::worker {

namespace ops {
extern const Operator kMatMul, kDot, kKhatriRao;
}  // namespace ops

struct MatMulAttributes {
  bool transpose_a = false, transpose_b = false;
  bool broadcast = false;
  double scale = 1;
  int least_rank = 2;
  bool has_vectors = false;
  bool integers = false;
};
template <>
inline constexpr auto fields_of<MatMulAttributes> = std::tuple{
    field("transpose_a", &MatMulAttributes::transpose_a, "the last two axes of a change places"),
    field("transpose_b", &MatMulAttributes::transpose_b, "likewise of b"),
    field("broadcast", &MatMulAttributes::broadcast, "the axes before the last two, by NumPy's rule; else they are equal"),
    field("scale", &MatMulAttributes::scale, "factor of the product"),
    field("least_rank", &MatMulAttributes::least_rank, "of both"),
    field("has_vectors", &MatMulAttributes::has_vectors,
          "a vector a is a row, and a vector b a column; the result does not have that axis"),
    field("integers", &MatMulAttributes::integers, "integers are allowed, too; their sums wrap. The scale is 1 then"),
};

struct DotAttributes {
  bool transpose_a = false, transpose_b = false;
  bool as_numpy = false;
};
template <>
inline constexpr auto fields_of<DotAttributes> = std::tuple{
    field("transpose_a", &DotAttributes::transpose_a, "the sum runs over the first axis of a, not the last"),
    field("transpose_b", &DotAttributes::transpose_b, "it runs over the last axis of b, not the first"),
    field("as_numpy", &DotAttributes::as_numpy,
          "two vectors give a scalar, the sum runs over the last axis of b but one, and a scalar is a factor"),
};

/// Is it a product of two matrices? If b has more axes in NumPy's interface, it holds several.
bool is_matrix_product(const DotAttributes& product, const Shape& b);
/// A Dot as a product of matrices: rows x depth and depth x columns, each row-major or, if it is transposed, column-major.
struct DotExtents {
  std::int64_t rows = 1, depth = 1, columns = 1;
};
DotExtents dot_extents(const DotAttributes& product, const Shape& a, const Shape& b);

}  // namespace shoal::worker
