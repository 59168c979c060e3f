// Reduce: sums, products, extremes and norms over axes. CumSum: running sums.
#pragma once

#include <optional>
#include <vector>

#include "worker/graph/operators.hpp"
#include "worker/graph/promotion.hpp"

namespace shoal::worker {

namespace ops {
extern const Operator kReduce, kCumSum;
}  // namespace ops

enum class ReduceKind {
  kSum,
  kMean,
  kProd,
  kNanSum,
  kNanProd,
  kMax,
  kMin,
  kNorm1,  ///< the sum of |x|
  kNorm2,  ///< the root of the sum of x^2
};
template <>
inline constexpr std::array kWords<ReduceKind>{"sum", "mean", "prod", "nansum", "nanprod", "max", "min", "norm1", "norm2"};
struct ReduceAttributes {
  ReduceKind kind = ReduceKind::kSum;
  Dims axes;
  bool keepdims = false;
  bool exclude = false;
  bool gives_scalars = false;
  bool floats_only = false;
  bool nothing_is_zero = false;
  Promotion promotion = Promotion::kNone;
};
template <>
inline constexpr auto fields_of<ReduceAttributes> = std::tuple{
    field("kind", &ReduceAttributes::kind, ""),
    field("axes", &ReduceAttributes::axes, "may be negative; none: all, with or without `exclude`"),
    field("keepdims", &ReduceAttributes::keepdims,
          "reduced axes stay with extent 1; else they are removed, and a full reduction has shape (1)"),
    field("exclude", &ReduceAttributes::exclude, "the axes that are not listed are reduced"),
    field("gives_scalars", &ReduceAttributes::gives_scalars, "a full reduction without `keepdims` is a scalar"),
    field("floats_only", &ReduceAttributes::floats_only, "integers are refused"),
    field("nothing_is_zero", &ReduceAttributes::nothing_is_zero,
          "the result of no elements is 0, also that of a product or a mean"),
    field("promotion", &ReduceAttributes::promotion, "what the data becomes, as of Binary"),
};

struct CumSumAttributes {
  std::optional<std::int64_t> axis;
  Promotion promotion = Promotion::kNone;
};
template <>
inline constexpr auto fields_of<CumSumAttributes> = std::tuple{
    field("axis", &CumSumAttributes::axis, "along which the sums run; none: over all elements in their order, as one axis"),
    field("promotion", &CumSumAttributes::promotion, "what the data becomes, as of Binary"),
};

/// Returns for each axis of the data whether it is reduced. infer() has checked the axes.
std::vector<bool> reduced_axes(const ReduceAttributes& reduce, int rank);

}  // namespace shoal::worker
