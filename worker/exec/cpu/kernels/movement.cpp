#include "worker/exec/cpu/kernels/movement.hpp"

#include <array>
#include <utility>

#include "worker/exec/cpu/kernels/conversion.hpp"
#include "worker/exec/cpu/kernels/parallel.hpp"
#include "worker/exec/cpu/kernels/walk.hpp"
#include "worker/ops/diagonal_functions.hpp"
#include "worker/ops/rearrangement.hpp"

namespace shoal::worker::cpu {
namespace {

constexpr std::int64_t kTile = 32;

/// The axis, but for the last, along which neighbors in the source lie; -1: none, or the last is such an axis.
int contiguous_axis(const Walk& walk) {
  const auto last = static_cast<std::size_t>(walk.rank) - 1;
  if (walk.strides[last] == 1) return -1;
  for (int axis = walk.rank - 2; axis >= 0; --axis) {
    if (walk.strides[static_cast<std::size_t>(axis)] == 1) return axis;
  }
  return -1;
}

/// Copies squares of the plane of `axis` and the last axis, so that the cache holds what is read, and what is written.
///   index  of a row of squares: the tile along `axis` counts fastest, then the other axes
template <typename Word>
void copy_tiles(const Word* src, const Walk& walk, int axis, std::int64_t index, Word* dst) {
  const auto turned = static_cast<std::size_t>(axis), last = static_cast<std::size_t>(walk.rank) - 1;
  const std::int64_t tiles = (walk.dims[turned] + kTile - 1) / kTile, length = walk.dims[last], stride = walk.strides[last];
  const std::int64_t first = index % tiles * kTile, end = std::min(first + kTile, walk.dims[turned]);
  std::int64_t rest = index / tiles, from = walk.first, to = 0, row = 1, size = length;
  for (std::size_t k = last; k-- > 0;) {
    if (k == turned) {
      row = size;  // how far neighbors along the axis lie apart in the result
    } else {
      from += rest % walk.dims[k] * walk.strides[k];
      to += rest % walk.dims[k] * size;
      rest /= walk.dims[k];
    }
    size *= walk.dims[k];
  }
  for (std::int64_t begin = 0; begin < length; begin += kTile) {
    const std::int64_t width = std::min(kTile, length - begin);
    for (std::int64_t i = first; i < end; ++i) {
      const Word* const column = src + from + i + begin * stride;
      Word* const place = dst + to + i * row + begin;
      for (std::int64_t k = 0; k < width; ++k) place[k] = column[k * stride];
    }
  }
}

/// A dense copy of `count` elements as the walk finds them.
template <typename Word>
void copy_all(const Word* src, const Walk& walk, std::int64_t count, Word* dst) {
  if (count == 0) return;
  const int axis = contiguous_axis(walk);
  if (axis < 0) {
    for_ranges(count, kBlock, count,
               [&](std::int64_t begin, std::int64_t end) { gather(src, walk, begin, end - begin, dst + begin); });
    return;
  }
  const std::int64_t extent = walk.dims[static_cast<std::size_t>(axis)], tiles = (extent + kTile - 1) / kTile,
                     rows = count / extent / walk.dims[static_cast<std::size_t>(walk.rank) - 1] * tiles;
  for_ranges(rows, 1, count, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) copy_tiles(src, walk, axis, row, dst);
  });
}

/// One output: part of the input, or all of it, in another order.
struct Copy {
  Walk walk;
  std::int64_t count = 0;
};

/// Operands: src first, and last the result of each copy.
Loop copy_loop(DType dtype, std::vector<Copy> copies) {
  Loop loop;
  with_word(dtype, [&]<typename Word>() {
    loop = [copies = std::move(copies)](std::span<std::byte* const> operands) {
      const auto* const src = reinterpret_cast<const Word*>(operands[0]);
      for (std::size_t i = 0; i < copies.size(); ++i) {
        auto* const dst = reinterpret_cast<Word*>(operands[operands.size() - copies.size() + i]);
        if (dst != nullptr) copy_all(src, copies[i].walk, copies[i].count, dst);
      }
    };
  });
  return loop;
}

