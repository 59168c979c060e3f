#include "worker/passes/element_functions.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

#include "worker/ops/activation.hpp"
#include "worker/ops/arithmetic.hpp"
#include "worker/ops/unary.hpp"

namespace shoal::worker {
namespace {

using Kind = ElementFunction::Kind;

ElementFunction linear(double alpha, double beta) { return {Kind::kLinear, static_cast<float>(alpha), static_cast<float>(beta)}; }
/// x * alpha. It adds -0, which changes no number, because 0 would lose the sign of a zero.
ElementFunction product(double alpha) { return linear(alpha, -0.0); }
bool adds_nothing(const ElementFunction& linear) { return linear.beta == 0 && std::signbit(linear.beta); }

Functions activation(const ActivationAttributes& attributes) {
  switch (attributes.kind) {
    case ActivationKind::kRelu:
      return {{Kind::kRelu}};
    case ActivationKind::kSigmoid:
      return {{Kind::kLogistic}};
    case ActivationKind::kTanh:
      return {{Kind::kTanh}};
    case ActivationKind::kSoftRelu:
    case ActivationKind::kSoftSign:
      return {};
  }
  return {};
}

Functions leaky(const LeakyAttributes& attributes) {
  const auto slope = static_cast<float>(attributes.slope);
  switch (attributes.kind) {
    case LeakyKind::kLeaky:
      if (slope == 0) return {};  // for -inf this gives NaN, and a relu gives 0
      return {{Kind::kRelu, slope}};
    case LeakyKind::kGelu:
      return {{Kind::kGelu}};
    case LeakyKind::kElu:  // exp(x) - 1 would lose the digits near 0
    case LeakyKind::kSelu:
    case LeakyKind::kPrelu:
      return {};
  }
  return {};
}

/// For a power of two, x / s and x * (1 / s) are the same number. For others they are not: floor(41 * (1 / 41)) is 0.
bool is_power_of_two(float s) {
  int exponent = 0;
  return std::isnormal(s) && std::isnormal(1 / s) && std::abs(std::frexp(s, &exponent)) == 0.5F;
}

Functions scalar(const ScalarAttributes& attributes) {
  const auto s = static_cast<float>(attributes.scalar);
  switch (attributes.kind) {
    case BinaryKind::kAdd:
      return {linear(1, s)};
    case BinaryKind::kSub:
      return {attributes.reversed ? linear(-1, s) : linear(1, -s)};
    case BinaryKind::kMul:
      return {product(s)};
    case BinaryKind::kDiv:
      if (attributes.reversed) return {};
      return {is_power_of_two(s) ? product(1.0 / s) : ElementFunction{Kind::kDivision, s}};
    case BinaryKind::kPower:
      return !attributes.reversed && s == 2 ? Functions{{Kind::kSquare}} : Functions{};
    default:
      return {};
  }
}

Functions unary(const UnaryAttributes& attributes) {
  switch (attributes.kind) {
    case UnaryKind::kAbs:
      return {{Kind::kAbs}};
    case UnaryKind::kNegative:
      return {product(-1)};
    case UnaryKind::kSquare:
      return {{Kind::kSquare}};
    case UnaryKind::kSqrt:
      return {{Kind::kSqrt}};
    default:
      return {};
  }
}

bool is(const ElementFunction& function, Kind wanted) { return function.kind == wanted; }

/// Does the row end in a gate of that height: clip(x + 3, 0, 6), or a hard swish with that factor?
bool ends_in_gate(const Functions& row, float height) {
  if (row.size() < 2) return false;
  const ElementFunction &before = row[row.size() - 2], &last = row.back();
  const bool is_clip = is(before, Kind::kLinear) && is(last, Kind::kClip) && last.alpha == 0;
  const bool is_swish = is(before, Kind::kHardSwish) && is(last, Kind::kLinear) && last.beta == 0;
  return (is_clip && last.beta == height) || (is_swish && last.alpha == height);
}

/// Do the two numbers nearly cancel? x + 12582912 - 12582912 rounds x to a whole number. Such a rounding is intended, so the
/// two additions must not become one.
bool cancels(double a, double b) {
  constexpr double kLeastLeft = 1.0 / 16;
  return (a != 0 || b != 0) && std::abs(a + b) < kLeastLeft * std::max(std::abs(a), std::abs(b));
}

/// outer(inner(x)) as one linear function. Empty if it is not linear, not the same in float32 (but for the sign of a zero: -(x +
/// 3) becomes -x - 3), or not finite.
std::optional<ElementFunction> compose(const ElementFunction& inner, const ElementFunction& outer) {
  if (!is(inner, Kind::kLinear) || !is(outer, Kind::kLinear)) return std::nullopt;
  const double moved = static_cast<double>(outer.alpha) * inner.beta, beta = outer.beta;
  if (cancels(moved, beta)) return std::nullopt;
  const ElementFunction both = linear(static_cast<double>(outer.alpha) * inner.alpha, adds_nothing(inner) ? beta : moved + beta);
  if (!std::isnormal(both.alpha) || !std::isfinite(both.beta)) return std::nullopt;
  return both;
}

}  // namespace

ElementFunction as_product(const ElementFunction& function) {
  return is_division(function) && std::isnormal(1 / function.alpha) ? product(1.0 / function.alpha) : function;
}

void append(Functions& row, const ElementFunction& given) {
  const ElementFunction next = is_division(given) && ends_in_gate(row, given.alpha) ? as_product(given) : given;
  const std::size_t size = row.size();
  if (size >= 1) {
    if (const auto both = compose(row[size - 1], next)) {
      row.pop_back();
      if (both->alpha != 1 || !adds_nothing(*both)) row.push_back(*both);
      return;
    }
  }
  if (size >= 2 && is(row[size - 1], Kind::kClip)) {
    if (const auto both = compose(row[size - 2], next)) {
      ElementFunction& clip = row[size - 1];
      float low = next.alpha * clip.alpha + next.beta, high = next.alpha * clip.beta + next.beta;
      if (next.alpha < 0) std::swap(low, high);
      row[size - 2] = *both;
      clip = {Kind::kClip, low, high};
      return;
    }
  }
  row.push_back(next);
}

Functions functions_of(const Node& node) {
  const auto& attributes = node.attributes;
  if (const auto* const given = attributes.get_if<ActivationAttributes>()) return activation(*given);
  if (const auto* const given = attributes.get_if<LeakyAttributes>()) return leaky(*given);
  if (const auto* const given = attributes.get_if<ScalarAttributes>()) return scalar(*given);
  if (const auto* const given = attributes.get_if<UnaryAttributes>()) return unary(*given);
  if (const auto* const given = attributes.get_if<HardSigmoidAttributes>()) {
    return {linear(given->alpha, given->beta), {Kind::kClip, 0, 1}};
  }
  if (const auto* const given = attributes.get_if<ClipAttributes>()) {
    if (given->min > given->max) return {};  // no clip: for x between max and min, MXNet gives max
    return {{Kind::kClip, static_cast<float>(given->min), static_cast<float>(given->max)}};
  }
  return {};
}

}  // namespace shoal::worker
