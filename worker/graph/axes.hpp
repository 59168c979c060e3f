// What attributes say of the axes of data whose shape is known: for the shape rules and for every kernel.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "shoal/tensor.hpp"
#include "worker/graph/attributes.hpp"

namespace shoal::worker {

/// The part of an axis that a Slice takes: `count` elements from `begin`, `step` apart.
struct AxisSlice {
  std::int64_t begin = 0, step = 1, count = 0;
};
/// What `range` takes of an axis of `size`; count 0 when nothing is left.
AxisSlice resolve(const SliceRange& range, std::int64_t size);

/// Per axis of the data: is it reduced? The axes have been checked by infer().
std::vector<bool> reduced_axes(const ReduceAttributes& reduce, const Shape& data);

/// The slopes of a PReLU as they lie along the axes of the data: extents on axes 0 and 1, 1 elsewhere. As MXNet fits them: the
/// last extent goes to axis 1 if it is that long (or 1), else to axis 0. Nothing when they do not fit.
std::optional<Shape> slopes_along(const Shape& slopes, const Shape& data);

}  // namespace shoal::worker
