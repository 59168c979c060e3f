// Transpose, SwapAxes, Slice, SliceLike, Split, Pad, Concat. They treat all types of one size alike.
#include "worker/ops/movement.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "shm/base/errors.hpp"
#include "shm/base/ranges.hpp"
#include "worker/graph/shapes.hpp"
#include "worker/ops/elements.hpp"

namespace shoal::worker {
namespace {

Status infer_transpose(const Node& node, SourceValues src, ResultValues dst) {
  const Dims& axes = node.attributes.get<TransposeAttributes>().axes;
  const SymbolicShape& data = src[0].shape;
  SymbolicShape out = data;
  if (axes.empty()) {
    Sizes dims(data.begin(), data.end());
    std::reverse(dims.begin(), dims.end());
    out = SymbolicShape(dims);
  } else {
    Dims sorted = axes;
    std::sort(sorted.begin(), sorted.end());
    bool permutes = static_cast<int>(axes.size()) == data.rank();
    for (std::size_t i = 0; permutes && i < sorted.size(); ++i) permutes = sorted[i] == static_cast<std::int64_t>(i);
    if (!permutes) {
      return invalid_argument("{}: axes {} are no permutation of the {} axes of '{}' ({})", describe(node), to_text(axes),
                              data.rank(), src[0].name, data.to_string());
    }
    for (int i = 0; i < data.rank(); ++i) out[i] = data[static_cast<int>(axes[static_cast<std::size_t>(i)])];
  }
  set_result(dst[0], src[0].dtype, out);
  return {};
}

Status infer_swap_axes(const Node& node, SourceValues src, ResultValues dst) {
  const auto& swap = node.attributes.get<SwapAxesAttributes>();
  SymbolicShape out = src[0].shape;
  SHOAL_ASSIGN_OR_RETURN(const int first, normalize_axis(node, swap.first, out));
  SHOAL_ASSIGN_OR_RETURN(const int second, normalize_axis(node, swap.second, out));
  std::swap(out[first], out[second]);
  set_result(dst[0], src[0].dtype, out);
  return {};
}

Status infer_slice(const Node& node, SourceValues src, ResultValues dst) {
  const auto& slice = node.attributes.get<SliceAttributes>();
  const TypedValue& data = src[0];
  SymbolicShape out = data.shape;
  std::vector<bool> listed(static_cast<std::size_t>(data.shape.rank()));
  for (const SliceRange& range : slice.ranges) {
    SHOAL_ASSIGN_OR_RETURN(const int axis, normalize_axis(node, range.axis, data.shape));
    if (listed[static_cast<std::size_t>(axis)]) {
      return invalid_argument("{}: axis {} is listed twice ('{}' has shape {})", describe(node), range.axis, data.name,
                              data.shape.to_string());
    }
    listed[static_cast<std::size_t>(axis)] = true;
    if (range.step == 0) return invalid_argument("{}: step of axis {} is 0", describe(node), axis);
    const Dim size = data.shape[axis], begin = range.begin.value_or(0), end = range.end ? Dim(*range.end) : size;
    const bool misses =
        known_less(begin + size, 0) || known_less(size, begin + 1) || known_less(end + size, 0) || known_less(size, end);
    if (!slice.clips && misses) {
      return invalid_argument("{}: begin {} or end {} lies outside axis {} of '{}' ({})", describe(node), begin.to_string(),
                              end.to_string(), axis, data.name, data.shape.to_string());
    }
    out[axis] = slice_count(range, size);
    if (!slice.may_be_empty && out[axis] == 0) {
      return invalid_argument("{}: nothing is left of axis {} of '{}' ({})", describe(node), axis, data.name,
                              data.shape.to_string());
    }
  }
  set_result(dst[0], data.dtype, out);
  return {};
}

/// Along the axis that is split.
Dim size_of_part(const SplitAttributes& split, Dim size, std::int64_t part) {
  if (split.uneven) return floor_div(size + (split.parts - 1 - part), split.parts);
  if (split.starts.empty()) return floor_div(size, split.parts);
  const auto next = static_cast<std::size_t>(part) + 1;
  const Dim end = next < split.starts.size() ? Dim(split.starts[next]) : size;
  return (known_less(size, end) ? size : end) - split.starts[next - 1];
}

Status infer_split(const Node& node, SourceValues src, ResultValues dst) {
  const auto& split = node.attributes.get<SplitAttributes>();
  const TypedValue& data = src[0];
  SHOAL_ASSIGN_OR_RETURN(const int axis, normalize_axis(node, split.axis_of(data.shape.rank()), data.shape));
  const Dim size = data.shape[axis];
  const bool is_equal = split.starts.empty() && !split.uneven;
  if (split.parts < 1 || (is_equal && known_indivisible(size, split.parts))) {
    return invalid_argument("{}: axis {} of '{}' ({}) cannot be cut into {} equal parts", describe(node), axis, data.name,
                            data.shape.to_string(), split.parts);
  }
  const bool has_starts = std::cmp_equal(split.starts.size(), split.parts) && !split.uneven && split.starts[0] == 0;
  if (!std::cmp_equal(dst.size(), split.parts) || (!split.starts.empty() && !has_starts)) {
    return invalid_argument("{}: {} results and starts {} for {} parts", describe(node), dst.size(), to_text(split.starts),
                            split.parts);
  }
  for (std::size_t i = 0; i < dst.size(); ++i) {
    Sizes out(data.shape.begin(), data.shape.end());
    Dim& part = out[static_cast<std::size_t>(axis)];
    part = size_of_part(split, size, static_cast<std::int64_t>(i));
    if (!is_equal && known_less(part, 1)) {
      return invalid_argument("{}: part {} of axis {} of '{}' ({}) has {} elements", describe(node), i, axis, data.name,
                              data.shape.to_string(), part.to_string());
    }
    if (split.squeeze) {
      if (known_unequal(part, 1) || out.size() == 1) {
        return invalid_argument("{}: axis {} of '{}' ({}) is {} long in each of {} parts; it cannot be squeezed away",
                                describe(node), axis, data.name, data.shape.to_string(), part.to_string(), split.parts);
      }
      out.erase(out.begin() + axis);
    }
    set_result(dst[i], data.dtype, SymbolicShape(out));
  }
  return {};
}

Status infer_slice_like(const Node& node, SourceValues src, ResultValues dst) {
  const Dims& axes = node.attributes.get<SliceLikeAttributes>().axes;
  const TypedValue &data = src[0], &like = src[1];
  if (axes.empty() && data.shape.rank() != like.shape.rank()) {
    return invalid_argument("{}: without axes '{}' ({}) and '{}' ({}) must have equally many", describe(node), data.name,
                            data.shape.to_string(), like.name, like.shape.to_string());
  }
  SymbolicShape out = data.shape;
  const auto cut = [&](std::int64_t given) -> Status {
    SHOAL_ASSIGN_OR_RETURN(const int axis, normalize_axis(node, given, data.shape));
    if (axis >= like.shape.rank()) {
      return invalid_argument("{}: '{}' ({}) has no axis {}", describe(node), like.name, like.shape.to_string(), axis);
    }
    out[axis] = like.shape[axis];
    if (!known_less(data.shape[axis], out[axis])) return {};
    return invalid_argument("{}: axis {} of '{}' ({}) is shorter than that of '{}' ({})", describe(node), given, data.name,
                            data.shape.to_string(), like.name, like.shape.to_string());
  };
  for (int axis = 0; axes.empty() && axis < out.rank(); ++axis) SHOAL_RETURN_IF_ERROR(cut(axis));
  for (const std::int64_t axis : axes) SHOAL_RETURN_IF_ERROR(cut(axis));
  set_result(dst[0], data.dtype, out);
  return {};
}

Status infer_pad(const Node& node, SourceValues src, ResultValues dst) {
  const auto& pad = node.attributes.get<PadAttributes>();
  const TypedValue& data = src[0];
  SHOAL_RETURN_IF_ERROR(check_number(node, data));
  if (!pad.as_numpy) SHOAL_RETURN_IF_ERROR(check_rank(node, data, 4, 5));
  if (pad.as_numpy) SHOAL_RETURN_IF_ERROR(check_rank(node, data, 1));
  SymbolicShape out = data.shape;
  if (pad.widths.size() != static_cast<std::size_t>(2 * out.rank())) {
    return invalid_argument("{}: pad_width has {} entries; '{}' of shape {} needs {}", describe(node), pad.widths.size(),
                            data.name, data.shape.to_string(), 2 * out.rank());
  }
  SHOAL_RETURN_IF_ERROR(check_numbers(node, "pad_width", pad.widths, 0));
  for (int axis = 0; axis < out.rank(); ++axis) {
    const std::int64_t before = pad.widths[static_cast<std::size_t>(2 * axis)],
                       behind = pad.widths[static_cast<std::size_t>(2 * axis + 1)];
    const std::int64_t border = std::max(before, behind);
    const bool repeats = pad.as_numpy || pad.mode == PadMode::kEdge;
    const std::int64_t needed = border == 0 || pad.mode == PadMode::kConstant ? 0 : repeats ? 1 : border + 1;
    if (known_less(out[axis], needed)) {
      return invalid_argument("{}: pad_width {} of axis {}; '{}' of shape {} has too few elements there to {}", describe(node),
                              border, axis, data.name, data.shape.to_string(), pad.mode == PadMode::kEdge ? "repeat" : "reflect");
    }
    out[axis] += before + behind;
  }
  set_result(dst[0], data.dtype, out);
  return {};
}

Status infer_concat(const Node& node, SourceValues src, ResultValues dst) {
  SHOAL_RETURN_IF_ERROR(check_same_dtype(node, src));
  SymbolicShape out = src[0].shape;
  SHOAL_ASSIGN_OR_RETURN(const int axis, normalize_axis(node, node.attributes.get<ConcatAttributes>().axis_of(out.rank()), out));
  for (std::size_t i = 1; i < src.size(); ++i) {
    const SymbolicShape& piece = src[i].shape;
    bool fits = piece.rank() == out.rank();
    for (int k = 0; fits && k < out.rank(); ++k) fits = k == axis || unify(piece[k], out[k]);
    if (!fits) {
      return invalid_argument("{}: '{}' has shape {} and '{}' has {}; they may differ only in axis {}", describe(node),
                              src[0].name, src[0].shape.to_string(), src[i].name, piece.to_string(), axis);
    }
    out[axis] += piece[axis];
    if (known_less(kMaxElements, out[axis])) {
      return invalid_argument("{}: its {} inputs together are longer than {} along axis {}", describe(node), src.size(),
                              kMaxElements, axis);
    }
  }
  set_result(dst[0], src[0].dtype, out);
  return {};
}

void promote_concat(const Node& node, std::span<DType> types) {
  promote_all(node.attributes.get<ConcatAttributes>().promotion, types);
}

/// Offsets into the data of every position along a padded axis; -1 where the constant stands.
std::vector<std::int64_t> padded_offsets(const PadAttributes& pad, const Shape& src, const Shape& dst, int axis) {
  const std::int64_t before = pad.widths[static_cast<std::size_t>(2 * axis)], stride = AxisView(src, axis).inner;
  std::vector<std::int64_t> offsets;
  for (std::int64_t i = 0; i < dst[axis]; ++i) {
    const std::int64_t from = padded_source(pad.mode, i - before, src[axis]);
    offsets.push_back(from < 0 ? -1 : from * stride);
  }
  return offsets;
}

Status compute_transpose(const Node& node, Sources src, Results dst) {
  const Dims& axes = node.attributes.get<TransposeAttributes>().axes;
  const Strides own = row_major(src[0].shape);
  Strides strides{};
  const auto rank = static_cast<std::size_t>(src[0].shape.rank());
  for (std::size_t i = 0; i < rank; ++i) strides[i] = own[axes.empty() ? rank - 1 - i : static_cast<std::size_t>(axes[i])];
  copy_strided(src[0], 0, strides, dst[0]);
  return {};
}

Status compute_swap_axes(const Node& node, Sources src, Results dst) {
  const auto& swap = node.attributes.get<SwapAxesAttributes>();
  const auto axis = [&](std::int64_t given) { return static_cast<std::size_t>(positive_axis(given, src[0].shape)); };
  Strides strides = row_major(src[0].shape);
  std::swap(strides[axis(swap.first)], strides[axis(swap.second)]);
  copy_strided(src[0], 0, strides, dst[0]);
  return {};
}

Status compute_slice(const Node& node, Sources src, Results dst) {
  Strides strides = row_major(src[0].shape);
  std::int64_t first = 0;
  for (const SliceRange& range : node.attributes.get<SliceAttributes>().ranges) {
    const int axis = positive_axis(range.axis, src[0].shape);
    const AxisSlice part = resolve(range, src[0].shape[axis]);
    first += part.begin * strides[static_cast<std::size_t>(axis)];
    strides[static_cast<std::size_t>(axis)] *= part.step;
  }
  copy_strided(src[0], first, strides, dst[0]);
  return {};
}

Status compute_split(const Node& node, Sources src, Results dst) {
  const AxisView whole(src[0].shape,
                       positive_axis(node.attributes.get<SplitAttributes>().axis_of(src[0].shape.rank()), src[0].shape));
  const std::byte* from = src[0].data;
  for (std::size_t outer = 0; outer < static_cast<std::size_t>(whole.outer); ++outer) {
    for (TensorView& part : dst) {
      const std::size_t bytes = part.size_bytes() / static_cast<std::size_t>(whole.outer);
      if (part.data) std::memcpy(part.data + outer * bytes, from, bytes);
      from += bytes;
    }
  }
  return {};
}

Status compute_slice_like(const Node&, Sources src, Results dst) {
  copy_strided(src[0], 0, row_major(src[0].shape), dst[0]);
  return {};
}

Status compute_pad(const Node& node, Sources src, Results dst) {
  const auto& pad = node.attributes.get<PadAttributes>();
  const Shape &from = src[0].shape, &to = dst[0].shape;
  std::vector<std::vector<std::int64_t>> offsets;  // by axis
  for (int axis = 0; axis < to.rank(); ++axis) offsets.push_back(padded_offsets(pad, from, to, axis));
  return dispatch<Numbers>(node, src[0].dtype, [&]<typename T>() {
    const T value = from_float<T>(pad.value);
    const T* const data = elements<T>(src[0]);
    T* out = elements<T>(dst[0]);
    // The positions themselves are what each_row() counts here.
    std::array<Strides, kMaxRank> one_per_axis{};
    for (std::size_t axis = 0; axis < offsets.size(); ++axis) one_per_axis[axis][axis] = 1;
    each_row(to, one_per_axis, [&](const std::array<std::int64_t, kMaxRank>& position) {
      std::int64_t row = 0;
      for (std::size_t axis = 0; axis + 1 < offsets.size(); ++axis) {
        const std::int64_t offset = offsets[axis][static_cast<std::size_t>(position[axis])];
        row = row < 0 || offset < 0 ? -1 : row + offset;
      }
      for (const std::int64_t offset : offsets.back()) *out++ = row < 0 || offset < 0 ? value : data[row + offset];
    });
    return Status();
  });
}

Status compute_concat(const Node& node, Sources src, Results dst) {
  const int axis = positive_axis(node.attributes.get<ConcatAttributes>().axis_of(dst[0].shape.rank()), dst[0].shape);
  const AxisView whole(dst[0].shape, axis);
  std::byte* to = dst[0].data;
  for (std::int64_t outer = 0; outer < whole.outer; ++outer) {
    for (const TensorView& piece : src) {
      const std::size_t bytes = piece.size_bytes() / static_cast<std::size_t>(whole.outer);
      std::memcpy(to, piece.data + static_cast<std::size_t>(outer) * bytes, bytes);
      to += bytes;
    }
  }
  return {};
}

bool transpose_rows(const BatchedNode& batched) {
  const Dims& axes = batched.node.attributes.get<TransposeAttributes>().axes;
  return !axes.empty() && batched.is_of_rows(axes[0]);
}

bool swap_axes_rows(const BatchedNode& batched) {
  const auto& swap = batched.node.attributes.get<SwapAxesAttributes>();
  return !batched.is_of_rows(swap.first) && !batched.is_of_rows(swap.second);
}

bool slice_rows(const BatchedNode& batched) {
  const auto& ranges = batched.node.attributes.get<SliceAttributes>().ranges;
  return std::ranges::none_of(ranges, [&](const SliceRange& range) { return batched.is_of_rows(range.axis); });
}

bool split_rows(const BatchedNode& batched) {
  return !batched.is_of_rows(batched.node.attributes.get<SplitAttributes>().axis_of(batched.rank()));
}

/// The rows of two batches may differ in number, so they are not cut.
bool slice_like_rows(const BatchedNode& batched) {
  const Dims& axes = batched.node.attributes.get<SliceLikeAttributes>().axes;
  return batched.has_rows_in(0) && !axes.empty() &&
         std::ranges::none_of(axes, [&](std::int64_t axis) { return batched.is_of_rows(axis); });
}

bool pad_rows(const BatchedNode& batched) {
  const Dims& widths = batched.node.attributes.get<PadAttributes>().widths;
  return widths.size() >= 2 && widths[0] == 0 && widths[1] == 0;
}

bool concat_rows(const BatchedNode& batched) {
  return !batched.is_of_rows(batched.node.attributes.get<ConcatAttributes>().axis_of(batched.rank()));
}

}  // namespace

std::int64_t padded_source(PadMode mode, std::int64_t position, std::int64_t size) {
  if (position >= 0 && position < size) return position;
  switch (mode) {
    case PadMode::kConstant:
      return -1;
    case PadMode::kEdge:
      return position < 0 ? 0 : size - 1;
    case PadMode::kReflect: {
      if (size == 1) return 0;
      const std::int64_t period = 2 * (size - 1), within = ((position % period) + period) % period;
      return within < size ? within : period - within;
    }
    case PadMode::kSymmetric: {
      const std::int64_t period = 2 * size, within = ((position % period) + period) % period;
      return within < size ? within : period - 1 - within;
    }
  }
  return -1;
}

namespace {

/// Where a slice begins and ends. These lie within 0 to size going up, and size - 1 to -1 going down.
struct SliceEnds {
  Dim begin, end;
};

SliceEnds ends_of(const SliceRange& range, Dim size) {
  const bool forward = range.step > 0;
  const Dim least = forward ? 0 : -1, most = forward ? size : size - 1;
  const auto place = [&](std::optional<std::int64_t> at, Dim missing) {
    return at ? max(least, min(*at < 0 ? size + *at : *at, most)) : missing;
  };
  return {place(range.begin, forward ? least : most), place(range.end, forward ? most : least)};
}

}  // namespace

Dim slice_count(const SliceRange& range, Dim size) {
  const auto [begin, end] = ends_of(range, size);
  return max(0, range.step > 0 ? ceil_div(end - begin, range.step) : ceil_div(begin - end, 0 - Dim(range.step)));
}

AxisSlice resolve(const SliceRange& range, std::int64_t size) {
  const std::int64_t count = slice_count(range, size).number();
  return {ends_of(range, size).begin.number(), count > 1 ? range.step : 1, count};
}

namespace ops {

const Operator kTranspose({
    .name = "Transpose",
    .attributes = &kSchema<TransposeAttributes>,
    .infer = infer_transpose,
    .facts = view_facts(transpose_rows),
    .oracle = compute_transpose,
    .formula = "data with its axes in another order",
    .source = "MXNet 1.9.1 src/operator/tensor/matrix_op-inl.h",
});

const Operator kSwapAxes({
    .name = "SwapAxes",
    .attributes = &kSchema<SwapAxesAttributes>,
    .infer = infer_swap_axes,
    .facts = view_facts(swap_axes_rows),
    .oracle = compute_swap_axes,
    .formula = "data with two axes swapped",
    .source = "MXNet 1.9.1 src/operator/swapaxis-inl.h",
});

const Operator kSlice({
    .name = "Slice",
    .attributes = &kSchema<SliceAttributes>,
    .infer = infer_slice,
    .facts = view_facts(slice_rows),
    .oracle = compute_slice,
    .formula = "data: a range of each listed axis",
    .source = "MXNet 1.9.1 src/operator/tensor/matrix_op-inl.h",
});

const Operator kSliceLike({
    .name = "SliceLike",
    .inputs = 2,
    .attributes = &kSchema<SliceLikeAttributes>,
    .infer = infer_slice_like,
    .facts = with_shape_inputs(view_facts(slice_like_rows), 1),
    .oracle = compute_slice_like,
    .formula = "data, like: the front of data, as long as `like` along each listed axis",
    .source = "MXNet 1.9.1 src/operator/tensor/matrix_op-inl.h",
});

const Operator kSplit({
    .name = "Split",
    .outputs = {1, Arity::kAny},
    .attributes = &kSchema<SplitAttributes>,
    .infer = infer_split,
    .facts = view_facts(split_rows),
    .oracle = compute_split,
    .formula = "data in parts along an axis, one per output",
    .source = "MXNet 1.9.1 src/operator/slice_channel-inl.h, tensor/matrix_op-inl.h",
});

const Operator kPad({
    .name = "Pad",
    .attributes = &kSchema<PadAttributes>,
    .infer = infer_pad,
    .facts = layer_facts(pad_rows, work_of_elements, Accuracy::kLost),
    .oracle = compute_pad,
    .formula = "data with a border",
    .source = "MXNet 1.9.1 src/operator/pad.cc",
});

const Operator kConcat({
    .name = "Concat",
    .inputs = {1, Arity::kAny},
    .attributes = &kSchema<ConcatAttributes>,
    .infer = infer_concat,
    .constant_types = ConstantTypes::kAsData,
    .promote = promote_concat,
    .facts = layer_facts(concat_rows, work_of_elements, Accuracy::kKept),
    .oracle = compute_concat,
    .formula = "any number of inputs, one behind the other along an axis",
    .source = "MXNet 1.9.1 src/operator/nn/concat.cc",
});

}  // namespace ops

}  // namespace shoal::worker
