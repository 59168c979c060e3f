// Data with a border.
#include <algorithm>
#include <cstring>

#include "worker/exec/cpu/kernels/movement.hpp"
#include "worker/exec/cpu/kernels/parallel.hpp"
#include "worker/ops/elements.hpp"

namespace shoal::worker::cpu {
namespace {

/// The same box, with axes that are not padded merged into the axis before them, so that contiguous elements move as one piece.
PadExtents merged(const PadExtents& given) {
  PadExtents merged;
  for (std::size_t axis = 0; axis < given.sizes.size(); ++axis) {
    const std::int64_t size = given.sizes[axis];
    if (axis == 0 || given.before[axis] != 0 || given.behind[axis] != 0) {
      merged.sizes.push_back(size);
      merged.before.push_back(given.before[axis]);
      merged.behind.push_back(given.behind[axis]);
      continue;
    }
    merged.sizes.back() *= size;
    merged.before.back() *= size;
    merged.behind.back() *= size;
  }
  return merged;
}

/// The number of the data's row that becomes row `row` of the result; -1: the constant.
std::int64_t row_within(const PadExtents& extents, PadMode mode, std::int64_t row) {
  std::int64_t within = 0, stride = 1;
  for (std::size_t axis = extents.sizes.size() - 1; axis-- > 0;) {
    const std::int64_t size = extents.sizes[axis], padded = extents.before[axis] + size + extents.behind[axis];
    const std::int64_t at = padded_source(mode, row % padded - extents.before[axis], size);
    if (at < 0) return -1;
    within += at * stride;
    stride *= size;
    row /= padded;
  }
  return within;
}

template <typename Word>
Loop pad_words(const PadExtents& extents, PadMode mode, Word value) {
  std::int64_t rows = 1;
  for (std::size_t axis = 0; axis + 1 < extents.sizes.size(); ++axis)
    rows *= extents.before[axis] + extents.sizes[axis] + extents.behind[axis];
  return [extents, mode, rows, value](std::span<std::byte* const> operands) {
    const auto* const src = reinterpret_cast<const Word*>(operands[0]);
    auto* const dst = reinterpret_cast<Word*>(operands[1]);
    const std::int64_t before = extents.before.back(), size = extents.sizes.back(), behind = extents.behind.back(),
                       length = before + size + behind;
    for_ranges(rows, 1, rows * length, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        Word* const to = dst + row * length;
        const std::int64_t within = row_within(extents, mode, row);
        if (within < 0) {
          std::fill_n(to, length, value);
          continue;
        }
        const Word* const from = src + within * size;
        const auto border = [&](std::int64_t first, std::int64_t count) {
          for (std::int64_t i = first; i < first + count; ++i) {
            const std::int64_t at = padded_source(mode, i - before, size);
            to[i] = at < 0 ? value : from[at];
          }
        };
        border(0, before);
        std::memcpy(to + before, from, static_cast<std::size_t>(size) * sizeof(Word));
        border(before + size, behind);
      }
    });
  };
}

}  // namespace

Loop pad_loop(const PadExtents& given, PadMode mode, DType dtype, double value) {
  // In a merged axis the border is no longer that of its rows, which only a constant does not mind.
  const PadExtents extents = mode == PadMode::kConstant ? merged(given) : given;
  Loop loop;
  dispatch(Numbers(), dtype, [&]<typename T>() {
    const T number = from_float<T>(value);
    with_word(dtype, [&]<typename Word>() {
      if constexpr (sizeof(Word) == sizeof(T)) {
        Word word{};
        std::memcpy(&word, &number, sizeof word);
        loop = pad_words(extents, mode, word);
      }
    });
  });
  return loop;
}

Loop make_pad(const Node& node, TensorTypes src, TensorTypes) {
  const auto& pad = node.attributes.get<PadAttributes>();
  PadExtents extents;
  for (int axis = 0; axis < src[0].shape.rank(); ++axis) {
    const auto widths = static_cast<std::size_t>(2 * axis);
    extents.sizes.push_back(src[0].shape[axis]);
    extents.before.push_back(pad.widths[widths]);
    extents.behind.push_back(pad.widths[widths + 1]);
  }
  return pad_loop(extents, pad.mode, src[0].dtype, pad.value);
}

}  // namespace shoal::worker::cpu
