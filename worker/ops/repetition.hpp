// Broadcast, Tile, Repeat: elements that occur several times.
#pragma once

#include <optional>

#include "worker/graph/operators.hpp"

namespace shoal::worker {

namespace ops {
extern const Operator kBroadcast, kTile, kRepeat;
}  // namespace ops

struct BroadcastAttributes {
  Dims axes, sizes, like_axes;
};
template <>
inline constexpr auto fields_of<BroadcastAttributes> = std::tuple{
    field("axes", &BroadcastAttributes::axes, "that get longer; may be negative; none: all"),
    field("sizes", &BroadcastAttributes::sizes,
          "with one input: of these axes. Without axes it is the shape of the result: more axes come first, and 0 keeps one"),
    field("like_axes", &BroadcastAttributes::like_axes, "of the second input, which have the sizes of `axes`"),
};

struct TileAttributes {
  Dims counts;
};
template <>
inline constexpr auto fields_of<TileAttributes> = std::tuple{
    field("counts", &TileAttributes::counts,
          "how often along each axis, the last axes if there are fewer; more add axes in front"),
};

struct RepeatAttributes {
  std::int64_t count = 1;
  std::optional<std::int64_t> axis;
};
template <>
inline constexpr auto fields_of<RepeatAttributes> = std::tuple{
    field("count", &RepeatAttributes::count, "how often each"),
    field("axis", &RepeatAttributes::axis, "may be negative; none: the data is one row of elements"),
};

/// The shape of the data with as many axes as the result: those in front have one element.
Shape with_axes_in_front(const Shape& shape, int rank);

}  // namespace shoal::worker
