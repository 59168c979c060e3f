// Variance, Average, Percentile, Histogram, PolyVal.
#include "worker/ops/statistics.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "shm/base/errors.hpp"
#include "worker/graph/shapes.hpp"
#include "worker/ops/binary_functions.hpp"
#include "worker/ops/elements.hpp"
#include "worker/ops/reduce.hpp"
#include "worker/ops/reduce_functions.hpp"

namespace shoal::worker {
namespace {

/// The shape that is left, and how many elements become one.
struct Reduced {
  Sizes sizes;
  Dim count = 1;
};
Result<Reduced> reduced(const Node& node, const TypedValue& data, const Dims& axes, bool keepdims) {
  std::vector<bool> goes(static_cast<std::size_t>(data.shape.rank()), axes.empty());
  for (const std::int64_t given : axes) {
    SHOAL_ASSIGN_OR_RETURN(const int axis, normalize_axis(node, given, data.shape));
    if (goes[static_cast<std::size_t>(axis)])
      return invalid_argument("{}: axis {} is listed twice ('{}' has shape {})", describe(node), given, data.name,
                              data.shape.to_string());
    goes[static_cast<std::size_t>(axis)] = true;
  }
  Reduced left;
  for (int axis = 0; axis < data.shape.rank(); ++axis) {
    const bool is_gone = goes[static_cast<std::size_t>(axis)];
    if (is_gone) left.count *= data.shape[axis];
    if (!is_gone || keepdims) left.sizes.push_back(is_gone ? Dim(1) : data.shape[axis]);
  }
  return left;
}

Status infer_variance(const Node& node, SourceValues src, ResultValues dst) {
  const auto& variance = node.attributes.get<VarianceAttributes>();
  SHOAL_RETURN_IF_ERROR(check_number(node, src[0]));
  SHOAL_ASSIGN_OR_RETURN(const Reduced left, reduced(node, src[0], variance.axes, variance.keepdims));
  if (known_less(left.count, variance.less))
    return invalid_argument("{}: '{}' of shape {} has fewer than {} elements there", describe(node), src[0].name,
                            src[0].shape.to_string(), variance.less);
  for (TypedValue& result : dst) set_result(result, src[0].dtype, SymbolicShape(left.sizes));
  return {};
}

bool has_line_of_weights(int data_rank, int weights_rank) { return weights_rank == 1 && data_rank != 1; }

Status infer_average(const Node& node, SourceValues src, ResultValues dst) {
  const auto& average = node.attributes.get<AverageAttributes>();
  const TypedValue &data = src[0], &weights = src[1];
  SHOAL_RETURN_IF_ERROR(check_number(node, data));
  SHOAL_RETURN_IF_ERROR(check_same_dtype(node, src));
  SHOAL_ASSIGN_OR_RETURN(const Reduced left, reduced(node, data, average.axes, false));
  const bool is_line = has_line_of_weights(data.shape.rank(), weights.shape.rank());
  if (is_line && average.axes.size() != 1)
    return invalid_argument("{}: weights '{}' of shape {} need one axis of '{}' ({})", describe(node), weights.name,
                            weights.shape.to_string(), data.name, data.shape.to_string());
  SHOAL_RETURN_IF_ERROR(check_shape(node, "weights", weights, is_line ? SymbolicShape{left.count} : data.shape));
  set_result(dst[0], data.dtype, SymbolicShape(left.sizes));
  set_result(dst[1], data.dtype, is_line ? SymbolicShape() : SymbolicShape(left.sizes));
  return {};
}

Status infer_percentile(const Node& node, SourceValues src, ResultValues dst) {
  const auto& percentile = node.attributes.get<PercentileAttributes>();
  const TypedValue& data = src[0];
  SHOAL_RETURN_IF_ERROR(check_number(node, data));
  SHOAL_ASSIGN_OR_RETURN(const Reduced left, reduced(node, data, percentile.axes, percentile.keepdims));
  if (known_less(left.count, 1))
    return invalid_argument("{}: '{}' of shape {} has no elements there", describe(node), data.name, data.shape.to_string());
  Sizes sizes;
  if (src.size() > 1) {
    SHOAL_RETURN_IF_ERROR(check_number(node, src[1]));
    SHOAL_RETURN_IF_ERROR(check_rank(node, src[1], 0, 1));
    sizes.assign(src[1].shape.begin(), src[1].shape.end());
  } else if (!(percentile.percent >= 0 && percentile.percent <= 100)) {
    return invalid_argument("{}: {} is not in 0 to 100", describe(node), percentile.percent);
  }
  sizes.insert(sizes.end(), left.sizes.begin(), left.sizes.end());
  SHOAL_ASSIGN_OR_RETURN(const SymbolicShape shape, make_shape(node, sizes));
  set_result(dst[0], data.dtype == DType::kFloat64 ? data.dtype : DType::kFloat32, shape);
  return {};
}

Status infer_histogram(const Node& node, SourceValues src, ResultValues dst) {
  const auto& histogram = node.attributes.get<HistogramAttributes>();
  SHOAL_RETURN_IF_ERROR(check_number(node, src[0]));
  Dim edges = histogram.count + 1;
  if (src.size() > 1) {
    SHOAL_RETURN_IF_ERROR(check_same_dtype(node, src));
    SHOAL_RETURN_IF_ERROR(check_rank(node, src[1], 1, 1));
    edges = src[1].shape[0];
  } else {
    SHOAL_RETURN_IF_ERROR(check_numbers(node, "count", {histogram.count}, 1));
    if (!(histogram.low < histogram.high) || !std::isfinite(histogram.high - histogram.low))
      return invalid_argument("{}: bins from {} to {} have no width, or an infinite one", describe(node), histogram.low,
                              histogram.high);
  }
  if (known_less(edges, 2)) return invalid_argument("{}: {} edges make no bin", describe(node), edges.to_string());
  set_result(dst[0], DType::kInt64, SymbolicShape{edges - Dim(1)});
  set_result(dst[1], src[0].dtype, SymbolicShape{edges});
  return {};
}

Status infer_poly_val(const Node& node, SourceValues src, ResultValues dst) {
  SHOAL_RETURN_IF_ERROR(check_number(node, src[0]));
  SHOAL_RETURN_IF_ERROR(check_same_dtype(node, src));
  SHOAL_RETURN_IF_ERROR(check_rank(node, src[0], 1, 1));
  set_result(dst[0], src[1].dtype, src[1].shape);
  return {};
}

/// Calls run(offset, number) for each group of elements that become one: the offset of the first, and those of the others from
/// it.
struct Groups {
  Shape kept, inner;
  Strides kept_strides{}, inner_strides{};

