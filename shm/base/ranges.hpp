// Overflow-safe arithmetic on sizes that strangers sent.
#pragma once

#include <cstdint>
#include <optional>

namespace shoal {

/// True when [offset, offset + size) lies within [0, limit).
constexpr bool fits(std::uint64_t offset, std::uint64_t size, std::uint64_t limit) {
  return offset <= limit && size <= limit - offset;
}

/// a * b, or nothing when it does not fit.
constexpr std::optional<std::uint64_t> checked_multiply(std::uint64_t a, std::uint64_t b) {
  std::uint64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

/// The next multiple of `alignment` (a power of two) at or above `value`.
constexpr std::uint64_t align_up(std::uint64_t value, std::uint64_t alignment) {
  return (value + alignment - 1) & ~(alignment - 1);
}

}  // namespace shoal
