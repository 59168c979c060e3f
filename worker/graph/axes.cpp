#include "worker/graph/axes.hpp"

#include <algorithm>

namespace shoal::worker {

AxisSlice resolve(const SliceRange& range, std::int64_t size) {
  const bool forward = range.step > 0;
  // Positions a slice may begin and end at: 0 to size going up, size - 1 to -1 going down.
  const std::int64_t least = forward ? 0 : -1, most = forward ? size : size - 1;
  const auto place = [&](std::optional<std::int64_t> at, std::int64_t missing) {
    if (!at) return missing;
    return std::clamp(*at < 0 ? *at + size : *at, least, most);
  };
  const std::int64_t begin = place(range.begin, forward ? least : most), end = place(range.end, forward ? most : least);
  const std::int64_t length = forward ? end - begin : begin - end;
  if (length <= 0) return {begin, 1, 0};
  const std::int64_t step = forward ? range.step : -std::max(range.step, -length);
  const std::int64_t count = (length - 1) / step + 1;
  return {begin, count == 1 ? 1 : range.step, count};
}

std::vector<bool> reduced_axes(const ReduceAttributes& reduce, const Shape& data) {
  const auto rank = static_cast<std::size_t>(data.rank());
  if (reduce.axes.empty()) return std::vector<bool>(rank, true);
  std::vector<bool> reduced(rank, reduce.exclude);
  for (const std::int64_t axis : reduce.axes) reduced[static_cast<std::size_t>(axis < 0 ? axis + data.rank() : axis)].flip();
  return reduced;
}

std::optional<Shape> slopes_along(const Shape& slopes, const Shape& data) {
  Shape laid = data;
  int next = slopes.rank() - 1;  // the extent to be placed
  for (int axis = data.rank() - 1; axis >= 0; --axis) {
    const bool fits = next >= 0 && axis <= 1 && (slopes[next] == data[axis] || slopes[next] == 1);
    laid[axis] = fits ? slopes[next--] : 1;
  }
  return next < 0 ? std::optional(laid) : std::nullopt;
}

}  // namespace shoal::worker