  Groups(const Shape& shape, const Dims& axes) {
    const std::vector<bool> goes = reduced_axes({.axes = axes}, shape.rank());
    const Strides own = row_major(shape);
    Dims kept_sizes, inner_sizes;
    for (int axis = 0; axis < shape.rank(); ++axis) {
      const auto at = static_cast<std::size_t>(axis);
      Dims& sizes = goes[at] ? inner_sizes : kept_sizes;
      (goes[at] ? inner_strides : kept_strides)[sizes.size()] = own[at];
      sizes.push_back(shape[axis]);
    }
    kept = Shape(kept_sizes);
    inner = Shape(inner_sizes);
  }

  template <typename Run>
  static void each(const Shape& shape, const Strides& strides, Run run) {
    const std::int64_t length = row_length(shape), stride = row_stride(shape, strides);
    each_row(shape, strides, [&](std::int64_t offset) {
      for (std::int64_t i = 0; i < length; ++i) run(offset + i * stride);
    });
  }
  template <typename Run>
  void each_group(Run run) const {
    std::int64_t number = 0;
    each(kept, kept_strides, [&](std::int64_t offset) { run(offset, number++); });
  }
  template <typename Run>
  void each_element(Run run) const {
    each(inner, inner_strides, run);
  }
};

Status compute_variance(const Node& node, Sources src, Results dst) {
  const auto& variance = node.attributes.get<VarianceAttributes>();
  const Groups groups(src[0].shape, variance.axes);
  return dispatch<Numbers>(node, src[0].dtype, [&]<typename T>() {
    using A = Accumulator<T>;
    const auto element = [&](std::int64_t at) { return static_cast<A>(static_cast<Compute<T>>(elements<T>(src[0])[at])); };
    const auto count = static_cast<A>(groups.inner.element_count()),
               by = static_cast<A>(groups.inner.element_count() - variance.less);
    groups.each_group([&](std::int64_t first, std::int64_t number) {
      A sum = 0, squares = 0;
      groups.each_element([&](std::int64_t at) { sum = wrapping(sum, element(first + at), std::plus<>()); });
      const A mean = quotient(sum, count);
      groups.each_element([&](std::int64_t at) {
        const A apart = wrapping(element(first + at), mean, std::minus<>());
        squares = wrapping(squares, wrapping(apart, apart, std::multiplies<>()), std::plus<>());
      });
      const A result = quotient(squares, by);
      const double root = std::sqrt(static_cast<double>(result));
      if (dst[0].data != nullptr) elements<T>(dst[0])[number] = variance.takes_root ? from_float<T>(root) : to_element<T>(result);
      if (dst[1].data != nullptr) elements<T>(dst[1])[number] = to_element<T>(mean);
    });
    return Status();
  });
}

Status compute_average(const Node& node, Sources src, Results dst) {
  const auto& average = node.attributes.get<AverageAttributes>();
  const Groups groups(src[0].shape, average.axes);
  const bool is_line = has_line_of_weights(src[0].shape.rank(), src[1].shape.rank());
  return dispatch<Numbers>(node, src[0].dtype, [&]<typename T>() {
    using A = Accumulator<T>;
    const auto element = [&](std::size_t input, std::int64_t at) {
      return static_cast<A>(static_cast<Compute<T>>(elements<T>(src[input])[at]));
    };
    if (is_line && dst[1].data != nullptr) {  // one sum, also of no data
      A weights = 0;
      for (std::int64_t i = 0, end = src[1].element_count(); i < end; ++i)
        weights = wrapping(weights, element(1, i), std::plus<>());
      elements<T>(dst[1])[0] = to_element<T>(weights);
    }
    groups.each_group([&](std::int64_t first, std::int64_t number) {
      A sum = 0, weights = 0;
      std::int64_t place = 0;
      groups.each_element([&](std::int64_t at) {
        const A weight = element(1, is_line ? place++ : first + at);
        sum = wrapping(sum, wrapping(element(0, first + at), weight, std::multiplies<>()), std::plus<>());
        weights = wrapping(weights, weight, std::plus<>());
      });
      if (dst[0].data != nullptr) elements<T>(dst[0])[number] = to_element<T>(quotient(sum, weights));
      if (dst[1].data != nullptr && !is_line) elements<T>(dst[1])[number] = to_element<T>(weights);
    });
    return Status();
  });
}

/// The element at that place of sorted numbers, 0 being the first.
double at_place(const std::vector<double>& sorted, double place, Interpolation interpolation) {
  const auto below = static_cast<std::size_t>(std::floor(place)), above = static_cast<std::size_t>(std::ceil(place));
  switch (interpolation) {
    case Interpolation::kLower:
      return sorted[below];
    case Interpolation::kHigher:
      return sorted[above];
    case Interpolation::kMidpoint:
      return (sorted[below] + sorted[above]) / 2;
    case Interpolation::kNearest:
      return sorted[static_cast<std::size_t>(std::round(place))];
    case Interpolation::kLinear:
      break;
  }
  return below == above ? sorted[below] : sorted[below] + (sorted[above] - sorted[below]) * (place - std::floor(place));
}

Status compute_percentile(const Node& node, Sources src, Results dst) {
  const auto& percentile = node.attributes.get<PercentileAttributes>();
  std::vector<double> percents{percentile.percent};
  if (src.size() > 1) {
    percents.clear();
    SHOAL_RETURN_IF_ERROR(dispatch<Numbers>(node, src[1].dtype, [&]<typename T>() {
      for (std::int64_t i = 0, end = src[1].element_count(); i < end; ++i)
        percents.push_back(static_cast<double>(static_cast<Compute<T>>(elements<T>(src[1])[i])));
      return Status();
    }));
  }
  for (const double percent : percents) {
    if (!(percent >= 0 && percent <= 100)) return invalid_argument("{}: {} is not in 0 to 100", describe(node), percent);
  }
  const Groups groups(src[0].shape, percentile.axes);
  const std::int64_t count = groups.kept.element_count();
  std::vector<double> sorted(static_cast<std::size_t>(groups.inner.element_count()));
  return dispatch<Numbers>(node, src[0].dtype, [&]<typename T>() {
    groups.each_group([&](std::int64_t first, std::int64_t number) {
      std::size_t next = 0;
      groups.each_element([&](std::int64_t at) {
        sorted[next++] = static_cast<double>(static_cast<Compute<T>>(elements<T>(src[0])[first + at]));
      });
      std::ranges::sort(sorted, [](double x, double y) { return std::isnan(y) ? !std::isnan(x) : x < y; });
      for (std::size_t i = 0; i < percents.size(); ++i) {
        const double last = static_cast<double>(sorted.size() - 1);
        const double place = std::min<double>(static_cast<float>(percents[i] * last / 100), last);
        const double found = at_place(sorted, place, percentile.interpolation);
        const auto to = static_cast<std::int64_t>(i) * count + number;
        if (dst[0].dtype == DType::kFloat64)
          elements<double>(dst[0])[to] = found;
        else
          elements<float>(dst[0])[to] = static_cast<float>(found);
      }
    });
    return Status();
  });
}

/// The bin of a number among edges that a tensor gives, the lowest first. A number on an edge is in the bin that begins there, or
/// in the last bin.
template <typename C>
std::int64_t bin_between(const std::vector<C>& edges, C x) {
  if (!(x >= edges.front() && x <= edges.back())) return -1;
  return std::upper_bound(edges.begin(), edges.end() - 1, x) - edges.begin() - 1;
}

/// The bin of a number among equally wide ones, as MXNet finds it: by its place, and then by the edges as the type holds them.
/// -1: none.
template <typename C>
std::int64_t bin_of(const HistogramAttributes& histogram, const std::vector<C>& edges, C x) {
  const auto number = static_cast<double>(x);
  if (!(number >= histogram.low && number <= histogram.high)) return -1;
  const auto count = static_cast<double>(histogram.count);
  double place = (number - histogram.low) * count / (histogram.high - histogram.low);
  if (!std::isfinite(place)) place = (number / 2 - histogram.low / 2) / (histogram.high / 2 - histogram.low / 2) * count;
  std::int64_t bin = std::clamp<std::int64_t>(static_cast<std::int64_t>(place), 0, histogram.count - 1);
  if (x < edges[static_cast<std::size_t>(bin)]) --bin;
  if (bin + 1 < histogram.count && x >= edges[static_cast<std::size_t>(bin + 1)]) ++bin;
  return bin;
}

Status compute_histogram(const Node& node, Sources src, Results dst) {
  const auto& histogram = node.attributes.get<HistogramAttributes>();
  const bool is_given = src.size() > 1;
  const std::int64_t bins = is_given ? src[1].element_count() - 1 : histogram.count;
  return dispatch<Numbers>(node, src[0].dtype, [&]<typename T>() {
    using C = Compute<T>;
    std::vector<C> edges;
    for (std::int64_t i = 0; i <= bins; ++i) {
      const double left = static_cast<double>(bins - i) * histogram.low, right = static_cast<double>(i) * histogram.high;
      edges.push_back(is_given ? static_cast<C>(load_element_once(elements<T>(src[1]) + i))
                               : static_cast<C>(from_float<T>((right + left) / static_cast<double>(bins))));
    }
    std::vector<std::int64_t> counts(static_cast<std::size_t>(bins));
    for (std::int64_t i = 0, end = src[0].element_count(); i < end; ++i) {
      const C x = static_cast<C>(load_element_once(elements<T>(src[0]) + i));
      const std::int64_t bin = is_given ? bin_between(edges, x) : bin_of(histogram, edges, x);
      if (bin >= 0) ++counts[static_cast<std::size_t>(bin)];
    }
    for (std::size_t i = 0; dst[0].data != nullptr && i < counts.size(); ++i) elements<std::int64_t>(dst[0])[i] = counts[i];
    for (std::size_t i = 0; dst[1].data != nullptr && i < edges.size(); ++i) elements<T>(dst[1])[i] = to_element<T>(edges[i]);
    return Status();
  });
}

Status compute_poly_val(const Node& node, Sources src, Results dst) {
  return dispatch<Numbers>(node, dst[0].dtype, [&]<typename T>() {
    using C = Compute<T>;
    return map<T>(src[1], dst[0], [&](C x) {
      C sum = 0;
      for (std::int64_t i = 0, end = src[0].element_count(); i < end; ++i)
        sum = wrapping(wrapping(sum, x, std::multiplies<>()), static_cast<C>(elements<T>(src[0])[i]), std::plus<>());
      return sum;
    });
  });
}

/// Are none of the axes the rows?
bool keeps_rows(const BatchedNode& batched, const Dims& axes) {
  return !axes.empty() && std::ranges::none_of(axes, [&](std::int64_t axis) { return batched.is_of_rows(axis); });
}
bool variance_rows(const BatchedNode& batched) {
  return keeps_rows(batched, batched.node.attributes.get<VarianceAttributes>().axes);
}
/// The percents come first in the result.
bool percentile_rows(const BatchedNode& batched) {
  return batched.node.inputs.size() == 1 && keeps_rows(batched, batched.node.attributes.get<PercentileAttributes>().axes);
}
bool poly_val_rows(const BatchedNode& batched) { return batched.has_rows_in(1) && !batched.has_rows_in(0); }

}  // namespace

namespace ops {

const Operator kVariance({
    .name = "Variance",
    .outputs = 2,
    .attributes = &kSchema<VarianceAttributes>,
    .infer = infer_variance,
    .facts = layer_facts(variance_rows, work_of_elements, Accuracy::kLost),
    .oracle = compute_variance,
    .formula =
        "data: the mean squared distance from the mean over axes, or its root, and the mean. Of integers all is computed in "
        "their type",
    .source = "MXNet 1.9.1 src/operator/numpy/np_broadcast_reduce_op.h",
});

const Operator kAverage({
    .name = "Average",
    .inputs = 2,
    .outputs = 2,
    .attributes = &kSchema<AverageAttributes>,
    .infer = infer_average,
    .constant_types = ConstantTypes::kAsData,
    .facts = layer_facts(rows_mixed, work_of_elements, Accuracy::kLost),
    .oracle = compute_average,
    .formula =
        "data, weights, of its shape or one for each index of the axis: the sum of products divided by the sum of weights, "
        "and that sum. A line of weights has one sum",
    .source = "MXNet 1.9.1 src/operator/numpy/np_broadcast_reduce_op.h",
});

const Operator kPercentile({
    .name = "Percentile",
    .inputs = {1, 2},
    .attributes = &kSchema<PercentileAttributes>,
    .infer = infer_percentile,
    .facts = layer_facts(percentile_rows, work_of_pairs, Accuracy::kLost),
    .oracle = compute_percentile,
    .formula =
        "data, [percents, a number or a vector]: the element at that place when the elements over axes are sorted, for each "
        "of the percents. float64 for float64, else float32",
    .source = "MXNet 1.9.1 src/operator/numpy/np_percentile_op-inl.h",
});

const Operator kHistogram({
    .name = "Histogram",
    .inputs = {1, 2},
    .outputs = 2,
    .attributes = &kSchema<HistogramAttributes>,
    .infer = infer_histogram,
    .constant_types = ConstantTypes::kAsData,
    .facts = layer_facts(rows_mixed, work_of_pairs, Accuracy::kLost),
    .oracle = compute_histogram,
    .formula = "data, [edges (n + 1)]: how many elements lie in each of n bins, as int64, and the edges of the bins",
    .source = "MXNet 1.9.1 src/operator/tensor/histogram-inl.h",
});

const Operator kPolyVal({
    .name = "PolyVal",
    .inputs = 2,
    .infer = infer_poly_val,
    .constant_types = ConstantTypes::kAsData,
    .facts = layer_facts(poly_val_rows, work_of_pairs, Accuracy::kLost),
    .oracle = compute_poly_val,
    .formula = "p (n), x: p[0] x^(n-1) + ... + p[n-1] for each element of x",
    .source = "MXNet 1.9.1 src/operator/numpy/np_polynomial_op-inl.h",
});

}  // namespace ops

}  // namespace shoal::worker
