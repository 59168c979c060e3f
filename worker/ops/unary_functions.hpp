// The functions of one number that Unary and Activation have. The oracle kernels and the kernels of devices share them.
//
// A function of numbers is computed in the type of the elements. A function of reals is computed in floating point, also for
// integers (in double), whose result is cut. F is float or double.
#pragma once

#include <math.h>

#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>
#include <numbers>
#include <type_traits>

#include "worker/ops/activation.hpp"
#include "worker/ops/elements.hpp"
#include "worker/ops/unary.hpp"

namespace shoal::worker {

/// The x with erf(x) = y: Winitzki's approximation (within 0.2 %), then Newton's method in double.
inline double inverse_erf(double y) {
  if (!(std::abs(y) < 1)) return std::abs(y) == 1 ? std::copysign(HUGE_VAL, y) : std::nan("");
  constexpr double kA = 0.147;
  const double log = std::log1p(-y * y), half = 2 / (std::numbers::pi * kA) + log / 2;
  double x = std::copysign(std::sqrt(std::sqrt(half * half - log / kA) - half), y);
  for (int step = 0; step < 4; ++step) {
    // erfc keeps the digits that erf loses near 1.
    const double missing = y > 0 ? std::erfc(x) - (1 - y) : (1 + y) - std::erfc(-x);
    x += missing * std::sqrt(std::numbers::pi) / 2 * std::exp(x * x);
  }
  return x;
}

inline float log_gamma(float x) {
  int sign = 0;
  return ::lgammaf_r(x, &sign);  // std::lgamma writes a global variable
}
inline double log_gamma(double x) {
  int sign = 0;
  return ::lgamma_r(x, &sign);
}

/// The nearest integer, halves down.
template <typename F>
F rint_down(F x) {
  const F below = std::floor(x), above = std::ceil(x);
  return x - below <= above - x ? below : above;
}

/// A function that returns an integer unchanged.
template <typename C, auto kFunction>
struct Rounding {
  C operator()(C x) const {
    if constexpr (std::is_integral_v<C>)
      return x;
    else
      return kFunction(x);
  }
};

/// Of integers erfinv is a function of numbers too: it has only a few results.
constexpr bool is_of_reals(UnaryKind kind, bool of_integers) {
  return kind >= UnaryKind::kReciprocal && !(of_integers && kind == UnaryKind::kErfinv);
}
constexpr bool is_of_reals(ActivationKind kind, bool) { return kind != ActivationKind::kRelu; }

/// The type in which functions of reals are computed for numbers of type C: double for integers, whose results are cut.
template <typename C>
using RealOf = std::conditional_t<std::is_integral_v<C>, double, Float<C>>;

template <typename C>
bool is_infinite(C x) {
  if constexpr (std::is_integral_v<C>)
    return false;
  else
    return x == std::numeric_limits<C>::infinity() || x == -std::numeric_limits<C>::infinity();
}

/// Returns run(function): an object without state that computes the kind for a number of type C, which is Compute<T>.
///   kind  not of reals
template <typename C, typename Run>
auto with_function_of_numbers(UnaryKind kind, Run run) {
  using F = Float<C>;
  switch (kind) {
    case UnaryKind::kAbs:
      return run([](C x) -> C { return x < 0 ? wrapping(C{0}, x, std::minus<>()) : x == 0 ? C{0} : x; });
    case UnaryKind::kNegative:
      return run([](C x) -> C {
        if constexpr (std::is_integral_v<C>)
          return wrapping(C{0}, x, std::minus<>());
        else
          return -x;
      });
    case UnaryKind::kSign:
      return run([](C x) -> C { return static_cast<C>((x > 0) - (x < 0)); });
    case UnaryKind::kSquare:
      return run([](C x) -> C { return wrapping(x, x, std::multiplies<>()); });
    case UnaryKind::kLogicalNot:
      return run([](C x) -> C { return x == 0 ? C{1} : C{0}; });
    case UnaryKind::kFloor:
      return run(Rounding<C, [](F x) { return std::floor(x); }>());
    case UnaryKind::kCeil:
      return run(Rounding<C, [](F x) { return std::ceil(x); }>());
    case UnaryKind::kTrunc:
      return run(Rounding<C, [](F x) { return std::trunc(x); }>());
    case UnaryKind::kRound:
      return run(Rounding<C, [](F x) { return std::round(x); }>());
    case UnaryKind::kRint:
      return run(Rounding<C, rint_down<F>>());
    case UnaryKind::kBitNot:  // the rule refuses floats
      return run([](C x) -> C {
        if constexpr (std::is_integral_v<C>)
          return static_cast<C>(~x);
        else
          return x;
      });
    case UnaryKind::kIsNan:
      return run([](C x) -> C { return x != x ? C{1} : C{0}; });
    case UnaryKind::kIsInf:
      return run([](C x) -> C { return is_infinite(x) ? C{1} : C{0}; });
    case UnaryKind::kIsPosInf:
      return run([](C x) -> C { return is_infinite(x) && x > 0 ? C{1} : C{0}; });
    case UnaryKind::kIsNegInf:
      return run([](C x) -> C { return is_infinite(x) && x < 0 ? C{1} : C{0}; });
    case UnaryKind::kIsFinite:
      return run([](C x) -> C { return x == x && !is_infinite(x) ? C{1} : C{0}; });
    case UnaryKind::kErfinv:  // infinite for 1 and -1; MXNet makes 0 of the NaN beyond them
      return run(
          [](C x) -> C { return x == 1 || (std::is_signed_v<C> && x == static_cast<C>(-1)) ? from_float<C>(HUGE_VAL) : C{0}; });
    default:
      break;
  }
  std::abort();
}

/// Returns run(function): an object without state that computes the kind for an F and returns a float or double.
///   kind  of reals
template <typename F, typename Run>
auto with_function_of_reals(UnaryKind kind, Run run) {
  switch (kind) {
    case UnaryKind::kReciprocal:
      return run([](F x) { return 1 / x; });
    case UnaryKind::kSqrt:
      return run([](F x) { return std::sqrt(x); });
    case UnaryKind::kRsqrt:
      return run([](F x) { return 1 / std::sqrt(x); });
    case UnaryKind::kCbrt:
      return run([](F x) { return std::cbrt(x); });
    case UnaryKind::kRcbrt:
      return run([](F x) { return 1 / std::cbrt(x); });
    case UnaryKind::kExp:
      return run([](F x) { return std::exp(x); });
    case UnaryKind::kExpm1:
      return run([](F x) { return std::expm1(x); });
    case UnaryKind::kLog:
      return run([](F x) { return std::log(x); });
    case UnaryKind::kLog2:
      return run([](F x) { return std::log2(x); });
    case UnaryKind::kLog10:
      return run([](F x) { return std::log10(x); });
    case UnaryKind::kLog1p:
      return run([](F x) { return std::log1p(x); });
    case UnaryKind::kSin:
      return run([](F x) { return std::sin(x); });
    case UnaryKind::kCos:
      return run([](F x) { return std::cos(x); });
    case UnaryKind::kTan:
      return run([](F x) { return std::tan(x); });
    case UnaryKind::kArcsin:
      return run([](F x) { return std::asin(x); });
    case UnaryKind::kArccos:
      return run([](F x) { return std::acos(x); });
    case UnaryKind::kArctan:
      return run([](F x) { return std::atan(x); });
    case UnaryKind::kSinh:
      return run([](F x) { return std::sinh(x); });
    case UnaryKind::kCosh:
      return run([](F x) { return std::cosh(x); });
    case UnaryKind::kArcsinh:
      return run([](F x) { return std::asinh(x); });
    case UnaryKind::kArccosh:
      return run([](F x) { return std::acosh(x); });
    case UnaryKind::kArctanh:
      return run([](F x) { return std::atanh(x); });
    case UnaryKind::kDegrees:
      return run([](F x) { return x * static_cast<F>(180 / std::numbers::pi); });
    case UnaryKind::kRadians:
      return run([](F x) { return x * static_cast<F>(std::numbers::pi / 180); });
    case UnaryKind::kErf:
      return run([](F x) { return std::erf(static_cast<double>(x)); });
    case UnaryKind::kErfinv:
      return run([](F x) { return inverse_erf(x); });
    case UnaryKind::kGamma:
      return run([](F x) { return std::tgamma(x); });
    case UnaryKind::kGammaln:
      return run([](F x) { return log_gamma(x); });
    default:
      break;
  }
  std::abort();
}

/// As of UnaryKind.
template <typename C, typename Run>
auto with_function_of_numbers(ActivationKind, Run run) {
  return run([](C x) -> C { return x < 0 ? C{0} : x; });  // relu; NaN passes
}
template <typename F, typename Run>
auto with_function_of_reals(ActivationKind kind, Run run) {
  switch (kind) {
    case ActivationKind::kSigmoid:
      return run([](F x) { return 1 / (1 + std::exp(-x)); });
    case ActivationKind::kTanh:
      return run([](F x) { return std::tanh(x); });
    case ActivationKind::kSoftRelu:
      return run([](F x) { return x > 20 ? x : std::log1p(std::exp(x)); });
    case ActivationKind::kSoftSign:
      return run([](F x) { return x / (1 + std::abs(x)); });
    case ActivationKind::kRelu:
      break;
  }
  std::abort();
}

/// LeakyReLU but prelu: calls run(function), an object that computes it for a number of type F.
template <typename F, typename Run>
auto with_leaky_function(const LeakyAttributes& leaky, Run run) {
  constexpr double kScale = 1.0507009873554804934, kAlpha = 1.6732632423543772848;  // of selu
  const F slope = static_cast<F>(leaky.slope);
  switch (leaky.kind) {
    case LeakyKind::kLeaky:
      return run([slope](F x) -> F { return x > 0 ? x : slope * x; });
    case LeakyKind::kElu:
      return run([slope](F x) -> F { return x > 0 ? x : slope * std::expm1(x); });
    case LeakyKind::kSelu:
      return run([](F x) -> F { return F(kScale) * (x > 0 ? x : F(kAlpha) * std::expm1(x)); });
    case LeakyKind::kGelu:
      return run([](F x) -> F { return x / 2 * (1 + std::erf(x / std::sqrt(F{2}))); });
    case LeakyKind::kPrelu:
      break;
  }
  std::abort();
}

/// Numbers for NaN and infinities of type T: an object that computes it for numbers of Compute<T>.
template <typename T>
auto nan_to_num_function(const NanToNumAttributes& numbers) {
  using C = Compute<T>;
  const auto as_element = [](double value) { return static_cast<C>(from_float<T>(value)); };
  double most = 0;  // integers have no infinities
  if constexpr (!std::is_integral_v<T>) most = FloatLimits<T>::kHighest;
  const C nan = as_element(numbers.nan), highest = as_element(numbers.highest.value_or(most)),
          lowest = as_element(numbers.lowest.value_or(-most));
  return [nan, highest, lowest](C x) -> C { return x != x ? nan : !is_infinite(x) ? x : x > 0 ? highest : lowest; };
}

/// Rounding to decimals, for elements of type T: an object that computes it for numbers of Compute<T>.
template <typename T>
auto around_function(const AroundAttributes& around) {
  using C = Compute<T>;
  if constexpr (std::is_integral_v<C>) {
    const double power = std::pow(10.0, std::abs(static_cast<double>(around.decimals)));
    const bool is_whole = around.decimals >= 0, is_nothing = power > static_cast<double>(std::numeric_limits<C>::max());
    const C unit = is_whole || is_nothing ? C{1} : static_cast<C>(power);
    return [=](C x) -> C { return is_whole ? x : is_nothing ? C{0} : static_cast<C>(x - x % unit); };
  } else {
    const auto scaled = [](C x, std::int64_t decimals) {
      for (; decimals > 0; --decimals) x = static_cast<C>(to_element<T>(x * 10));
      for (; decimals < 0; ++decimals) x = static_cast<C>(to_element<T>(x / 10));
      return x;
    };
    return [scaled, decimals = around.decimals](C x) -> C { return scaled(std::nearbyint(scaled(x, decimals)), -decimals); };
  }
}

template <typename F>
F quadratic(const QuadraticAttributes& quadratic, F x) {
  return x * (static_cast<F>(quadratic.a) * x + static_cast<F>(quadratic.b)) + static_cast<F>(quadratic.c);
}

/// alpha x + beta, cut to 0 .. 1; NaN passes.
template <typename F>
F hard_sigmoid(const HardSigmoidAttributes& gate, F x) {
  const F line = static_cast<F>(gate.alpha) * x + static_cast<F>(gate.beta);
  return line > 1 ? F{1} : line < 0 ? F{0} : line;
}

}  // namespace shoal::worker