Loop copy_loop(const TensorType& dst, const Strides& strides, std::int64_t first = 0) {
  return copy_loop(dst.dtype, {{Walk(dst.shape, strides, first), dst.shape.element_count()}});
}

/// Each line along the last axis of src becomes the diagonal of a matrix.
Loop diagonals_loop(std::int64_t offset, const TensorType& src, const TensorType& dst) {
  const std::int64_t length = src.shape[src.shape.rank() - 1], size = dst.shape[dst.shape.rank() - 1],
                     count = src.shape.element_count() / length;
  Loop loop;
  with_word(dst.dtype, [&]<typename Word>() {
    loop = [=](std::span<std::byte* const> operands) {
      const auto* const lines = reinterpret_cast<const Word*>(operands[0]);
      auto* const matrices = reinterpret_cast<Word*>(operands[1]);
      for_ranges(count, 1, count * size * size, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i)
          worker::make_diagonal(offset, lines + i * length, length, matrices + i * size * size);
      });
    };
  });
  return loop;
}

/// Copies the pieces of `rows` rows, `row` bytes apart in the result and close together in the source.
using PieceCopy = void (*)(const std::byte* src, std::int64_t rows, std::byte* dst, std::int64_t row);

/// The size is known when this is compiled, so that a small piece takes one or two instructions instead of a call.
template <std::size_t kBytes>
void copy_pieces(const std::byte* src, std::int64_t rows, std::byte* dst, std::int64_t row) {
  for (std::int64_t i = 0; i < rows; ++i) std::memcpy(dst + i * row, src + i * static_cast<std::int64_t>(kBytes), kBytes);
}

template <std::size_t... kSizes>
constexpr std::array<PieceCopy, sizeof...(kSizes)> piece_copies(std::index_sequence<kSizes...>) {
  return {copy_pieces<kSizes>...};
}
constexpr std::int64_t kSmallPiece = 64;     // bytes
constexpr std::int64_t kRowsOfPieces = 128;  // that are filled together, so that they stay in the nearest cache
constexpr auto kPieceCopies = piece_copies(std::make_index_sequence<kSmallPiece + 1>());

/// Rows first..end of a concatenation whose inputs have `bytes` in each row.
void concat_rows(std::span<std::byte* const> operands, std::span<const std::int64_t> bytes, std::int64_t row, std::int64_t first,
                 std::int64_t end) {
  for (std::int64_t begin = first; begin < end; begin += kRowsOfPieces) {
    const std::int64_t rows = std::min(kRowsOfPieces, end - begin);
    std::byte* to = operands.back() + begin * row;
    for (std::size_t k = 0; k < bytes.size(); ++k) {
      const std::byte* const from = operands[k] + begin * bytes[k];
      if (bytes[k] <= kSmallPiece) {
        kPieceCopies[static_cast<std::size_t>(bytes[k])](from, rows, to, row);
      } else {
        for (std::int64_t i = 0; i < rows; ++i)
          std::memcpy(to + i * row, from + i * bytes[k], static_cast<std::size_t>(bytes[k]));
      }
      to += bytes[k];
    }
  }
}

}  // namespace

Loop make_transpose(const Node& node, TensorTypes src, TensorTypes dst) {
  const Dims& axes = node.attributes.get<TransposeAttributes>().axes;
  const Strides own = row_major(src[0].shape);
  const auto rank = static_cast<std::size_t>(src[0].shape.rank());
  Strides strides{};
  for (std::size_t i = 0; i < rank; ++i) strides[i] = own[axes.empty() ? rank - 1 - i : static_cast<std::size_t>(axes[i])];
  return copy_loop(dst[0], strides);
}

