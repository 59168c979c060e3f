// From a tensor's dtype to the C++ type of its elements.
#pragma once

#include <array>
#include <bit>
#include <limits>
#include <span>
#include <type_traits>
#include <utility>

#include "shm/base/errors.hpp"
#include "shoal/tensor.hpp"
#include "worker/graph/graph.hpp"
#include "worker/graph/types.hpp"

namespace shoal::worker {

using Sources = std::span<const TensorView>;
using Results = std::span<TensorView>;

/// The type in which sums and functions of T are computed: integers and double in T, every other float in float.
template <typename T>
using Compute = std::conditional_t<std::is_integral_v<T> || std::is_same_v<T, double>, T, float>;

/// Converts a computed number to T; rounds to nearest even if T is narrower.
template <typename T, typename From>
T to_element(From value) {
  if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>)
    return T(static_cast<float>(value));
  else
    return static_cast<T>(value);
}

/// Converts a floating-point number to an integer type T. Where C leaves the result undefined (NaN, too large), does what x86,
/// where MXNet ran, does: converts to 32 or 64 bits first, and gives the lowest such number for all that does not fit.
template <typename T>
T cut(double value) {
  using Wide = std::conditional_t<sizeof(T) < 4 || std::is_same_v<T, std::int32_t>, std::int32_t, std::int64_t>;
  constexpr double kLimit = sizeof(Wide) == 4 ? 0x1p31 : 0x1p63;
  if (std::is_same_v<T, std::uint64_t> && value >= kLimit && value < 2 * kLimit) return static_cast<T>(value);
  const bool fits = value >= -kLimit && value < kLimit;
  return static_cast<T>(fits ? static_cast<Wide>(value) : std::numeric_limits<Wide>::lowest());
}

/// Converts a number computed in floating point to any T.
template <typename T, typename Float>
T from_float(Float value) {
  if constexpr (std::is_integral_v<T>)
    return cut<T>(static_cast<double>(value));
  else
    return to_element<T>(value);
}

/// Converts a number to any type: floats are cut to integers, everything but 0 is true.
template <typename To, typename From>
To convert(From value) {
  if constexpr (std::is_same_v<To, bool>) {
    return static_cast<Compute<From>>(value) != 0;
  } else if constexpr (std::is_integral_v<To> && !std::is_integral_v<From>) {
    return cut<To>(static_cast<double>(value));
  } else {
    return to_element<To>(static_cast<Compute<From>>(value));
  }
}

/// The widest type of From's kind. It holds every value of From exactly. Cast converts through it.
template <typename From>
using Wide = std::conditional_t<!std::is_integral_v<From>, double,
                                std::conditional_t<std::is_same_v<From, std::uint64_t>, std::uint64_t, std::int64_t>>;

/// For integers, sums, differences and products wrap.
template <typename T, typename Function>
T wrapping(T a, T b, Function function) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(function(static_cast<std::uint64_t>(a), static_cast<std::uint64_t>(b)));
  } else {
    return function(a, b);
  }
}

/// The type in which functions of T are computed: double for double, float for all other types, also integers.
template <typename T>
using Float = std::conditional_t<std::is_same_v<T, double>, double, float>;

/// The elements of a view as T; the caller knows the dtype.
template <typename T>
const T* elements(const TensorView& view) {
  return reinterpret_cast<const T*>(view.data);
}
template <typename T>
T* elements(TensorView& view) {
  return reinterpret_cast<T*>(view.data);
}

/// One load, which the compiler may not repeat. For bounds and divisors: a client may change its memory while a kernel reads it,
/// so the value that is used must be the one that was checked.
template <typename T>
T load_once(const T* at) {
  static_assert(std::is_integral_v<T>);
  return __atomic_load_n(at, __ATOMIC_RELAXED);
}

/// As load_once, for any number.
template <typename T>
T load_element_once(const T* at) {
  if constexpr (std::is_integral_v<T>) {
    return load_once(at);
  } else {
    using Word =
        std::conditional_t<sizeof(T) == 2, std::uint16_t, std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>>;
    return std::bit_cast<T>(load_once(reinterpret_cast<const Word*>(at)));
  }
}

inline Status no_kernel(const Node& node, DType dtype) {
  return unimplemented("{}: there is no kernel for {}", describe(node), dtype_name(dtype));
}

