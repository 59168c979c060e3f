// Exponential functions of float32 without branches or calls, so that loops over them become vector instructions.
#pragma once

#include <bit>
#include <cstdint>

namespace shoal::worker::cpu {

/// e^x * 2^kScale = power * (1 + rest), where power is a whole power of 2 and rest is near 0.
struct SplitPower {
  float power, rest;
};

/// For x <= 0 and NaN (Cephes' polynomial); power is 0 below the normal numbers. It has one selection and no call, so that a loop
/// over it becomes vector instructions.
template <int kScale>
SplitPower split_power(float x) {
  constexpr float kLog2E = 1.44269504F, kLn2High = 0.693359375F, kLn2Low = -2.12194440e-4F;
  constexpr float kLowest = -(127 + kScale) * 0.6931472F;
  constexpr float kRounder = 0x1.8p23F;  // adding it rounds to a whole number, which is then in the lowest bits
  const float cut = x < kLowest ? kLowest : x, rounded = cut * kLog2E + kRounder, whole = rounded - kRounder;
  const float r = cut - whole * kLn2High - whole * kLn2Low;
  float p = 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  // 2^(whole + kScale); 0 at kLowest, where `whole` is -127 - kScale.
  constexpr std::uint32_t kExponentOf0 = (127U + kScale) << 23;
  return {std::bit_cast<float>((std::bit_cast<std::uint32_t>(rounded) << 23) + kExponentOf0), p * r * r + r};
}

/// e^x * 2^kScale for x <= 0 and NaN, within 2 units in the last place; 0 below the normal numbers. It is for functions that
/// divide by such a number: where e^x itself is below the normal numbers, the quotient is rounded once.
template <int kScale>
float scaled_exp_of_negative(float x) {
  const SplitPower split = split_power<kScale>(x);
  return (split.rest + 1.0F) * split.power;
}

/// e^x for x <= 0 and NaN, within 2 units in the last place; 0 below the normal numbers.
inline float exp_of_negative(float x) { return scaled_exp_of_negative<0>(x); }

/// e^x - 1 for x <= 0 and NaN, within 3 units in the last place, also near 0.
inline float expm1_of_negative(float x) {
  const SplitPower split = split_power<0>(x);
  return split.power * split.rest + (split.power - 1.0F);
}

/// 1 / (1 + e^-x), within 3 units in the last place; 0 from about -89 on, where e^-x is infinite in float32.
inline float vector_sigmoid(float x) {
  constexpr int kScale = 2;
  constexpr float kOne = 1 << kScale;
  const float power = scaled_exp_of_negative<kScale>(x > 0 ? -x : x);  // NaN passes
  return (x > 0 ? kOne : power) / (kOne + power);
}

/// tanh x, within 4 units in the last place (near 0 by Cephes' polynomial).
inline float vector_tanh(float x) {
  const float magnitude = x < 0 ? -x : x, power = exp_of_negative(-2.0F * magnitude);
  const float far = (1.0F - power) / (1.0F + power);
  const float square = x * x;
  float p = -5.70498872745E-3F;
  p = p * square + 2.06390887954E-2F;
  p = p * square - 5.37397155531E-2F;
  p = p * square + 1.33314422036E-1F;
  p = p * square - 3.33332819422E-1F;
  const float near = p * square * x + x;
  const float signed_far = x < 0 ? -far : far;
  return magnitude < 0.625F ? near : signed_far;
}

/// x * (1 + erf(x / sqrt(2))) / 2, within 3e-7 * |x| (Abramowitz and Stegun 7.1.26). -inf gives NaN, as -inf * 0 does.
inline float vector_gelu(float x) {
  const float y = x * 0.70710678F, magnitude = y < 0 ? -y : y, t = 1.0F / (1.0F + 0.3275911F * magnitude);
  float p = 1.061405429F;
  p = p * t - 1.453152027F;
  p = p * t + 1.421413741F;
  p = p * t - 0.284496736F;
  p = p * t + 0.254829592F;
  const float tail = p * t * exp_of_negative(-magnitude * magnitude);  // 1 - erf(magnitude)
  return 0.5F * x * (y < 0 ? tail : 2.0F - tail);
}

/// What recurrent cells compute their gates with (worker/ops/recurrent_functions.hpp).
struct VectorGates {
  static float sigmoid(float x) { return vector_sigmoid(x); }
  static float tanh(float x) { return vector_tanh(x); }
};

}  // namespace shoal::worker::cpu
