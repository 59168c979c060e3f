// Fill, Range, Eye, Positions, ShapeOf, DiagonalIndices: tensors that are made of numbers and shapes.
#pragma once

#include <optional>

#include "worker/graph/operators.hpp"

namespace shoal::worker {

namespace ops {
extern const Operator kFill, kRange, kEye, kPositions, kShapeOf, kDiagonalIndices;
}  // namespace ops

/// A size that the readers of the result decide.
inline constexpr std::int64_t kOpenSize = -1;

struct FillAttributes {
  double value = 0;
  Dims shape;
  bool shape_of_input = false;
  std::optional<DType> dtype;
};
template <>
inline constexpr auto fields_of<FillAttributes> = std::tuple{
    field("value", &FillAttributes::value, "the number"),
    field("shape", &FillAttributes::shape, "an axis of -1 is as long as the readers of the result need it"),
    field("shape_of_input", &FillAttributes::shape_of_input, "the shape is that of the input"),
    field("dtype", &FillAttributes::dtype, "none: that of the input"),
};

struct RangeAttributes {
  double start = 0, step = 1;
  std::int64_t repeat = 1;
  std::int64_t count = 0;
  std::optional<std::int64_t> axis;
  bool in_float64 = false;
  std::optional<DType> dtype;
};
template <>
inline constexpr auto fields_of<RangeAttributes> = std::tuple{
    field("start", &RangeAttributes::start, "the first number"),
    field("step", &RangeAttributes::step, "from one number to the next"),
    field("repeat", &RangeAttributes::repeat, "how often each number stands there, one behind the other"),
    field("count", &RangeAttributes::count, "without an input: how many elements; -1: as many as the readers of the result need"),
    field("axis", &RangeAttributes::axis, "as many elements as the input has along it; none: the result has the input's shape"),
    field("in_float64", &RangeAttributes::in_float64, "computed in float64 and rounded once; else in the type of the result"),
    field("dtype", &RangeAttributes::dtype, "none: that of the input"),
};

struct EyeAttributes {
  std::int64_t rows = 1, columns = 1, offset = 0;
  DType dtype = DType::kFloat32;
};
template <>
inline constexpr auto fields_of<EyeAttributes> = std::tuple{
    field("rows", &EyeAttributes::rows, ""),
    field("columns", &EyeAttributes::columns, ""),
    field("offset", &EyeAttributes::offset, "of the diagonal: above 0 it lies above the main one"),
    field("dtype", &EyeAttributes::dtype, ""),
};

struct PositionsAttributes {
  Dims axes;
};
template <>
inline constexpr auto fields_of<PositionsAttributes> = std::tuple{
    field("axes", &PositionsAttributes::axes, "whose indices are given; may be negative; none: all"),
};

struct ShapeOfAttributes {
  bool counts = false;
};
template <>
inline constexpr auto fields_of<ShapeOfAttributes> = std::tuple{
    field("counts", &ShapeOfAttributes::counts, "the number of elements instead"),
};

}  // namespace shoal::worker
