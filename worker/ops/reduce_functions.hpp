// The steps of a reduction. The oracle kernel and the kernels of devices share them.
#pragma once

#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>
#include <type_traits>

#include "worker/ops/elements.hpp"
#include "worker/ops/reduce.hpp"

namespace shoal::worker {

/// The type in which T is reduced: floats are summed in double, so that long sums keep their digits.
template <typename T>
using Accumulator = std::conditional_t<std::is_integral_v<T>, T, double>;

template <typename A>
inline constexpr A kHighest = std::is_integral_v<A> ? std::numeric_limits<A>::max() : std::numeric_limits<A>::infinity();
template <typename A>
inline constexpr A kLowest = std::is_integral_v<A> ? std::numeric_limits<A>::lowest() : -std::numeric_limits<A>::infinity();

/// The sum of two sums of squares; NaN if both are infinite.
template <typename A>
A joined_squares(A a, A b) {
  if constexpr (std::is_integral_v<A>)
    return wrapping(a, b, std::plus<>());
  else
    return a == kHighest<A> && b == kHighest<A> ? std::numeric_limits<A>::quiet_NaN() : a + b;
}

/// The root of the sum of squares of integers, as MXNet computes it: it divides by the largest number so far, in the type of the
/// elements, so that 3 and 4 give 4. Elements are added in their order.
template <typename A>
class IntegerNorm {
 public:
  void add(A x) {
    if (x == 0) return;
    const A size = x < 0 ? wrapping(A{0}, x, std::minus<>()) : x;
    if (scale_ < size) {
      squares_ = 1;
      scale_ = size;
    } else if (scale_ != 0) {  // 0: MXNet divides by it, if all numbers so far are the lowest one
      const A part = static_cast<A>(size / scale_);
      squares_ = wrapping(squares_, wrapping(part, part, std::multiplies<>()), std::plus<>());
    }
  }
  A result() const { return cut<A>(static_cast<double>(scale_) * std::sqrt(static_cast<double>(squares_))); }

 private:
  A scale_ = 0, squares_ = 0;
};

/// Returns run(start, step, join): the value of nothing, an object without state that adds an element to a value, and one that
/// adds the value of other elements.
template <typename A, typename Run>
auto with_fold(ReduceKind kind, Run with) {
  const auto run = [&](A start, auto step) { return with(start, step, step); };
  const auto add = [](A sum, A x) -> A { return wrapping(sum, x, std::plus<>()); };
  switch (kind) {
    case ReduceKind::kSum:
    case ReduceKind::kMean:
      return run(A{0}, add);
    case ReduceKind::kNorm1:
      return with(
          A{0}, [](A sum, A x) -> A { return wrapping(sum, x < 0 ? wrapping(A{0}, x, std::minus<>()) : x, std::plus<>()); }, add);
    case ReduceKind::kNorm2:  // of integers it is an IntegerNorm. MXNet scales by the largest number: two infinities give NaN
      return with(
          A{0}, [](A sum, A x) -> A { return joined_squares(sum, wrapping(x, x, std::multiplies<>())); },
          [](A sum, A x) -> A { return joined_squares(sum, x); });
    case ReduceKind::kNanSum:  // MXNet's compensated sum becomes NaN when numbers follow an infinity
      return run(A{0}, [](A sum, A x) -> A {
        if constexpr (!std::is_integral_v<A>) {
          if (x == x && std::isinf(sum)) return std::numeric_limits<A>::quiet_NaN();
        }
        return x != x ? sum : wrapping(sum, x, std::plus<>());
      });
    case ReduceKind::kProd:
      return run(A{1}, [](A product, A x) -> A { return wrapping(product, x, std::multiplies<>()); });
    case ReduceKind::kNanProd:
      return run(A{1}, [](A product, A x) -> A { return x != x ? product : wrapping(product, x, std::multiplies<>()); });
    case ReduceKind::kMax:  // NaN wins
      return run(kLowest<A>, [](A best, A x) -> A { return best != best || best > x ? best : x; });
    case ReduceKind::kMin:
      return run(kHighest<A>, [](A best, A x) -> A { return best != best || best < x ? best : x; });
  }
  std::abort();
}

/// sum / count, truncated if A is an integer type. The count is cut to A, as in MXNet. Any count is allowed: of no floats the
/// mean is NaN; of integers it is 0 where the count becomes 0 in A, where MXNet crashes.
template <typename A>
A mean_of(A sum, std::int64_t count) {
  if (std::is_integral_v<A> && static_cast<A>(count) == 0) return 0;
  using Wide = std::conditional_t<std::is_integral_v<A> && sizeof(A) < sizeof(count), std::int64_t, A>;
  return static_cast<A>(static_cast<Wide>(sum) / static_cast<Wide>(static_cast<A>(count)));
}

/// The result of `count` elements from the value that the steps have made of them.
template <typename A>
A result_of(ReduceKind kind, A value, std::int64_t count) {
  if (kind == ReduceKind::kMean) return mean_of(value, count);
  if (kind == ReduceKind::kNorm2) return static_cast<A>(std::sqrt(static_cast<double>(value)));
  return value;
}

/// Each of `size` elements, `stride` apart, becomes the sum of those up to it.
template <typename T>
void running_sum(const T* src, T* dst, std::int64_t size, std::int64_t stride) {
  Accumulator<T> sum = 0;
  for (std::int64_t i = 0; i < size; ++i) {
    sum = wrapping(sum, static_cast<Accumulator<T>>(static_cast<Compute<T>>(src[i * stride])), std::plus<>());
    dst[i * stride] = to_element<T>(sum);
  }
}

}  // namespace shoal::worker
