// The order of elements, as oracle kernels and kernels see it.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <type_traits>

#include "worker/ops/elements.hpp"

namespace shoal::worker {

/// An element of a row. Kernels order copies: memory that a client changes meanwhile has no order.
template <typename C>
struct Ranked {
  C value;
  std::int64_t index;
};

/// Does `a` come before `b`? NaN comes last, and of equal elements the one with the lower index first.
template <typename C, bool kAscending>
struct ComesBefore {
  bool operator()(const Ranked<C>& a, const Ranked<C>& b) const {
    if constexpr (!std::is_integral_v<C>) {
      const bool a_is_nan = a.value != a.value, b_is_nan = b.value != b.value;
      if (a_is_nan || b_is_nan) return a_is_nan == b_is_nan ? a.index < b.index : b_is_nan;
    }
    if (a.value != b.value) return kAscending ? a.value < b.value : a.value > b.value;
    return a.index < b.index;
  }
};

/// What no number but NaN is worse than, if the highest wins, or the lowest.
template <typename C>
constexpr C worst(bool lowest) {
  using Limits = std::numeric_limits<C>;
  if constexpr (Limits::has_infinity)
    return lowest ? Limits::infinity() : -Limits::infinity();
  else
    return lowest ? Limits::max() : Limits::lowest();
}

/// Stores index number `i` of a tensor of indices.
using StoreIndex = void (*)(std::byte* indices, std::int64_t i, std::int64_t index);
/// Null for types that hold no indices.
inline StoreIndex index_store(DType dtype) {
  StoreIndex store = nullptr;
  dispatch(Numbers(), dtype, [&]<typename T>() {
    store = [](std::byte* indices, std::int64_t i, std::int64_t index) { reinterpret_cast<T*>(indices)[i] = convert<T>(index); };
  });
  return store;
}

/// The data as rows along an axis; without one it is a single row.
inline AxisView rows_along(std::optional<std::int64_t> axis, const Shape& shape) {
  if (axis) return {shape, positive_axis(*axis, shape)};
  return {Shape{shape.element_count()}, 0};
}

}  // namespace shoal::worker
