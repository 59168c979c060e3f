// Operators that move elements. They treat all types of one size alike.
#include <cstring>
#include <vector>

#include "worker/exec/reference/elements.hpp"
#include "worker/exec/reference/kernels.hpp"
#include "worker/graph/axes.hpp"

namespace shoal::worker {
namespace {

/// Calls run.operator()<Word>() with an unsigned type as large as one element.
template <typename Run>
void with_word(DType dtype, Run&& run) {
  switch (dtype_size_bytes(dtype)) {
    case 1:
      return run.template operator()<std::uint8_t>();
    case 2:
      return run.template operator()<std::uint16_t>();
    case 4:
      return run.template operator()<std::uint32_t>();
    default:
      return run.template operator()<std::uint64_t>();
  }
}

/// dst[position] = src[first + sum of position * strides].
void gather(const TensorView& src, std::int64_t first, const Strides& strides, TensorView& dst) {
  const std::int64_t length = row_length(dst.shape), stride = row_stride(dst.shape, strides);
  with_word(dst.dtype, [&]<typename Word>() {
    Word* to = elements<Word>(dst);
    each_row(dst.shape, strides, [&](std::int64_t offset) {
      const Word* const from = elements<Word>(src) + first + offset;
      for (std::int64_t i = 0; i < length; ++i) *to++ = from[i * stride];
    });
  });
}

/// The data element at `position` of a padded axis of `size` (0 is the first data element); -1: the constant.
std::int64_t padded_source(PadMode mode, std::int64_t position, std::int64_t size) {
  if (position >= 0 && position < size) return position;
  switch (mode) {
    case PadMode::kConstant:
      return -1;
    case PadMode::kEdge:
      return position < 0 ? 0 : size - 1;
    case PadMode::kReflect:
      return position < 0 ? -position : 2 * (size - 1) - position;
  }
  return -1;
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

}  // namespace

Status reference_copy(const Node&, Sources src, Results dst) {
  std::memcpy(dst[0].data, src[0].data, dst[0].size_bytes());
  return {};
}

Status reference_concat(const Node& node, Sources src, Results dst) {
  const int axis = positive_axis(std::get<ConcatAttributes>(node.attributes).axis, dst[0].shape);
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

Status reference_transpose(const Node& node, Sources src, Results dst) {
  const Dims& axes = std::get<TransposeAttributes>(node.attributes).axes;
  const Strides own = row_major(src[0].shape);
  Strides strides{};
  const auto rank = static_cast<std::size_t>(src[0].shape.rank());
  for (std::size_t i = 0; i < rank; ++i) strides[i] = own[axes.empty() ? rank - 1 - i : static_cast<std::size_t>(axes[i])];
  gather(src[0], 0, strides, dst[0]);
  return {};
}

Status reference_swap_axes(const Node& node, Sources src, Results dst) {
  const auto& swap = std::get<SwapAxesAttributes>(node.attributes);
  const auto axis = [&](std::int64_t given) { return static_cast<std::size_t>(positive_axis(given, src[0].shape)); };
  Strides strides = row_major(src[0].shape);
  std::swap(strides[axis(swap.first)], strides[axis(swap.second)]);
  gather(src[0], 0, strides, dst[0]);
  return {};
}

Status reference_slice(const Node& node, Sources src, Results dst) {
  Strides strides = row_major(src[0].shape);
  std::int64_t first = 0;
  for (const SliceRange& range : std::get<SliceAttributes>(node.attributes).ranges) {
    const int axis = positive_axis(range.axis, src[0].shape);
    const AxisSlice part = resolve(range, src[0].shape[axis]);
    first += part.begin * strides[static_cast<std::size_t>(axis)];
    strides[static_cast<std::size_t>(axis)] *= part.step;
  }
  gather(src[0], first, strides, dst[0]);
  return {};
}

Status reference_split(const Node& node, Sources src, Results dst) {
  const AxisView whole(src[0].shape, positive_axis(std::get<SplitAttributes>(node.attributes).axis, src[0].shape));
  const std::size_t bytes = src[0].size_bytes() / static_cast<std::size_t>(whole.outer) / dst.size();
  const std::byte* from = src[0].data;
  for (std::size_t outer = 0; outer < static_cast<std::size_t>(whole.outer); ++outer) {
    for (TensorView& part : dst) {
      if (part.data) std::memcpy(part.data + outer * bytes, from, bytes);
      from += bytes;
    }
  }
  return {};
}

Status reference_pad(const Node& node, Sources src, Results dst) {
  const auto& pad = std::get<PadAttributes>(node.attributes);
  const Shape &from = src[0].shape, &to = dst[0].shape;
  std::vector<std::vector<std::int64_t>> offsets;  // by axis
  for (int axis = 0; axis < to.rank(); ++axis) offsets.push_back(padded_offsets(pad, from, to, axis));
  return with_number(node, src[0].dtype, [&]<typename T>() {
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

}  // namespace shoal::worker