/// Calls run.operator()<T>(), which returns a Status, with the type of the list that `dtype` is.
template <typename List, typename Run>
Status dispatch(const Node& node, DType dtype, Run&& run) {
  Status status;
  const bool is_known = dispatch(List(), dtype, [&]<typename T>() { status = run.template operator()<T>(); });
  return is_known ? status : no_kernel(node, dtype);
}

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

/// dst[i] = function(src[i]) with numbers of Compute<To>; src of another type than dst is converted first.
template <typename From, typename To = From, typename Function>
Status map(const TensorView& src, TensorView& dst, Function function) {
  const From* from = elements<From>(src);
  To* to = elements<To>(dst);
  for (std::int64_t i = 0, count = dst.element_count(); i < count; ++i)
    to[i] = to_element<To>(function(static_cast<Compute<To>>(from[i])));
  return {};
}

/// A shape seen from one axis: `outer` rows of `size` elements that are `inner` apart.
struct AxisView {
  std::int64_t outer = 1, size = 1, inner = 1;
  AxisView(const Shape& shape, int axis) {
    for (int i = 0; i < axis; ++i) outer *= shape[i];
    size = shape[axis];
    for (int i = axis + 1; i < shape.rank(); ++i) inner *= shape[i];
  }
};

/// A checked axis that may be counted from the back.
inline int positive_axis(std::int64_t axis, const Shape& shape) {
  return static_cast<int>(axis < 0 ? axis + shape.rank() : axis);
}

/// The distance, in elements, between neighbors along each axis.
using Strides = std::array<std::int64_t, kMaxRank>;

inline Strides row_major(const Shape& shape) {
  Strides strides{};
  std::int64_t stride = 1;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    strides[static_cast<std::size_t>(axis)] = stride;
    stride *= shape[axis];
  }
  return strides;
}

/// The strides of `src` along the axes of `dst`, to which it is broadcast: 0 along axes that repeat it.
inline Strides broadcast_strides(const Shape& src, const Shape& dst) {
  const Strides own = row_major(src);
  Strides strides{};
  const int lead = dst.rank() - src.rank();
  for (int axis = 0; axis < src.rank(); ++axis) {
    if (src[axis] != 1) strides[static_cast<std::size_t>(lead + axis)] = own[static_cast<std::size_t>(axis)];
  }
  return strides;
}

/// Visits the rows (last axis) of `shape` in order. Calls run(offsets) with the offset of the row in each tensor.
template <std::size_t kTensors, typename Run>
void each_row(const Shape& shape, const std::array<Strides, kTensors>& strides, Run run) {
  if (shape.element_count() == 0) return;
  const int last = shape.rank() - 1;
  std::array<std::int64_t, kTensors> offsets{};
  std::array<std::int64_t, kMaxRank> position{};
  for (;;) {
    run(offsets);
    int axis = last - 1;
    for (; axis >= 0; --axis) {  // the odometer: offsets follow position
      const auto k = static_cast<std::size_t>(axis);
      ++position[k];
      for (std::size_t t = 0; t < kTensors; ++t) offsets[t] += strides[t][k];
      if (position[k] < shape[axis]) break;
      for (std::size_t t = 0; t < kTensors; ++t) offsets[t] -= strides[t][k] * position[k];
      position[k] = 0;
    }
    if (axis < 0) return;
  }
}

/// The same for one tensor: calls run(offset).
template <typename Run>
void each_row(const Shape& shape, const Strides& strides, Run run) {
  each_row(shape, std::array<Strides, 1>{strides}, [&](const std::array<std::int64_t, 1>& offsets) { run(offsets[0]); });
}

/// Length of a row in each_row().
inline std::int64_t row_length(const Shape& shape) { return shape.rank() == 0 ? 1 : shape[shape.rank() - 1]; }
inline std::int64_t row_stride(const Shape& shape, const Strides& strides) {
  return shape.rank() == 0 ? 1 : strides[static_cast<std::size_t>(shape.rank() - 1)];
}

/// dst[position] = src[first + sum of position * strides], for elements of any type.
inline void copy_strided(const TensorView& src, std::int64_t first, const Strides& strides, TensorView& dst) {
  const std::int64_t length = row_length(dst.shape), stride = row_stride(dst.shape, strides);
  with_word(dst.dtype, [&]<typename Word>() {
    Word* to = elements<Word>(dst);
    each_row(dst.shape, strides, [&](std::int64_t offset) {
      const Word* const from = elements<Word>(src) + first + offset;
      for (std::int64_t i = 0; i < length; ++i) *to++ = from[i * stride];
    });
  });
}

}  // namespace shoal::worker
