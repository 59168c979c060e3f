// MoveAxes, Roll, Delete, SliceAssign.
#include "worker/ops/rearrangement.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "shm/base/errors.hpp"
#include "worker/graph/shapes.hpp"
#include "worker/ops/elements.hpp"
#include "worker/ops/movement.hpp"

namespace shoal::worker {
namespace {

/// The axis of the data that becomes each axis of the result.
Result<std::vector<int>> moved_axes(const Node& node, const SymbolicShape& shape) {
  const auto& move = node.attributes.get<MoveAxesAttributes>();
  const auto rank = static_cast<std::size_t>(shape.rank());
  if (move.source.size() != move.destination.size())
    return invalid_argument("{}: {} axes move to {} places", describe(node), move.source.size(), move.destination.size());
  std::vector<int> from(rank, -1);
  std::vector<bool> moves(rank);
  for (std::size_t i = 0; i < move.source.size(); ++i) {
    SHOAL_ASSIGN_OR_RETURN(const int source, normalize_axis(node, move.source[i], shape));
    SHOAL_ASSIGN_OR_RETURN(const int place, normalize_axis(node, move.destination[i], shape));
    if (moves[static_cast<std::size_t>(source)] || from[static_cast<std::size_t>(place)] >= 0)
      return invalid_argument("{}: axes {} to {} name an axis twice", describe(node), to_text(move.source),
                              to_text(move.destination));
    moves[static_cast<std::size_t>(source)] = true;
    from[static_cast<std::size_t>(place)] = source;
  }
  std::size_t next = 0;
  for (int& axis : from) {
    if (axis >= 0) continue;
    while (moves[next]) ++next;
    axis = static_cast<int>(next++);
  }
  return from;
}

Status infer_move_axes(const Node& node, SourceValues src, ResultValues dst) {
  SHOAL_ASSIGN_OR_RETURN(const std::vector<int> from, moved_axes(node, src[0].shape));
  Sizes sizes;
  for (const int axis : from) sizes.push_back(src[0].shape[axis]);
  set_result(dst[0], src[0].dtype, SymbolicShape(sizes));
  return {};
}

Status infer_roll(const Node& node, SourceValues src, ResultValues dst) {
  const auto& roll = node.attributes.get<RollAttributes>();
  if (roll.axes.empty() ? roll.shifts.size() != 1 : roll.shifts.size() != 1 && roll.shifts.size() != roll.axes.size())
    return invalid_argument("{}: {} shifts for axes {}", describe(node), roll.shifts.size(), to_text(roll.axes));
  for (const std::int64_t axis : roll.axes) SHOAL_RETURN_IF_ERROR(normalize_axis(node, axis, src[0].shape).status());
  set_result(dst[0], src[0].dtype, src[0].shape);
  return {};
}

Status infer_delete(const Node& node, SourceValues src, ResultValues dst) {
  const auto& gone = node.attributes.get<DeleteAttributes>();
  const TypedValue& data = src[0];
  SymbolicShape out = gone.axis ? data.shape : SymbolicShape{data.shape.element_count()};
  int axis = 0;
  if (gone.axis) {
    SHOAL_ASSIGN_OR_RETURN(axis, normalize_axis(node, *gone.axis, data.shape));
  }
  if (gone.step == 0) return invalid_argument("{}: step is 0", describe(node));
  const Dim size = out[axis];
  if (gone.index) {
    const std::int64_t index = *gone.index;
    if (known_less(size, index < 0 ? Dim(0) - index : Dim(index + 1)))
      return invalid_argument("{}: index {} lies outside axis {} of '{}' ({})", describe(node), index, axis, data.name,
                              data.shape.to_string());
    out[axis] = size - Dim(1);
  } else {
    out[axis] = size - slice_count({.begin = gone.begin, .end = gone.end, .step = gone.step}, size);
  }
  set_result(dst[0], data.dtype, out);
  return {};
}

/// The second input has the shape of the slice, or is a scalar.
Status infer_slice_assign(const Node& node, SourceValues src, ResultValues dst) {
  SHOAL_RETURN_IF_ERROR(check_same_dtype(node, src));
  TypedValue part{.name = "the slice"};
  SHOAL_RETURN_IF_ERROR(ops::kSlice.infer(node, src.first(1), {&part, 1}));
  if (src[1].shape.rank() > 0) SHOAL_RETURN_IF_ERROR(check_shape(node, "slice", src[1], part.shape));
  set_result(dst[0], src[0].dtype, src[0].shape);
  return {};
}

Status compute_move_axes(const Node& node, Sources src, Results dst) {
  copy_strided(src[0], 0, moved_strides(node, src[0].shape), dst[0]);
  return {};
}

/// Each row of the last axis is two ranges of the row from which it comes.
Status compute_roll(const Node& node, Sources src, Results dst) {
  const auto& roll = node.attributes.get<RollAttributes>();
  Dims sizes(src[0].shape.begin(), src[0].shape.end());
  if (roll.axes.empty()) sizes = {src[0].shape.element_count()};
  if (sizes.empty()) sizes = {1};
  Dims shifts(sizes.size());
  for (std::size_t i = 0; i < std::max<std::size_t>(1, roll.axes.size()); ++i) {
    const auto axis = roll.axes.empty() ? 0 : static_cast<std::size_t>(positive_axis(roll.axes[i], src[0].shape));
    const std::int64_t size = sizes[axis], shift = roll.shifts[roll.shifts.size() == 1 ? 0 : i] % size;
    shifts[axis] = (shifts[axis] + shift + size) % size;
  }
  const std::size_t bytes = dtype_size_bytes(dst[0].dtype), length = static_cast<std::size_t>(sizes.back()) * bytes,
                    head = static_cast<std::size_t>(shifts.back()) * bytes;
  for (std::int64_t row = 0, rows = dst[0].element_count() / sizes.back(); row < rows; ++row) {
    std::int64_t rest = row, source = 0, stride = 1;
    for (std::size_t axis = sizes.size() - 1; axis-- > 0;) {
      const std::int64_t size = sizes[axis], at = (rest % size - shifts[axis] + size) % size;
      source += at * stride;
      stride *= size;
      rest /= size;
    }
    const std::byte* const from = src[0].data + static_cast<std::size_t>(source) * length;
    std::byte* const to = dst[0].data + static_cast<std::size_t>(row) * length;
    std::memcpy(to, from + length - head, head);
    std::memcpy(to + head, from, length - head);
  }
  return {};
}

Status compute_delete(const Node& node, Sources src, Results dst) {
  const auto& gone = node.attributes.get<DeleteAttributes>();
  const Shape flat{src[0].shape.element_count()};
  const Shape& shape = gone.axis ? src[0].shape : flat;
  const AxisView view(shape, gone.axis ? positive_axis(*gone.axis, shape) : 0);
  AxisSlice part = resolve({.begin = gone.begin, .end = gone.end, .step = gone.step}, view.size);
  if (gone.index) part = {*gone.index < 0 ? *gone.index + view.size : *gone.index, 1, 1};
  std::vector<bool> goes(static_cast<std::size_t>(view.size));
  for (std::int64_t i = 0; i < part.count; ++i) goes[static_cast<std::size_t>(part.begin + i * part.step)] = true;
  const std::size_t bytes = static_cast<std::size_t>(view.inner) * dtype_size_bytes(dst[0].dtype);
  const std::byte* from = src[0].data;
  std::byte* to = dst[0].data;
  for (std::int64_t outer = 0; outer < view.outer; ++outer) {
    for (std::int64_t i = 0; i < view.size; ++i, from += bytes) {
      if (goes[static_cast<std::size_t>(i)]) continue;
      std::memcpy(to, from, bytes);
      to += bytes;
    }
  }
  return {};
}

Status compute_slice_assign(const Node& node, Sources src, Results dst) {
  const Strides own = row_major(dst[0].shape);
  Strides strides = own, from_strides{};
  Dims sizes(dst[0].shape.begin(), dst[0].shape.end());
  std::int64_t first = 0;
  for (const SliceRange& range : node.attributes.get<SliceAttributes>().ranges) {
    const auto axis = static_cast<std::size_t>(positive_axis(range.axis, dst[0].shape));
    const AxisSlice part = resolve(range, sizes[axis]);
    first += part.begin * own[axis];
    strides[axis] = own[axis] * part.step;
    sizes[axis] = part.count;
  }
  const Shape shape(sizes);
  if (src[1].shape.rank() > 0) from_strides = row_major(shape);
  std::memcpy(dst[0].data, src[0].data, dst[0].size_bytes());
  const std::int64_t length = row_length(shape), step = row_stride(shape, strides),
                     from_step = src[1].shape.rank() > 0 ? row_stride(shape, from_strides) : 0;
  with_word(dst[0].dtype, [&]<typename Word>() {
    each_row(shape, std::array{strides, from_strides}, [&](const std::array<std::int64_t, 2>& offsets) {
      Word* const to = elements<Word>(dst[0]) + first + offsets[0];
      const Word* const from = elements<Word>(src[1]) + offsets[1];
      for (std::int64_t i = 0; i < length; ++i) to[i * step] = from[i * from_step];
    });
  });
  return {};
}

bool move_axes_rows(const BatchedNode& batched) {
  const auto& move = batched.node.attributes.get<MoveAxesAttributes>();
  const auto is_first = [&](std::int64_t axis) { return batched.is_of_rows(axis); };
  return std::ranges::none_of(move.source, is_first) && std::ranges::none_of(move.destination, is_first);
}

bool roll_rows(const BatchedNode& batched) {
  const auto& axes = batched.node.attributes.get<RollAttributes>().axes;
  return !axes.empty() && std::ranges::none_of(axes, [&](std::int64_t axis) { return batched.is_of_rows(axis); });
}

bool delete_rows(const BatchedNode& batched) {
  const auto axis = batched.node.attributes.get<DeleteAttributes>().axis;
  return axis && !batched.is_of_rows(*axis);
}

bool slice_assign_rows(const BatchedNode& batched) {
  const auto& ranges = batched.node.attributes.get<SliceAttributes>().ranges;
  const bool is_scalar = batched.graph.value(batched.node.inputs[1]).shape.rank() == 0;
  return batched.has_rows_in(0) && batched.has_rows_in(1) != is_scalar &&
         std::ranges::none_of(ranges, [&](const SliceRange& range) { return batched.is_of_rows(range.axis); });
}

constexpr const char* kMatrixOpSource = "MXNet 1.9.1 src/operator/numpy/np_matrix_op-inl.h";

}  // namespace

Strides moved_strides(const Node& node, const Shape& data) {
  const std::vector<int> from = moved_axes(node, data).value();
  const Strides own = row_major(data);
  Strides strides{};
  for (std::size_t axis = 0; axis < from.size(); ++axis) strides[axis] = own[static_cast<std::size_t>(from[axis])];
  return strides;
}

namespace ops {

const Operator kMoveAxes({
    .name = "MoveAxes",
    .attributes = &kSchema<MoveAxesAttributes>,
    .infer = infer_move_axes,
    .facts = view_facts(move_axes_rows),
    .oracle = compute_move_axes,
    .formula = "data with some axes in other places",
    .source = kMatrixOpSource,
});

const Operator kRoll({
    .name = "Roll",
    .attributes = &kSchema<RollAttributes>,
    .infer = infer_roll,
    .facts = layer_facts(roll_rows, work_of_elements, Accuracy::kLost),
    .oracle = compute_roll,
    .formula = "data: element i moves to i + shift, around the axis",
    .source = kMatrixOpSource,
});

const Operator kDelete({
    .name = "Delete",
    .attributes = &kSchema<DeleteAttributes>,
    .infer = infer_delete,
    .facts = layer_facts(delete_rows, work_of_elements, Accuracy::kLost),
    .oracle = compute_delete,
    .formula = "data without an index or a range of an axis",
    .source = "MXNet 1.9.1 src/operator/numpy/np_delete_op-inl.h",
});

const Operator kSliceAssign({
    .name = "SliceAssign",
    .inputs = 2,
    .attributes = &kSchema<SliceAttributes>,
    .infer = infer_slice_assign,
    .constant_types = ConstantTypes::kAsData,
    .facts = layer_facts(slice_assign_rows, work_of_elements, Accuracy::kLost),
    .oracle = compute_slice_assign,
    .formula = "data, part: data with the part in place of a slice. A scalar stands in all its places",
    .source = "MXNet 1.9.1 src/operator/tensor/matrix_op-inl.h",
});

}  // namespace ops

}  // namespace shoal::worker
