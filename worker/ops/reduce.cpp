// Reduce: sums, products and extremes over axes.
#include "worker/ops/reduce.hpp"

#include <algorithm>
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
  if (out.empty()) out.push_back(1);
  set_result(dst[0], data.dtype, SymbolicShape(out));
  return {};
}

template <typename A>
struct Fold {
  A start;
  A (*step)(A so_far, A x);
};

template <typename A>
Fold<A> fold_of(ReduceKind kind) {
  return with_fold<A>(kind, [](A start, auto step) { return Fold<A>{start, step}; });
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
    A value = fold.start;
    each_row(inner, reduced.strides, [&](std::int64_t offset) {
      const T* from = first + offset;
      for (std::int64_t i = 0; i < length; ++i)
        value = fold.step(value, static_cast<A>(static_cast<Compute<T>>(from[i * stride])));
    });
    return kind == ReduceKind::kMean ? mean_of(value, inner.element_count()) : value;
  };
  each_row(outer, kept.strides, [&](std::int64_t offset) {
    for (std::int64_t i = 0; i < outer_length; ++i) *dst++ = to_element<T>(value_of(src + offset + i * outer_stride));
  });
}

Status compute_reduce(const Node& node, Sources src, Results dst) {
  const auto& attributes = node.attributes.get<ReduceAttributes>();
  const Shape& shape = src[0].shape;
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
    .facts = layer_facts(reduce_rows),
    .oracle = compute_reduce,
    .formula = "data: the sum, mean, product, maximum or minimum over axes. nansum and nanprod leave NaN out",
    .source = "MXNet 1.9.1 src/operator/tensor/broadcast_reduce_op.h",
});

}  // namespace ops

}  // namespace shoal::worker
