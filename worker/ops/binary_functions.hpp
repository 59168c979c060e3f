// The functions of two numbers that Binary and Scalar have. The oracle kernel and the kernels of devices share them.
#pragma once

#include <cmath>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <optional>
#include <type_traits>

#include "worker/ops/arithmetic.hpp"
#include "worker/ops/elements.hpp"

namespace shoal::worker {

/// a / b. Integer divisions that C leaves undefined give 0, so that no data crashes a worker.
template <typename T>
T quotient(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    const T divisor = load_once(&b);  // the client's memory is not read again
    if (divisor == 0) return 0;
    if (std::is_signed_v<T> && divisor == static_cast<T>(-1)) return static_cast<T>(0 - static_cast<std::make_unsigned_t<T>>(a));
    return static_cast<T>(a / divisor);
  } else {
    return a / b;
  }
}

/// The sign of the result is b's, as in Python; x mod 0 is 0.
template <typename T>
T modulo(T a, T b) {
  if (b == 0) return 0;
  const double rest = std::fmod(static_cast<double>(a), static_cast<double>(b));
  // In double the sum may be rounded to 2^63, which int64 cannot hold.
  return from_float<T>(rest != 0 && (rest < 0) != (b < 0) ? rest + static_cast<double>(b) : rest);
}

/// 1 or 0 as a number.
template <typename C>
constexpr C truth(bool value) {
  return value ? C{1} : C{0};
}

template <typename C>
C smooth_l1(C a, C b) {
  const Float<C> x = static_cast<Float<C>>(a), square = static_cast<Float<C>>(b) * static_cast<Float<C>>(b), border = 1 / square;
  return from_float<C>(x > border ? x - border / 2 : x < -border ? -x - border / 2 : x * x * square / 2);
}

/// |a| with the sign of b.
template <typename C>
C copy_sign(C a, C b) {
  if constexpr (std::is_integral_v<C>) {
    const C size = a < 0 ? wrapping(C{0}, a, std::minus<>()) : a;
    return b < 0 ? wrapping(C{0}, size, std::minus<>()) : size;
  } else {
    return std::copysign(a, b);
  }
}

/// Floats have none: the rule refuses them.
template <typename C>
C least_common_multiple(C a, C b) {
  if constexpr (std::is_integral_v<C>) {
    const auto size = [](C x) { return x < 0 ? 0 - static_cast<std::uint64_t>(x) : static_cast<std::uint64_t>(x); };
    const std::uint64_t x = size(load_once(&a)), y = size(load_once(&b));
    return x == 0 || y == 0 ? C{0} : static_cast<C>(x / std::gcd(x, y) * y);
  } else {
    return 0;
  }
}

/// A function of bits. Floats have none: the rule refuses them.
template <typename C, typename Function>
C of_bits(C a, C b, Function function) {
  if constexpr (std::is_integral_v<C>)
    return static_cast<C>(function(a, b));
  else
    return 0;
}

/// The kind that computes with the bytes of bools, for which logic takes every byte but 0 as true, what `kind` computes with the
/// numbers 0 and 1. None if the result would be no bool.
constexpr std::optional<BinaryKind> kind_of_bools(BinaryKind kind) {
  switch (kind) {
    case BinaryKind::kAdd:
    case BinaryKind::kMaximum:
    case BinaryKind::kBitOr:
    case BinaryKind::kLogicalOr:
      return BinaryKind::kLogicalOr;
    case BinaryKind::kMul:
    case BinaryKind::kMinimum:
    case BinaryKind::kLcm:
    case BinaryKind::kBitAnd:
    case BinaryKind::kLogicalAnd:
      return BinaryKind::kLogicalAnd;
    case BinaryKind::kNotEqual:
    case BinaryKind::kBitXor:
    case BinaryKind::kLogicalXor:
      return BinaryKind::kLogicalXor;
    case BinaryKind::kPower:
      return BinaryKind::kGreaterEqual;
    case BinaryKind::kEqual:
    case BinaryKind::kGreater:
    case BinaryKind::kGreaterEqual:
    case BinaryKind::kLesser:
    case BinaryKind::kLesserEqual:
      return kind;
    default:
      return std::nullopt;
  }
}

