// MoveAxes, Roll, Delete, SliceAssign: NumPy's ways to arrange elements that depend on how many axes the data has.
#pragma once

#include <optional>

#include "worker/graph/operators.hpp"
#include "worker/ops/elements.hpp"

namespace shoal::worker {

namespace ops {
extern const Operator kMoveAxes, kRoll, kDelete;
extern const Operator kSliceAssign;  ///< has SliceAttributes
}  // namespace ops

struct MoveAxesAttributes {
  Dims source, destination;
};
template <>
inline constexpr auto fields_of<MoveAxesAttributes> = std::tuple{
    field("source", &MoveAxesAttributes::source, "the axes that move; may be negative"),
    field("destination", &MoveAxesAttributes::destination, "their places in the result; the other axes keep their order"),
};

/// The distance in the data between neighbors along each axis of the result of a MoveAxes. infer() has checked the node.
Strides moved_strides(const Node& node, const Shape& data);

struct RollAttributes {
  Dims shifts, axes;
};
template <>
inline constexpr auto fields_of<RollAttributes> = std::tuple{
    field("shifts", &RollAttributes::shifts, "one, or one for each axis"),
    field("axes", &RollAttributes::axes, "may be negative; none: the data is one row of elements"),
};

struct DeleteAttributes {
  std::optional<std::int64_t> axis, index, begin, end;
  std::int64_t step = 1;
};
template <>
inline constexpr auto fields_of<DeleteAttributes> = std::tuple{
    field("axis", &DeleteAttributes::axis, "may be negative; none: the data is one row of elements"),
    field("index", &DeleteAttributes::index, "the only one that goes; may be negative"),
    field("begin", &DeleteAttributes::begin, "without `index`: the range that goes, as of Slice"),
    field("end", &DeleteAttributes::end, ""),
    field("step", &DeleteAttributes::step, ""),
};

}  // namespace shoal::worker
