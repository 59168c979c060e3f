// TopK, ArgExtreme: the order of elements.
#pragma once

#include <optional>

#include "worker/graph/operators.hpp"

namespace shoal::worker {

namespace ops {
extern const Operator kTopK, kArgExtreme;
}  // namespace ops

enum class TopKResult { kValues, kIndices, kBoth, kMask };
template <>
inline constexpr std::array kWords<TopKResult>{"values", "indices", "both", "mask"};
struct TopKAttributes {
  std::optional<std::int64_t> axis;
  std::int64_t count = 0;
  bool ascending = false;
  TopKResult result = TopKResult::kIndices;
  DType dtype = DType::kFloat32;
};
template <>
inline constexpr auto fields_of<TopKAttributes> = std::tuple{
    field("axis", &TopKAttributes::axis, "may be negative; none: the data is one row of elements"),
    field("count", &TopKAttributes::count, "how many elements of a row; below 1: all, which sorts them"),
    field("ascending", &TopKAttributes::ascending, "the lowest come first"),
    field("result", &TopKAttributes::result, "`values` and `both` have two outputs, values and indices"),
    field("dtype", &TopKAttributes::dtype, "of the indices"),
};

struct ArgExtremeAttributes {
  bool lowest = false;
  std::optional<std::int64_t> axis;
  bool keepdims = false;
  std::optional<DType> dtype;
  bool gives_scalars = false;
};
template <>
inline constexpr auto fields_of<ArgExtremeAttributes> = std::tuple{
    field("lowest", &ArgExtremeAttributes::lowest, "of the lowest element, not the highest"),
    field("axis", &ArgExtremeAttributes::axis, "may be negative; none: the data is one row of elements"),
    field("keepdims", &ArgExtremeAttributes::keepdims,
          "the axis stays with extent 1; else it is removed, and if none is left the shape is (1)"),
    field("dtype", &ArgExtremeAttributes::dtype, "of the indices; none: that of the data"),
    field("gives_scalars", &ArgExtremeAttributes::gives_scalars, "if no axis is left, the result is a scalar"),
};

}  // namespace shoal::worker
