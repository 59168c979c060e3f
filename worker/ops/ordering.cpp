// TopK, ArgExtreme: the order of elements.
#include "worker/ops/ordering.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "shm/base/errors.hpp"
#include "worker/graph/shapes.hpp"
#include "worker/ops/elements.hpp"
#include "worker/ops/ordering_functions.hpp"

namespace shoal::worker {
namespace {

/// The most elements whose indices the type can all hold.
std::int64_t most_indices(DType dtype) {
  std::int64_t most = 0;
  dispatch(Numbers(), dtype, [&]<typename T>() {
    if constexpr (!std::is_integral_v<T>)
      most = std::int64_t{1} << FloatLimits<T>::kDigits;
    else
      most = static_cast<std::int64_t>(
          std::min<std::uint64_t>(static_cast<std::uint64_t>(std::numeric_limits<T>::max()), std::uint64_t{1} << 62));
  });
  return most;
}

Status check_indices(const Node& node, const TypedValue& data, DType dtype, Dim size) {
  const std::int64_t most = most_indices(dtype);
  if (most > 0 && !known_less(most, size)) return {};
  return invalid_argument("{}: {} does not hold the indices of {} elements of '{}' ({})", describe(node), dtype_name(dtype),
                          size.to_string(), data.name, data.shape.to_string());
}

Status infer_top_k(const Node& node, SourceValues src, ResultValues dst) {
  const auto& top = node.attributes.get<TopKAttributes>();
  const TypedValue& data = src[0];
  SHOAL_RETURN_IF_ERROR(check_number(node, data));
  const bool has_values = top.result == TopKResult::kValues || top.result == TopKResult::kBoth;
  if (dst.size() != (has_values ? 2 : 1)) return invalid_argument("{}: it has {} results", describe(node), dst.size());
  SymbolicShape out = data.shape;
  int axis = 0;
  if (top.axis) {
    SHOAL_ASSIGN_OR_RETURN(axis, normalize_axis(node, *top.axis, data.shape));
  } else if (top.result != TopKResult::kMask) {
    out = SymbolicShape{data.shape.element_count()};
  }
  const Dim size = top.axis ? data.shape[axis] : data.shape.element_count();
  if (known_less(size, top.count)) {
    return invalid_argument("{}: '{}' ({}) has {} elements, fewer than {}", describe(node), data.name, data.shape.to_string(),
                            size.to_string(), top.count);
  }
  // With values alone the indices are a result, too, which may be read, but MXNet does not mind if they do not fit.
  if (top.result != TopKResult::kValues || most_indices(top.dtype) == 0)
    SHOAL_RETURN_IF_ERROR(check_indices(node, data, top.dtype, size));
  if (top.result == TopKResult::kMask) {
    set_result(dst[0], data.dtype, data.shape);
    return {};
  }
  if (top.count > 0) out[axis] = top.count;
  if (has_values) set_result(dst[0], data.dtype, out);
  set_result(dst.back(), top.dtype, out);
  return {};
}

Status infer_arg_extreme(const Node& node, SourceValues src, ResultValues dst) {
  const auto& extreme = node.attributes.get<ArgExtremeAttributes>();
  const TypedValue& data = src[0];
  SHOAL_RETURN_IF_ERROR(check_number(node, data));
  Sizes out;
  int axis = -1;
  if (extreme.axis) {
    SHOAL_ASSIGN_OR_RETURN(axis, normalize_axis(node, *extreme.axis, data.shape));
  }
  const Dim size = axis >= 0 ? data.shape[axis] : data.shape.element_count();
  for (int i = 0; i < data.shape.rank(); ++i) {
    const bool is_reduced = axis < 0 || i == axis;
    if (!is_reduced || extreme.keepdims) out.push_back(is_reduced ? Dim(1) : data.shape[i]);
  }
  if (out.empty() && !extreme.gives_scalars) out.push_back(1);
  const DType dtype = extreme.dtype.value_or(data.dtype);
  if (known_less(size, 1) || most_indices(dtype) == 0) {
    return invalid_argument("{}: '{}' ({}) has no element there, or {} holds no index", describe(node), data.name,
                            data.shape.to_string(), dtype_name(dtype));
  }
  set_result(dst[0], dtype, SymbolicShape(out));
  return {};
}

/// What TopK writes; null if nobody reads it.
struct TopKOutputs {
  std::byte *values = nullptr, *indices = nullptr, *mask = nullptr;
};

template <typename T, bool kAscending>
void top_k(const TensorView& data, const AxisView& rows, std::int64_t count, StoreIndex store, const TopKOutputs& to) {
  using C = Compute<T>;
  std::vector<Ranked<C>> row(static_cast<std::size_t>(rows.size));
  for (std::int64_t outer = 0; outer < rows.outer; ++outer) {
    for (std::int64_t inner = 0; inner < rows.inner; ++inner) {
      const std::int64_t first = outer * rows.size * rows.inner + inner, place = outer * count * rows.inner + inner;
      const T* const from = elements<T>(data) + first;
      for (std::int64_t i = 0; i < rows.size; ++i)
        row[static_cast<std::size_t>(i)] = {static_cast<C>(load_element_once(from + i * rows.inner)), i};
      std::partial_sort(row.begin(), row.begin() + count, row.end(), ComesBefore<C, kAscending>());
      for (std::int64_t i = 0; i < count; ++i) {
        const Ranked<C>& found = row[static_cast<std::size_t>(i)];
        if (to.values) reinterpret_cast<T*>(to.values)[place + i * rows.inner] = to_element<T>(found.value);
        if (to.indices) store(to.indices, place + i * rows.inner, found.index);
        if (to.mask) reinterpret_cast<T*>(to.mask)[first + found.index * rows.inner] = to_element<T>(C{1});
      }
    }
  }
}

Status compute_top_k(const Node& node, Sources src, Results dst) {
  const auto& top = node.attributes.get<TopKAttributes>();
  const AxisView rows = rows_along(top.axis, src[0].shape);
  const std::int64_t count = top.count > 0 ? top.count : rows.size;
  TopKOutputs to;
  if (top.result == TopKResult::kMask) {
    to.mask = dst[0].data;
    std::memset(to.mask, 0, dst[0].size_bytes());
  } else {
    to.indices = dst.back().data;
    if (dst.size() == 2) to.values = dst[0].data;
  }
  return dispatch<Numbers>(node, src[0].dtype, [&]<typename T>() {
    const auto run = top.ascending ? top_k<T, true> : top_k<T, false>;
    run(src[0], rows, count, index_store(top.dtype), to);
    return Status();
  });
}

/// The first NaN wins. Elements that are no better than the worst number there is are passed over: MXNet begins with that.
template <typename T>
std::int64_t extreme_of(const T* row, std::int64_t size, std::int64_t stride, bool lowest) {
  using C = Compute<T>;
  C best = worst<C>(lowest);
  std::int64_t index = 0;
  for (std::int64_t i = 0; i < size; ++i) {
    const C value = static_cast<C>(row[i * stride]);
    if (value != value) return i;
    if (!(lowest ? value < best : value > best)) continue;
    best = value;
    index = i;
  }
  return index;
}

Status compute_arg_extreme(const Node& node, Sources src, Results dst) {
  const auto& extreme = node.attributes.get<ArgExtremeAttributes>();
  const AxisView rows = rows_along(extreme.axis, src[0].shape);
  const StoreIndex store = index_store(dst[0].dtype);
  return dispatch<Numbers>(node, src[0].dtype, [&]<typename T>() {
    for (std::int64_t outer = 0; outer < rows.outer; ++outer) {
      for (std::int64_t inner = 0; inner < rows.inner; ++inner) {
        const T* const row = elements<T>(src[0]) + outer * rows.size * rows.inner + inner;
        store(dst[0].data, outer * rows.inner + inner, extreme_of(row, rows.size, rows.inner, extreme.lowest));
      }
    }
    return Status();
  });
}

bool top_k_rows(const BatchedNode& batched) {
  const auto& axis = batched.node.attributes.get<TopKAttributes>().axis;
  return axis && !batched.is_of_rows(*axis);
}

bool arg_extreme_rows(const BatchedNode& batched) {
  const auto& axis = batched.node.attributes.get<ArgExtremeAttributes>().axis;
  return axis && !batched.is_of_rows(*axis);
}

}  // namespace

namespace ops {

const Operator kTopK({
    .name = "TopK",
    .outputs = {1, 2},
    .attributes = &kSchema<TopKAttributes>,
    .infer = infer_top_k,
    .facts = layer_facts(top_k_rows, work_of_elements, Accuracy::kLost),
    .oracle = compute_top_k,
    .formula =
        "data: the first elements of each row when it is sorted, or their indices, or 1 at their places and 0 elsewhere. Equal "
        "elements keep their order, and NaN comes last",
    .source = "MXNet 1.9.1 src/operator/tensor/ordering_op-inl.h",
});

const Operator kArgExtreme({
    .name = "ArgExtreme",
    .attributes = &kSchema<ArgExtremeAttributes>,
    .infer = infer_arg_extreme,
    .facts = layer_facts(arg_extreme_rows, work_of_elements, Accuracy::kLost),
    .oracle = compute_arg_extreme,
    .formula = "data: the index of the highest or lowest element of each row, the first of several. The first NaN wins",
    .source = "MXNet 1.9.1 src/operator/tensor/broadcast_reduce_op_index.cc",
});

}  // namespace ops

}  // namespace shoal::worker
