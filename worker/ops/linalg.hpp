// TriangularProduct, TriangularSolve; ExtractTriangle, MakeTriangle.
#pragma once

#include "worker/graph/operators.hpp"

namespace shoal::worker {

namespace ops {
extern const Operator kTriangularProduct, kTriangularSolve, kExtractTriangle, kMakeTriangle;
}  // namespace ops

struct TriangularAttributes {
  bool transpose = false, from_right = false, lower = true;
  double scale = 1;
};
template <>
inline constexpr auto fields_of<TriangularAttributes> = std::tuple{
    field("transpose", &TriangularAttributes::transpose, "the triangle is transposed"),
    field("from_right", &TriangularAttributes::from_right, "the triangle stands on the right of b"),
    field("lower", &TriangularAttributes::lower,
          "the elements below the diagonal count, those above it are taken as 0; else the other way round"),
    field("scale", &TriangularAttributes::scale, "factor of b"),
};

struct TriangleAttributes {
  std::int64_t offset = 0;
  bool lower = true;
};
template <>
inline constexpr auto fields_of<TriangleAttributes> = std::tuple{
    field(
        "offset", &TriangleAttributes::offset,
        "of the diagonal that bounds the triangle: the upper triangle from a diagonal above the main one, the lower one from one "
        "below it"),
    field("lower", &TriangleAttributes::lower, "for offset 0: the lower triangle, or else the upper one"),
};

}  // namespace shoal::worker
