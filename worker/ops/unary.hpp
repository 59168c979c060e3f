// Unary, DivSqrtDim, Quadratic.
#pragma once

#include "worker/graph/operators.hpp"

namespace shoal::worker {

namespace ops {
extern const Operator kUnary, kDivSqrtDim, kQuadratic;
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
  kRound,  ///< halves away from zero
  kRint,   ///< halves to the lower integer
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
    "abs",        "negative", "sign",    "square",  "logical_not", "floor",  "ceil",   "trunc",  "round", "rint",
    "reciprocal", "sqrt",     "rsqrt",   "cbrt",    "rcbrt",       "exp",    "expm1",  "log",    "log2",  "log10",
    "log1p",      "sin",      "cos",     "tan",     "arcsin",      "arccos", "arctan", "sinh",   "cosh",  "arcsinh",
    "arccosh",    "arctanh",  "degrees", "radians", "erf",         "erfinv", "gamma",  "gammaln"};

struct QuadraticAttributes {
  float a = 0, b = 0, c = 0;
};
template <>
inline constexpr auto fields_of<QuadraticAttributes> = std::tuple{
    field("a", &QuadraticAttributes::a, ""),
    field("b", &QuadraticAttributes::b, ""),
    field("c", &QuadraticAttributes::c, ""),
};

struct UnaryAttributes {
  UnaryKind kind = UnaryKind::kAbs;
  bool floats_only = false;
};
template <>
inline constexpr auto fields_of<UnaryAttributes> = std::tuple{
    field("kind", &UnaryAttributes::kind, "the function"),
    field("floats_only", &UnaryAttributes::floats_only, "integers are refused"),
};

}  // namespace shoal::worker
