// Resolves attributes against the axes of data whose shape is known. Used by shape rules and kernels.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "shoal/tensor.hpp"
#include "worker/graph/attributes.hpp"

namespace shoal::worker {

/// The part of an axis that a Slice takes: `count` elements from `begin`, `step` apart. The step of a single element is 1,
/// because kernels multiply it by strides, and the file may contain any step.
struct AxisSlice {
  std::int64_t begin = 0, step = 1, count = 0;
};
/// The part that `range` takes of an axis of `size`. Its count is 0 when the range is empty.
AxisSlice resolve(const SliceRange& range, std::int64_t size);

/// Returns for each axis of the data whether it is reduced. infer() has checked the axes.
std::vector<bool> reduced_axes(const ReduceAttributes& reduce, const Shape& data);

/// The shape of a PReLU's slopes with the axes of the data: the extents on axes 0 and 1, and 1 on the others. As in MXNet, the
/// last extent belongs to axis 1 if it is as long as that axis (or 1), otherwise to axis 0. Empty when the slopes do not fit.
std::optional<Shape> slopes_along(const Shape& slopes, const Shape& data);

}  // namespace shoal::worker
