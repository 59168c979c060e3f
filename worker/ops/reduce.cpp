// Reduce: sums, products, extremes and norms over axes. CumSum: running sums.
#include "worker/ops/reduce.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "shm/base/errors.hpp"
#include "worker/graph/shapes.hpp"
#include "worker/ops/elements.hpp"
#include "worker/ops/reduce_functions.hpp"

namespace shoal::worker {
namespace {

Status infer_reduce(const Node& node, SourceValues src, ResultValues dst) {
  const auto& reduce = node.attributes.get<ReduceAttributes>();
  const TypedValue& data = src[0];
  SHOAL_RETURN_IF_ERROR(check_number(node, data));
  if (reduce.floats_only) SHOAL_RETURN_IF_ERROR(check_float(node, data));
  std::vector<bool> listed(static_cast<std::size_t>(data.shape.rank()));
  for (const std::int64_t given : reduce.axes) {
    SHOAL_ASSIGN_OR_RETURN(const int axis, normalize_axis(node, given, data.shape));
    if (listed[static_cast<std::size_t>(axis)]) {
      return invalid_argument("{}: axis {} is listed twice ('{}' has shape {})", describe(node), given, data.name,
                              data.shape.to_string());
    }
    listed[static_cast<std::size_t>(axis)] = true;
  }
  const std::vector<bool> reduced = reduced_axes(reduce, data.shape.rank());
  Sizes out;
  for (int axis = 0; axis < data.shape.rank(); ++axis) {
    if (!reduced[static_cast<std::size_t>(axis)]) {
      out.push_back(data.shape[axis]);
    } else if (reduce.keepdims) {
      out.push_back(1);
    }
  }
  if (out.empty() && !reduce.gives_scalars) out.push_back(1);
  set_result(dst[0], data.dtype, SymbolicShape(out));
  return {};
}

void promote_reduce(const Node& node, std::span<DType> types) {
  promote_all(node.attributes.get<ReduceAttributes>().promotion, types);
}
void promote_cum_sum(const Node& node, std::span<DType> types) {
  promote_all(node.attributes.get<CumSumAttributes>().promotion, types);
}

template <typename A>
struct Fold {
  A start;
  A (*step)(A so_far, A x);
};

template <typename A>
Fold<A> fold_of(ReduceKind kind) {
  return with_fold<A>(kind, [](A start, auto step, auto) { return Fold<A>{start, step}; });
}

/// The axes of the data in two groups (kept and reduced), each with its strides in the data.
struct Lot {
  Dims dims;
  Strides strides{};
  Shape shape() const { return Shape(dims); }
  void add(std::int64_t dim, std::int64_t stride) {
    strides[dims.size()] = stride;
    dims.push_back(dim);
  }
};

template <typename T>
void reduce(ReduceKind kind, const Lot& kept, const Lot& reduced, const T* src, T* dst) {
  using A = Accumulator<T>;
  const Fold<A> fold = fold_of<A>(kind);
  const Shape outer = kept.shape(), inner = reduced.shape();
  const std::int64_t outer_length = row_length(outer), outer_stride = row_stride(outer, kept.strides), length = row_length(inner),
                     stride = row_stride(inner, reduced.strides);
  const auto value_of = [&](const T* first) {
    const auto each = [&](auto use) {
      each_row(inner, reduced.strides, [&](std::int64_t offset) {
        for (std::int64_t i = 0; i < length; ++i) use(static_cast<A>(static_cast<Compute<T>>(first[offset + i * stride])));
      });
    };
    if constexpr (std::is_integral_v<T>) {
      if (kind == ReduceKind::kNorm2) {
        IntegerNorm<T> norm;
        each([&](A x) { norm.add(x); });
        return norm.result();
      }
    }
    A value = fold.start;
    each([&](A x) { value = fold.step(value, x); });
    return result_of(kind, value, inner.element_count());
  };
  each_row(outer, kept.strides, [&](std::int64_t offset) {
    for (std::int64_t i = 0; i < outer_length; ++i) *dst++ = to_element<T>(value_of(src + offset + i * outer_stride));
  });
}

Status compute_reduce(const Node& node, Sources src, Results dst) {
  const auto& attributes = node.attributes.get<ReduceAttributes>();
  const Shape& shape = src[0].shape;
  if (attributes.nothing_is_zero && shape.element_count() == 0) {
    std::memset(dst[0].data, 0, static_cast<std::size_t>(dst[0].size_bytes()));
    return {};
  }
  const std::vector<bool> is_reduced = reduced_axes(attributes, shape.rank());
  const Strides strides = row_major(shape);
  Lot kept, reduced;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    const auto k = static_cast<std::size_t>(axis);
    (is_reduced[k] ? reduced : kept).add(shape[axis], strides[k]);
  }
  return dispatch<Numbers>(node, src[0].dtype, [&]<typename T>() {
    reduce<T>(attributes.kind, kept, reduced, elements<T>(src[0]), elements<T>(dst[0]));
    return Status();
  });
}

Status infer_cum_sum(const Node& node, SourceValues src, ResultValues dst) {
  const TypedValue& data = src[0];
  SHOAL_RETURN_IF_ERROR(check_number(node, data));
  const auto axis = node.attributes.get<CumSumAttributes>().axis;
  if (axis) SHOAL_RETURN_IF_ERROR(normalize_axis(node, *axis, data.shape).status());
  set_result(dst[0], data.dtype, axis ? data.shape : SymbolicShape{data.shape.element_count()});
  return {};
}

Status compute_cum_sum(const Node& node, Sources src, Results dst) {
  const auto axis = node.attributes.get<CumSumAttributes>().axis;
  const AxisView view(dst[0].shape, axis ? positive_axis(*axis, dst[0].shape) : 0);
  return dispatch<Numbers>(node, src[0].dtype, [&]<typename T>() {
    for (std::int64_t line = 0; line < view.outer * view.inner; ++line) {
      const std::int64_t first = line / view.inner * view.size * view.inner + line % view.inner;
      running_sum(elements<T>(src[0]) + first, elements<T>(dst[0]) + first, view.size, view.inner);
    }
    return Status();
  });
}

bool cum_sum_rows(const BatchedNode& batched) {
  const auto axis = batched.node.attributes.get<CumSumAttributes>().axis;
  return batched.only_first_has_rows() && axis && !batched.is_of_rows(*axis);
}

bool reduce_rows(const BatchedNode& batched) {
  const auto& reduce = batched.node.attributes.get<ReduceAttributes>();
  const bool lists_rows = std::ranges::any_of(reduce.axes, [&](std::int64_t axis) { return batched.is_of_rows(axis); });
  return !reduce.axes.empty() && lists_rows == reduce.exclude;
}

}  // namespace

