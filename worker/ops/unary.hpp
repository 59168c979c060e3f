// Unary, DivSqrtDim, Quadratic, NanToNum, Around.
#pragma once

#include <optional>

#include "worker/graph/operators.hpp"

namespace shoal::worker {

namespace ops {
extern const Operator kUnary, kDivSqrtDim, kQuadratic, kNanToNum, kAround;
}  // namespace ops

enum class UnaryKind {
  kAbs,
  kNegative,
  kSign,
  kSquare,
  kLogicalNot,
  kFloor,
  kCeil,
  kTrunc,
  kRound,   ///< halves away from zero
  kRint,    ///< halves to the lower integer
  kBitNot,  ///< of integers and bools
  kIsNan,   ///< this and the next ones give 1 or 0
  kIsInf,
  kIsPosInf,
  kIsNegInf,
  kIsFinite,
  kReciprocal,
  kSqrt,
  kRsqrt,
  kCbrt,
  kRcbrt,
  kExp,
  kExpm1,
  kLog,
  kLog2,
  kLog10,
  kLog1p,
  kSin,
  kCos,
  kTan,
  kArcsin,
  kArccos,
  kArctan,
  kSinh,
  kCosh,
  kArcsinh,
  kArccosh,
  kArctanh,
  kDegrees,
  kRadians,
  kErf,
  kErfinv,
  kGamma,
  kGammaln,
};
template <>
inline constexpr std::array kWords<UnaryKind>{
    "abs",   "negative", "sign",     "square",   "logical_not", "floor",      "ceil",    "trunc", "round",  "rint",   "bit_not",
    "isnan", "isinf",    "isposinf", "isneginf", "isfinite",    "reciprocal", "sqrt",    "rsqrt", "cbrt",   "rcbrt",  "exp",
    "expm1", "log",      "log2",     "log10",    "log1p",       "sin",        "cos",     "tan",   "arcsin", "arccos", "arctan",
    "sinh",  "cosh",     "arcsinh",  "arccosh",  "arctanh",     "degrees",    "radians", "erf",   "erfinv", "gamma",  "gammaln"};

/// Both are then the same.
constexpr bool takes_bools(UnaryKind kind) { return kind == UnaryKind::kLogicalNot || kind == UnaryKind::kBitNot; }

struct QuadraticAttributes {
  float a = 0, b = 0, c = 0;
};
template <>
inline constexpr auto fields_of<QuadraticAttributes> = std::tuple{
    field("a", &QuadraticAttributes::a, ""),
    field("b", &QuadraticAttributes::b, ""),
    field("c", &QuadraticAttributes::c, ""),
};

struct NanToNumAttributes {
  double nan = 0;
  std::optional<double> highest, lowest;
};
template <>
inline constexpr auto fields_of<NanToNumAttributes> = std::tuple{
    field("nan", &NanToNumAttributes::nan, "for NaN"),
    field("highest", &NanToNumAttributes::highest, "for infinity; none: the largest number of the type"),
    field("lowest", &NanToNumAttributes::lowest, "for minus infinity; none: the lowest number of the type"),
};

struct AroundAttributes {
  std::int64_t decimals = 0;
};
template <>
inline constexpr auto fields_of<AroundAttributes> = std::tuple{
    field("decimals", &AroundAttributes::decimals, "how many stay behind the point; negative: tens, hundreds ... stay"),
};

struct UnaryAttributes {
  UnaryKind kind = UnaryKind::kAbs;
};
template <>
inline constexpr auto fields_of<UnaryAttributes> = std::tuple{
    field("kind", &UnaryAttributes::kind, "the function"),
};

}  // namespace shoal::worker
