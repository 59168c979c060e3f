// Diagonal: of two axes. MakeDiagonal: back. LowerTriangle: what lies on one or below it.
#pragma once

#include "worker/graph/operators.hpp"

namespace shoal::worker {

namespace ops {
extern const Operator kDiagonal, kMakeDiagonal, kLowerTriangle;
}  // namespace ops

/// Errors: kInvalidArgument if the offset of a diagonal is so large that an overflow is possible where rows or elements are
/// counted.
Status check_offset(const Node& node, std::int64_t offset);

struct DiagonalAttributes {
  std::int64_t offset = 0, rows = 0, columns = 1;
  bool is_square = false;
};
template <>
inline constexpr auto fields_of<DiagonalAttributes> = std::tuple{
    field("offset", &DiagonalAttributes::offset, "above 0: a diagonal above the main one; below 0: one below it"),
    field("rows", &DiagonalAttributes::rows, "the axis of the rows; may be negative"),
    field("columns", &DiagonalAttributes::columns, "the axis of the columns; may be negative"),
    field("is_square", &DiagonalAttributes::is_square, "vectors, and axes of two lengths, are refused"),
};

struct MakeDiagonalAttributes {
  std::int64_t offset = 0;
};
template <>
inline constexpr auto fields_of<MakeDiagonalAttributes> = std::tuple{
    field("offset", &MakeDiagonalAttributes::offset, "of the diagonal: above the main one if positive, below it if negative"),
};

struct LowerTriangleAttributes {
  std::int64_t offset = 0;
};
template <>
inline constexpr auto fields_of<LowerTriangleAttributes> = std::tuple{
    field("offset", &LowerTriangleAttributes::offset, "of the diagonal: above the main one if positive, below it if negative"),
};

}  // namespace shoal::worker
