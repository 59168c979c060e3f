// Overflow-safe arithmetic on numbers from outside.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>

namespace shoal {

/// True when [offset, offset + size) lies within [0, limit).
constexpr bool fits(std::uint64_t offset, std::uint64_t size, std::uint64_t limit) {
  return offset <= limit && size <= limit - offset;
}

/// a * b, or nothing when it does not fit.
template <std::integral T>
constexpr std::optional<T> checked_multiply(T a, T b) {
  T product = 0;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

/// a + b, or nothing when it does not fit.
template <std::integral T>
constexpr std::optional<T> checked_add(T a, T b) {
  T sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
  return sum;
}

/// The next multiple of `alignment` (a power of two) at or above `value`.
constexpr std::uint64_t align_up(std::uint64_t value, std::uint64_t alignment) {
  return (value + alignment - 1) & ~(alignment - 1);
}

}  // namespace shoal
