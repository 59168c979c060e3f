// Reduce: sums, products and extremes over axes.
#pragma once

#include <vector>

#include "worker/graph/operators.hpp"

namespace shoal::worker {

namespace ops {
extern const Operator kReduce;
}  // namespace ops

enum class ReduceKind { kSum, kMean, kProd, kNanSum, kNanProd, kMax, kMin };
template <>
inline constexpr std::array kWords<ReduceKind>{"sum", "mean", "prod", "nansum", "nanprod", "max", "min"};
struct ReduceAttributes {
  ReduceKind kind = ReduceKind::kSum;
  Dims axes;
  bool keepdims = false;
  bool exclude = false;
};
template <>
inline constexpr auto fields_of<ReduceAttributes> = std::tuple{
    field("kind", &ReduceAttributes::kind, ""),
    field("axes", &ReduceAttributes::axes, "may be negative; none: all, with or without `exclude`"),
    field("keepdims", &ReduceAttributes::keepdims,
          "reduced axes stay with extent 1; else they are removed, and a full reduction has shape (1)"),
    field("exclude", &ReduceAttributes::exclude, "the axes that are not listed are reduced"),
};

/// Returns for each axis of the data whether it is reduced. infer() has checked the axes.
std::vector<bool> reduced_axes(const ReduceAttributes& reduce, int rank);

}  // namespace shoal::worker
