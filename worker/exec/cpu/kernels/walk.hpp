// Walk: where the elements of a dense result lie in a source: broadcast, transposed, sliced.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "worker/ops/elements.hpp"

namespace shoal::worker::cpu {

/// Some axes, outermost first, and the strides of the data along them, in elements.
struct Axes {
  int rank = 0;
  std::array<std::int64_t, kMaxRank> dims{}, strides{};

  /// Adds an axis behind the others; merges it with the last one if both together are one.
  void add(std::int64_t dim, std::int64_t stride) {
    const auto last = static_cast<std::size_t>(rank) - 1;
    if (rank > 0 && strides[last] == stride * dim) {
      dims[last] *= dim;
      strides[last] = stride;
    } else {
      dims[static_cast<std::size_t>(rank)] = dim;
      strides[static_cast<std::size_t>(rank++)] = stride;
    }
  }
};

/// The axes of the result, outermost first, and the strides of the source along them, in elements. Axes along which the source
/// goes on as if they were one are merged; there is at least one.
struct Walk : Axes {
  std::int64_t first = 0;  ///< the element of the source at position 0

  Walk() { add(1, 1); }
  Walk(const Shape& shape, const Strides& along, std::int64_t first_element = 0) : first(first_element) {
    for (int axis = 0; axis < shape.rank(); ++axis) {
      if (shape[axis] != 1) add(shape[axis], along[static_cast<std::size_t>(axis)]);
    }
    if (rank == 0) add(1, 1);
  }
  /// The source broadcast to the shape of the result.
  static Walk broadcast(const Shape& src, const Shape& dst) { return {dst, broadcast_strides(src, dst)}; }

  bool is_dense() const { return rank == 1 && strides[0] == 1; }
  bool is_one_element() const { return rank == 1 && (strides[0] == 0 || dims[0] == 1); }
};

/// dst[i] = src[i * stride].
template <typename Word>
void copy_row(const Word* src, std::int64_t stride, std::int64_t count, Word* dst) {
  constexpr std::int64_t kFewest = 16;  // fewer are not worth a call
  if (stride == 1 && count >= kFewest) {
    std::memcpy(dst, src, static_cast<std::size_t>(count) * sizeof(Word));
  } else if (stride == 0) {
    std::fill_n(dst, count, *src);
  } else {
    for (std::int64_t i = 0; i < count; ++i) dst[i] = src[i * stride];
  }
}

/// The elements at positions begin .. begin + count of the result, one behind the other.
template <typename Word>
void gather(const Word* src, const Walk& walk, std::int64_t begin, std::int64_t count, Word* dst) {
  std::array<std::int64_t, kMaxRank> position{};
  const Word* from = src + walk.first;
  std::int64_t rest = begin;
  for (int axis = walk.rank - 1; axis >= 0; --axis) {
    const auto k = static_cast<std::size_t>(axis);
    position[k] = axis == 0 ? rest : rest % walk.dims[k];
    rest /= walk.dims[k];
    from += position[k] * walk.strides[k];
  }
  const auto last = static_cast<std::size_t>(walk.rank) - 1;
  const std::int64_t length = walk.dims[last], stride = walk.strides[last];
  while (true) {
    const std::int64_t size = std::min(length - position[last], count);
    copy_row(from, stride, size, dst);
    dst += size;
    count -= size;
    if (count == 0) return;
    from -= position[last] * stride;
    position[last] = 0;
    for (std::size_t k = last; k-- > 0;) {  // the odometer
      from += walk.strides[k];
      if (++position[k] < walk.dims[k]) break;
      from -= walk.dims[k] * walk.strides[k];
      position[k] = 0;
    }
  }
}

}  // namespace shoal::worker::cpu
