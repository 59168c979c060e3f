// TensorDot, Einsum: sums of products over named axes.
#pragma once

#include <optional>
#include <vector>

#include "worker/graph/operators.hpp"

namespace shoal::worker {

namespace ops {
extern const Operator kTensorDot, kEinsum;
}  // namespace ops

struct TensorDotAttributes {
  Dims axes_a, axes_b;
  std::optional<std::int64_t> count;
};
template <>
inline constexpr auto fields_of<TensorDotAttributes> = std::tuple{
    field("axes_a", &TensorDotAttributes::axes_a, "the axes of a over which the sum runs; may be negative"),
    field("axes_b", &TensorDotAttributes::axes_b, "those of b, in the same order"),
    field("count", &TensorDotAttributes::count, "instead: so many of the last axes of a, and of the first of b"),
};

/// The axes of the tensors before the named ones of an Einsum, which are broadcast.
inline constexpr std::int64_t kEllipsis = -1;
struct EinsumTerm {
  Dims labels;
};
template <>
inline constexpr auto fields_of<EinsumTerm> = std::tuple{
    field("labels", &EinsumTerm::labels, "a number for each axis; -1 stands for any number of axes"),
};
struct EinsumAttributes {
  std::vector<EinsumTerm> inputs;
  EinsumTerm output;
};
template <>
inline constexpr auto fields_of<EinsumAttributes> = std::tuple{
    field("inputs", &EinsumAttributes::inputs, "one for each input"),
    field("output", &EinsumAttributes::output, "the sum runs over the labels that are not here"),
};

}  // namespace shoal::worker
