// Unary, DivSqrtDim.
#include "worker/ops/unary.hpp"

#include <cmath>
#include <functional>
#include <numbers>

#include "shm/base/errors.hpp"
#include "worker/graph/shapes.hpp"
#include "worker/ops/elements.hpp"

namespace shoal::worker {
namespace {

/// The x with erf(x) = y: Winitzki's approximation (within 0.2 %), then Newton's method in double.
double inverse_erf(double y) {
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

float log_gamma(float x) {
  int sign = 0;
  return ::lgammaf_r(x, &sign);  // std::lgamma writes a global variable
}
double log_gamma(double x) {
  int sign = 0;
  return ::lgamma_r(x, &sign);
}

/// The nearest integer, halves down.
template <typename F>
F rint_down(F x) {
  const F below = std::floor(x), above = std::ceil(x);
  return x - below <= above - x ? below : above;
}

/// C is Compute<T>: an integer type or a float.
template <typename C>
using UnaryFunction = C (*)(C x);

/// A function that is computed in floating point for every C.
template <typename C, auto kFunction>
C floating(C x) {
  return from_float<C>(kFunction(static_cast<Float<C>>(x)));
}

/// A function that returns an integer unchanged.
template <typename C, auto kFunction>
C rounding(C x) {
  if constexpr (std::is_integral_v<C>)
    return x;
  else
    return kFunction(x);
}

template <typename C>
UnaryFunction<C> function_of(UnaryKind kind) {
  using F = Float<C>;
  switch (kind) {
    case UnaryKind::kAbs:
      return [](C x) { return x < 0 ? wrapping(C{0}, x, std::minus<>()) : x == 0 ? C{0} : x; };
    case UnaryKind::kNegative:
      return [](C x) {
        if constexpr (std::is_integral_v<C>)
          return wrapping(C{0}, x, std::minus<>());
        else
          return -x;
      };
    case UnaryKind::kSign:
      return [](C x) { return static_cast<C>((x > 0) - (x < 0)); };
    case UnaryKind::kSquare:
      return [](C x) { return wrapping(x, x, std::multiplies<>()); };
    case UnaryKind::kLogicalNot:
      return [](C x) { return x == 0 ? C{1} : C{0}; };
    case UnaryKind::kFloor:
      return rounding<C, [](F x) { return std::floor(x); }>;
    case UnaryKind::kCeil:
      return rounding<C, [](F x) { return std::ceil(x); }>;
    case UnaryKind::kTrunc:
      return rounding<C, [](F x) { return std::trunc(x); }>;
    case UnaryKind::kRound:
      return rounding<C, [](F x) { return std::round(x); }>;
    case UnaryKind::kRint:
      return rounding<C, rint_down<F>>;
    case UnaryKind::kReciprocal:
      return floating<C, [](F x) { return 1 / x; }>;
    case UnaryKind::kSqrt:
      return floating<C, [](F x) { return std::sqrt(x); }>;
    case UnaryKind::kRsqrt:
      return floating<C, [](F x) { return 1 / std::sqrt(x); }>;
    case UnaryKind::kCbrt:
      return floating<C, [](F x) { return std::cbrt(x); }>;
    case UnaryKind::kRcbrt:
      return floating<C, [](F x) { return 1 / std::cbrt(x); }>;
    case UnaryKind::kExp:
      return floating<C, [](F x) { return std::exp(x); }>;
    case UnaryKind::kExpm1:
      return floating<C, [](F x) { return std::expm1(x); }>;
    case UnaryKind::kLog:
      return floating<C, [](F x) { return std::log(x); }>;
    case UnaryKind::kLog2:
      return floating<C, [](F x) { return std::log2(x); }>;
    case UnaryKind::kLog10:
      return floating<C, [](F x) { return std::log10(x); }>;
    case UnaryKind::kLog1p:
      return floating<C, [](F x) { return std::log1p(x); }>;
    case UnaryKind::kSin:
      return floating<C, [](F x) { return std::sin(x); }>;
    case UnaryKind::kCos:
      return floating<C, [](F x) { return std::cos(x); }>;
    case UnaryKind::kTan:
      return floating<C, [](F x) { return std::tan(x); }>;
    case UnaryKind::kArcsin:
      return floating<C, [](F x) { return std::asin(x); }>;
    case UnaryKind::kArccos:
      return floating<C, [](F x) { return std::acos(x); }>;
    case UnaryKind::kArctan:
      return floating<C, [](F x) { return std::atan(x); }>;
    case UnaryKind::kSinh:
      return floating<C, [](F x) { return std::sinh(x); }>;
    case UnaryKind::kCosh:
      return floating<C, [](F x) { return std::cosh(x); }>;
    case UnaryKind::kArcsinh:
      return floating<C, [](F x) { return std::asinh(x); }>;
    case UnaryKind::kArccosh:
      return floating<C, [](F x) { return std::acosh(x); }>;
    case UnaryKind::kArctanh:
      return floating<C, [](F x) { return std::atanh(x); }>;
    case UnaryKind::kDegrees:
      return floating<C, [](F x) { return x * static_cast<F>(180 / std::numbers::pi); }>;
    case UnaryKind::kRadians:
      return floating<C, [](F x) { return x * static_cast<F>(std::numbers::pi / 180); }>;
    case UnaryKind::kErf:
      return floating<C, [](double x) { return std::erf(x); }>;  // of integers too, whose erf is 1 only beyond float's reach
    case UnaryKind::kErfinv:
      return floating<C, [](F x) { return inverse_erf(x); }>;
    case UnaryKind::kGamma:
      return floating<C, [](F x) { return std::tgamma(x); }>;
    case UnaryKind::kGammaln:
      return floating<C, [](F x) { return log_gamma(x); }>;
  }
  return nullptr;
}

Status compute_unary(const Node& node, Sources src, Results dst) {
  const UnaryKind kind = node.attributes.get<UnaryAttributes>().kind;
  return dispatch<Numbers>(node, src[0].dtype,
                           [&]<typename T>() { return map<T>(src[0], dst[0], function_of<Compute<T>>(kind)); });
}

Status compute_div_sqrt_dim(const Node& node, Sources src, Results dst) {
  const Shape& shape = src[0].shape;
  const double root = std::sqrt(static_cast<double>(row_length(shape)));
  return dispatch<Numbers>(node, src[0].dtype, [&]<typename T>() {
    using F = Float<T>;
    return map<T>(src[0], dst[0], [&](Compute<T> x) { return from_float<Compute<T>>(static_cast<F>(x) / static_cast<F>(root)); });
  });
}

bool div_sqrt_dim_rows(const BatchedNode& batched) { return batched.only_first_has_rows() && batched.rank() > 1; }

}  // namespace

namespace ops {

const Operator kUnary({
    .name = "Unary",
    .attributes = &kSchema<UnaryAttributes>,
    .infer = infer_numeric,
    .facts = elementwise_facts(rows_of_first_input),
    .oracle = compute_unary,
    .formula = "data: a function of each element. Integers are computed in float32 and truncated, unless the result is always "
               "whole. round: halves away from zero; rint: halves to the lower integer",
    .source = "MXNet 1.9.1 src/operator/mshadow_op.h",
});

const Operator kDivSqrtDim({
    .name = "DivSqrtDim",
    .infer = infer_numeric,
    .facts = layer_facts(div_sqrt_dim_rows),
    .oracle = compute_div_sqrt_dim,
    .formula = "data / sqrt(length of the last axis)",
    .source = "MXNet 1.9.1 src/operator/contrib/transformer.cc",
});

}  // namespace ops

}  // namespace shoal::worker
