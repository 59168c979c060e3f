// Half and BFloat16: storage types of two bytes that compute as float.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace shoal {

#if defined(__clang__) && __clang_major__ < 15
using Binary16 = __fp16;  // all that clang 14 has without AVX512-FP16; stored and converted alike
#else
using Binary16 = _Float16;
#endif

/// IEEE 754 binary16; converting from float rounds to nearest even.
struct Half {
  Half() = default;
  explicit Half(float value) : value(static_cast<Binary16>(value)) {}
  operator float() const { return static_cast<float>(value); }  // NOLINT(google-explicit-constructor): reads as the number it is
  Binary16 value;
};
static_assert(sizeof(Half) == 2);

/// The upper half of a float; converting from float rounds to nearest even.
struct BFloat16 {
  BFloat16() = default;
  explicit BFloat16(float value) {
    const auto word = std::bit_cast<std::uint32_t>(value);
    const bool nan = (word & 0x7fffffffu) > 0x7f800000u;
    bits = static_cast<std::uint16_t>(nan ? (word >> 16) | 0x40u : (word + 0x7fffu + ((word >> 16) & 1u)) >> 16);
  }
  operator float() const {  // NOLINT(google-explicit-constructor): reads as the number it is
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
  std::uint16_t bits;
};
static_assert(sizeof(BFloat16) == 2);

/// Of a float type: the digits of its numbers, and the largest finite one.
template <typename F>
struct FloatLimits {
  static_assert(std::is_floating_point_v<F>, "a type of two bytes has limits of its own");
  static constexpr int kDigits = std::numeric_limits<F>::digits;
  static constexpr F kHighest = std::numeric_limits<F>::max();
};
template <>
struct FloatLimits<Half> {
  static constexpr int kDigits = 11;
  static constexpr float kHighest = 65504;
};
template <>
struct FloatLimits<BFloat16> {
  static constexpr int kDigits = 8;
  static constexpr float kHighest = 0x1.FEp127F;
};

}  // namespace shoal