/// Returns run(function): an object without state that computes the kind for two numbers of type C, which is Compute<T>.
template <typename C, typename Run>
auto with_function(BinaryKind kind, Run run) {
  using F = Float<C>;
  switch (kind) {
    case BinaryKind::kAdd:
      return run([](C a, C b) -> C { return wrapping(a, b, std::plus<>()); });
    case BinaryKind::kSub:
      return run([](C a, C b) -> C { return wrapping(a, b, std::minus<>()); });
    case BinaryKind::kMul:
      return run([](C a, C b) -> C { return wrapping(a, b, std::multiplies<>()); });
    case BinaryKind::kDiv:
      return run([](C a, C b) -> C { return quotient(a, b); });
    case BinaryKind::kMod:
      return run([](C a, C b) -> C { return modulo(a, b); });
    case BinaryKind::kPower:
      return run([](C a, C b) -> C { return from_float<C>(std::pow(static_cast<F>(a), static_cast<F>(b))); });
    case BinaryKind::kHypot:
      return run([](C a, C b) -> C { return from_float<C>(std::hypot(static_cast<F>(a), static_cast<F>(b))); });
    case BinaryKind::kMaximum:
      return run([](C a, C b) -> C { return a != a || a > b ? a : b; });
    case BinaryKind::kMinimum:
      return run([](C a, C b) -> C { return a != a || a < b ? a : b; });
    case BinaryKind::kEqual:
      return run([](C a, C b) -> C { return truth<C>(a == b); });
    case BinaryKind::kNotEqual:
      return run([](C a, C b) -> C { return truth<C>(a != b); });
    case BinaryKind::kGreater:
      return run([](C a, C b) -> C { return truth<C>(a > b); });
    case BinaryKind::kGreaterEqual:
      return run([](C a, C b) -> C { return truth<C>(a >= b); });
    case BinaryKind::kLesser:
      return run([](C a, C b) -> C { return truth<C>(a < b); });
    case BinaryKind::kLesserEqual:
      return run([](C a, C b) -> C { return truth<C>(a <= b); });
    case BinaryKind::kLogicalAnd:
      return run([](C a, C b) -> C { return truth<C>(a != 0 && b != 0); });
    case BinaryKind::kLogicalOr:
      return run([](C a, C b) -> C { return truth<C>(a != 0 || b != 0); });
    case BinaryKind::kLogicalXor:
      return run([](C a, C b) -> C { return truth<C>((a != 0) != (b != 0)); });
    case BinaryKind::kSmoothL1:
      return run([](C a, C b) -> C { return smooth_l1(a, b); });
    case BinaryKind::kArctan2:
      return run([](C a, C b) -> C { return from_float<C>(std::atan2(static_cast<F>(a), static_cast<F>(b))); });
    case BinaryKind::kCopySign:
      return run([](C a, C b) -> C { return copy_sign(a, b); });
    case BinaryKind::kLdexp:
      return run([](C a, C b) -> C { return from_float<C>(static_cast<F>(a) * std::pow(F{2}, static_cast<F>(b))); });
    case BinaryKind::kLcm:
      return run([](C a, C b) -> C { return least_common_multiple(a, b); });
    case BinaryKind::kBitAnd:
      return run([](C a, C b) -> C { return of_bits(a, b, std::bit_and<>()); });
    case BinaryKind::kBitOr:
      return run([](C a, C b) -> C { return of_bits(a, b, std::bit_or<>()); });
    case BinaryKind::kBitXor:
      return run([](C a, C b) -> C { return of_bits(a, b, std::bit_xor<>()); });
  }
  std::abort();
}

/// A scalar as an element: cut to integers, rounded to narrow floats.
template <typename T>
Compute<T> scalar_as(double s) {
  return static_cast<Compute<T>>(from_float<T>(s));
}

}  // namespace shoal::worker
