// From a tensor's dtype to the C++ type of its elements.
#pragma once

#include <type_traits>
#include <utility>

#include "shm/base/errors.hpp"
#include "shoal/tensor.hpp"
#include "worker/graph/floats.hpp"
#include "worker/graph/graph.hpp"

namespace shoal::worker {

/// What sums and functions of T are computed in: integers in themselves, double in double, every other float in float.
template <typename T>
using Compute = std::conditional_t<std::is_integral_v<T> || std::is_same_v<T, double>, T, float>;

/// T of a computed number; rounds to nearest even where T is narrower.
template <typename T, typename From>
T to_element(From value) {
  if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>)
    return T(static_cast<float>(value));
  else
    return static_cast<T>(value);
}

/// The elements of a view as T; the caller knows the dtype.
template <typename T>
const T* elements(const TensorView& view) {
  return reinterpret_cast<const T*>(view.data);
}
template <typename T>
T* elements(TensorView& view) {
  return reinterpret_cast<T*>(view.data);
}

inline Status no_kernel(const Node& node, DType dtype) {
  return unimplemented("{}: there is no kernel for {}", describe(node), dtype_name(dtype));
}

/// Calls run.operator()<T>() with the floating-point type that dtype means.
template <typename Run>
Status with_float(const Node& node, DType dtype, Run&& run) {
  switch (dtype) {
    case DType::kFloat32:
      return run.template operator()<float>();
    case DType::kFloat64:
      return run.template operator()<double>();
    case DType::kFloat16:
      return run.template operator()<Half>();
    case DType::kBFloat16:
      return run.template operator()<BFloat16>();
    default:
      return no_kernel(node, dtype);
  }
}

/// As with_float, for every numeric type.
template <typename Run>
Status with_number(const Node& node, DType dtype, Run&& run) {
  switch (dtype) {
    case DType::kUInt8:
      return run.template operator()<std::uint8_t>();
    case DType::kInt8:
      return run.template operator()<std::int8_t>();
    case DType::kInt16:
      return run.template operator()<std::int16_t>();
    case DType::kUInt16:
      return run.template operator()<std::uint16_t>();
    case DType::kInt32:
      return run.template operator()<std::int32_t>();
    case DType::kUInt32:
      return run.template operator()<std::uint32_t>();
    case DType::kInt64:
      return run.template operator()<std::int64_t>();
    case DType::kUInt64:
      return run.template operator()<std::uint64_t>();
    default:
      return with_float(node, dtype, std::forward<Run>(run));
  }
}

/// A shape seen from one axis: `outer` rows of `size` elements that lie `inner` apart.
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

}  // namespace shoal::worker
