// What quantized numbers stand for. The oracle kernels and the kernels of devices share it.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "worker/ops/elements.hpp"

namespace shoal::worker {

using QuantizedTypes = Types<std::int8_t, std::uint8_t, std::int32_t>;

/// The type in which numbers of type Q are converted: float32 does not hold all of int32.
template <typename Q>
using QuantizedReal = std::conditional_t<sizeof(Q) == 4, double, float>;

/// Of a range, the largest number. The range reaches as far below 0 as above it; uint8 has the upper half.
inline float reach_of(float min, float max) { return std::max(std::abs(min), std::abs(max)); }

/// The number of steps from 0 to the end of the range.
///   half_more  for 8 bits, half a step more than there are numbers
template <typename Q>
QuantizedReal<Q> steps_of(bool half_more) {
  using F = QuantizedReal<Q>;
  return static_cast<F>(std::numeric_limits<Q>::max()) + (half_more && sizeof(Q) == 1 ? F{0.5} : F{0});
}

/// The real number for which one step of Q stands.
template <typename Q>
QuantizedReal<Q> step_of(float min, float max, bool half_more = false) {
  return static_cast<QuantizedReal<Q>>(reach_of(min, max)) / steps_of<Q>(half_more);
}

/// x as the nearest number of Q, halves to even; what lies beyond Q becomes its end. NaN becomes 0 if Q is unsigned, and the
/// highest number if it is signed: MXNet's wheel does so.
template <typename Q>
Q quantized(float x, float min, float max, bool half_more = false) {
  using F = QuantizedReal<Q>;
  constexpr F kLeast = static_cast<F>(std::numeric_limits<Q>::lowest()), kMost = static_cast<F>(std::numeric_limits<Q>::max());
  const F scale = steps_of<Q>(half_more) / static_cast<F>(reach_of(min, max));
  const F steps = std::nearbyint(static_cast<F>(x) * scale);
  if (std::is_signed_v<Q>) return static_cast<Q>(steps < kLeast ? kLeast : steps < kMost ? steps : kMost);
  return static_cast<Q>(steps > kMost ? kMost : steps > kLeast ? steps : kLeast);
}

template <typename Q>
float dequantized(Q q, float min, float max, bool half_more = false) {
  return static_cast<float>(static_cast<QuantizedReal<Q>>(q) * step_of<Q>(min, max, half_more));
}

}  // namespace shoal::worker
