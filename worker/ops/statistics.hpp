// Variance, Average, Percentile, Histogram, PolyVal.
#pragma once

#include <optional>

#include "worker/graph/operators.hpp"

namespace shoal::worker {

namespace ops {
extern const Operator kVariance, kAverage, kPercentile, kHistogram, kPolyVal;
}  // namespace ops

struct VarianceAttributes {
  Dims axes;
  bool keepdims = false;
  std::int64_t less = 0;
  bool takes_root = false;
};
template <>
inline constexpr auto fields_of<VarianceAttributes> = std::tuple{
    field("axes", &VarianceAttributes::axes, "may be negative; none: all"),
    field("keepdims", &VarianceAttributes::keepdims, "these axes stay with extent 1; else they are removed"),
    field("less", &VarianceAttributes::less, "the sum of squares is divided by the number of elements less this one"),
    field("takes_root", &VarianceAttributes::takes_root, "the first result is the root"),
};

struct AverageAttributes {
  Dims axes;
};
template <>
inline constexpr auto fields_of<AverageAttributes> = std::tuple{
    field("axes", &AverageAttributes::axes, "may be negative; none: all. They are removed"),
};

/// What stands for a place between two elements.
enum class Interpolation { kLinear, kLower, kHigher, kMidpoint, kNearest };
template <>
inline constexpr std::array kWords<Interpolation>{"linear", "lower", "higher", "midpoint", "nearest"};
struct PercentileAttributes {
  Dims axes;
  bool keepdims = false;
  Interpolation interpolation = Interpolation::kLinear;
  double percent = 50;
};
template <>
inline constexpr auto fields_of<PercentileAttributes> = std::tuple{
    field("axes", &PercentileAttributes::axes, "may be negative; none: all"),
    field("keepdims", &PercentileAttributes::keepdims, "these axes stay with extent 1; else they are removed"),
    field("interpolation", &PercentileAttributes::interpolation, "of a place between two elements; nearest: halves up"),
    field("percent", &PercentileAttributes::percent, "without a second input: the place, from 0 to 100"),
};

struct HistogramAttributes {
  std::int64_t count = 1;
  double low = 0, high = 1;
};
template <>
inline constexpr auto fields_of<HistogramAttributes> = std::tuple{
    field("count", &HistogramAttributes::count, "without a second input: how many bins, all of one width"),
    field("low", &HistogramAttributes::low, "where the first one begins"),
    field("high", &HistogramAttributes::high, "where the last one ends"),
};

}  // namespace shoal::worker