Loop make_move_axes(const Node& node, TensorTypes src, TensorTypes dst) {
  return copy_loop(dst[0], moved_strides(node, src[0].shape));
}

Loop make_make_diagonal(const Node& node, TensorTypes src, TensorTypes dst) {
  return diagonals_loop(node.attributes.get<MakeDiagonalAttributes>().offset, src[0], dst[0]);
}

Loop make_diagonal(const Node& node, TensorTypes src, TensorTypes dst) {
  const auto& diagonal = node.attributes.get<DiagonalAttributes>();
  if (src[0].shape.rank() == 1) return diagonals_loop(diagonal.offset, src[0], dst[0]);
  const DiagonalPlaces places(diagonal, src[0].shape);
  return copy_loop(dst[0], places.strides, places.first);
}

Loop make_swap_axes(const Node& node, TensorTypes src, TensorTypes dst) {
  const auto& swap = node.attributes.get<SwapAxesAttributes>();
  const auto axis = [&](std::int64_t given) { return static_cast<std::size_t>(positive_axis(given, src[0].shape)); };
  Strides strides = row_major(src[0].shape);
  std::swap(strides[axis(swap.first)], strides[axis(swap.second)]);
  return copy_loop(dst[0], strides);
}

Loop make_slice(const Node& node, TensorTypes src, TensorTypes dst) {
  Strides strides = row_major(src[0].shape);
  std::int64_t first = 0;
  for (const SliceRange& range : node.attributes.get<SliceAttributes>().ranges) {
    const int axis = positive_axis(range.axis, src[0].shape);
    const AxisSlice part = resolve(range, src[0].shape[axis]);
    first += part.begin * strides[static_cast<std::size_t>(axis)];
    strides[static_cast<std::size_t>(axis)] *= part.step;
  }
  return copy_loop(dst[0], strides, first);
}

Loop make_slice_like(const Node&, TensorTypes src, TensorTypes dst) { return copy_loop(dst[0], row_major(src[0].shape)); }

Loop make_broadcast(const Node&, TensorTypes src, TensorTypes dst) {
  return copy_loop(dst[0], broadcast_strides(src[0].shape, dst[0].shape));
}

Loop make_split(const Node& node, TensorTypes src, TensorTypes dst) {
  const int axis = positive_axis(node.attributes.get<SplitAttributes>().axis_of(src[0].shape.rank()), src[0].shape);
  const Strides strides = row_major(src[0].shape);
  Shape part = src[0].shape;  // with the axis that the outputs may have lost
  const std::int64_t slice = part.element_count() / part[axis];
  std::int64_t first = 0;
  std::vector<Copy> copies;
  for (const TensorType& tensor : dst) {
    part[axis] = tensor.shape.element_count() / slice;
    copies.push_back({Walk(part, strides, first), part.element_count()});
    first += part[axis] * strides[static_cast<std::size_t>(axis)];
  }
  return copy_loop(src[0].dtype, std::move(copies));
}

Loop make_concat(const Node& node, TensorTypes src, TensorTypes dst) {
  const AxisView whole(dst[0].shape,
                       positive_axis(node.attributes.get<ConcatAttributes>().axis_of(dst[0].shape.rank()), dst[0].shape));
  const std::int64_t element = static_cast<std::int64_t>(dtype_size_bytes(dst[0].dtype));
  std::vector<std::int64_t> bytes;  // of each input, in one piece of the result
  for (const TensorType& tensor : src)
    bytes.push_back(whole.outer == 0 ? 0 : tensor.shape.element_count() / whole.outer * element);
  const std::int64_t row = whole.size * whole.inner * element;
  return [outer = whole.outer, row, bytes](std::span<std::byte* const> operands) {
    for_ranges(outer, 1, outer * row,
               [&](std::int64_t begin, std::int64_t end) { concat_rows(operands, bytes, row, begin, end); });
  };
}

}  // namespace shoal::worker::cpu
