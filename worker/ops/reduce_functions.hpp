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

/// Returns run(start, step): the value of nothing, and an object without state that adds an element to a value.
template <typename A, typename Run>
auto with_fold(ReduceKind kind, Run run) {
  switch (kind) {
    case ReduceKind::kSum:
    case ReduceKind::kMean:
      return run(A{0}, [](A sum, A x) -> A { return wrapping(sum, x, std::plus<>()); });
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

/// sum / count, truncated if A is an integer type. Any count is allowed: of no floats it is NaN, of no integers 0.
template <typename A>
A mean_of(A sum, std::int64_t count) {
  if (std::is_integral_v<A> && count == 0) return 0;
  using Wide = std::conditional_t<std::is_integral_v<A> && sizeof(A) < sizeof(count), std::int64_t, A>;
  return static_cast<A>(static_cast<Wide>(sum) / static_cast<Wide>(count));
}

}  // namespace shoal::worker
