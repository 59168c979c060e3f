// Identity, Flatten, Reshape, ReshapeLike, ExpandDims, Squeeze, AtLeast: the same elements in the same order.
#pragma once

#include <optional>

#include "worker/graph/operators.hpp"

namespace shoal::worker {

namespace ops {
extern const Operator kIdentity, kFlatten, kReshape, kReshapeLike, kExpandDims, kSqueeze, kAtLeast;
}  // namespace ops

struct ReshapeAttributes {
  Dims shape;
  bool reverse = false;
  bool legacy_target = false;
  bool keep_highest = false;
  bool as_numpy = false;
};
template <>
inline constexpr auto fields_of<ReshapeAttributes> = std::tuple{
    field("shape", &ReshapeAttributes::shape, "MXNet's codes (0, -1, -2, -3, -4), of which ONNX's are a part"),
    field("reverse", &ReshapeAttributes::reverse, "the codes count from the last axis"),
    field("legacy_target", &ReshapeAttributes::legacy_target, "`shape` is target_shape of old files: a single 0 is inferred"),
    field("keep_highest", &ReshapeAttributes::keep_highest, "the first axis of target_shape is the data's"),
    field(
        "as_numpy", &ReshapeAttributes::as_numpy,
        "0 is a size, and the codes are those of MXNet's NumPy interface: -2 copies an axis, -3 leaves out one of 1 element, -4 "
        "copies the rest, -5 merges two, -6 splits one"),
};

struct ReshapeLikeAttributes {
  std::optional<std::int64_t> begin, end, like_begin, like_end;
};
template <>
inline constexpr auto fields_of<ReshapeLikeAttributes> = std::tuple{
    field("begin", &ReshapeLikeAttributes::begin, "the first axis of the data that is replaced; may be negative"),
    field("end", &ReshapeLikeAttributes::end, "the axis behind the last one"),
    field("like_begin", &ReshapeLikeAttributes::like_begin, "the first axis of the other input that is taken instead"),
    field("like_end", &ReshapeLikeAttributes::like_end, "the axis behind the last one"),
};

struct ExpandDimsAttributes {
  Dims axes;
};
template <>
inline constexpr auto fields_of<ExpandDimsAttributes> = std::tuple{
    field("axes", &ExpandDimsAttributes::axes, "places of the new axes in the result; may be negative"),
};

struct SqueezeAttributes {
  Dims axes;
  bool gives_scalars = false;
};
template <>
inline constexpr auto fields_of<SqueezeAttributes> = std::tuple{
    field("axes", &SqueezeAttributes::axes, "may be negative; none: all that have one element"),
    field("gives_scalars", &SqueezeAttributes::gives_scalars,
          "if no axis is left, the result is a scalar; else it has shape (1)"),
};

struct AtLeastAttributes {
  int axes = 1;
  bool is_column = false;
};
template <>
inline constexpr auto fields_of<AtLeastAttributes> = std::tuple{
    field("axes", &AtLeastAttributes::axes, "at most 3"),
    field("is_column", &AtLeastAttributes::is_column, "for two axes: a vector becomes a column, not a row"),
};

}  // namespace shoal::worker