std::vector<bool> reduced_axes(const ReduceAttributes& reduce, int rank) {
  const auto count = static_cast<std::size_t>(rank);
  if (reduce.axes.empty()) return std::vector<bool>(count, true);
  std::vector<bool> reduced(count, reduce.exclude);
  for (const std::int64_t axis : reduce.axes) reduced[static_cast<std::size_t>(axis < 0 ? axis + rank : axis)].flip();
  return reduced;
}

namespace ops {

const Operator kReduce({
    .name = "Reduce",
    .attributes = &kSchema<ReduceAttributes>,
    .infer = infer_reduce,
    .promote = promote_reduce,
    .facts = layer_facts(reduce_rows, work_of_elements, Accuracy::kLost),
    .oracle = compute_reduce,
    .formula =
        "data: the sum, mean, product, maximum, minimum or norm over axes. nansum and nanprod leave NaN out. norm1 is the sum "
        "of |x|, norm2 the root of the sum of x^2. For integers norm2 is the largest |x|, times the root of how often it came "
        "since "
        "it was first found; the mean divides by the count cut to their type",
    .source = "MXNet 1.9.1 src/operator/tensor/broadcast_reduce_op.h",
});

const Operator kCumSum({
    .name = "CumSum",
    .attributes = &kSchema<CumSumAttributes>,
    .infer = infer_cum_sum,
    .promote = promote_cum_sum,
    .facts = layer_facts(cum_sum_rows, work_of_elements, Accuracy::kLost),
    .oracle = compute_cum_sum,
    .formula = "data: each element becomes the sum of those up to it. Integers wrap",
    .source = "MXNet 1.9.1 src/operator/numpy/np_cumsum-inl.h",
});

}  // namespace ops

}  // namespace shoal::worker
