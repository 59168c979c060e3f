// Binary, Scalar, AddN, Clip.
#pragma once

#include "worker/graph/operators.hpp"
#include "worker/graph/promotion.hpp"

namespace shoal::worker {

namespace ops {
extern const Operator kBinary, kScalar, kAddN, kClip;
}  // namespace ops

/// A function of two numbers a and b. Comparisons and logic give 0 or 1 in the type of the operands.
enum class BinaryKind {
  kAdd,
  kSub,
  kMul,
  kDiv,
  kMod,  ///< the sign of b, as in Python; a mod 0 is 0
  kPower,
  kMaximum,  ///< NaN when a or b is NaN
  kMinimum,
  kHypot,
  kEqual,
  kNotEqual,
  kGreater,
  kGreaterEqual,
  kLesser,
  kLesserEqual,
  kLogicalAnd,
  kLogicalOr,
  kLogicalXor,
  kSmoothL1,  ///< b^2 a^2 / 2 where |a| <= 1 / b^2, else |a| - 1 / (2 b^2)
  kArctan2,   ///< the angle of the point (b, a)
  kCopySign,  ///< |a| with the sign of b
  kLdexp,     ///< a 2^b
  kLcm,       ///< the least common multiple; of 0 it is 0
  kBitAnd,
  kBitOr,
  kBitXor,
};
template <>
inline constexpr std::array kWords<BinaryKind>{
    "add",       "sub",       "mul",      "div",           "mod",    "power",        "maximum",     "minimum",    "hypot",
    "equal",     "not_equal", "greater",  "greater_equal", "lesser", "lesser_equal", "logical_and", "logical_or", "logical_xor",
    "smooth_l1", "arctan2",   "copysign", "ldexp",         "lcm",    "bit_and",      "bit_or",      "bit_xor"};
/// Floats have no such function.
constexpr bool is_of_integers(BinaryKind kind) { return kind >= BinaryKind::kLcm; }

struct BinaryAttributes {
  BinaryKind kind = BinaryKind::kAdd;
  bool broadcast = false;
  Promotion promotion = Promotion::kNone;
};
template <>
inline constexpr auto fields_of<BinaryAttributes> = std::tuple{
    field("kind", &BinaryAttributes::kind, "the function of two numbers"),
    field("broadcast", &BinaryAttributes::broadcast, "by NumPy's rule; else the shapes are equal"),
    field("promotion", &BinaryAttributes::promotion, "what a and b become, as in MXNet's NumPy interface"),
};

struct ScalarAttributes {
  BinaryKind kind = BinaryKind::kAdd;
  double scalar = 0;
  bool reversed = false;
  bool is_int = true;
  Promotion promotion = Promotion::kNone;
};
template <>
inline constexpr auto fields_of<ScalarAttributes> = std::tuple{
    field("kind", &ScalarAttributes::kind, "as of Binary"),
    field("scalar", &ScalarAttributes::scalar, "the number"),
    field("reversed", &ScalarAttributes::reversed, "the number is a, the data b"),
    field("is_int", &ScalarAttributes::is_int, "false: integer data becomes float64, unless the function is one of integers"),
    field("promotion", &ScalarAttributes::promotion, "what the data becomes, as of Binary"),
};

struct ClipAttributes {
  double min = 0, max = 0;
};
template <>
inline constexpr auto fields_of<ClipAttributes> = std::tuple{
    field("min", &ClipAttributes::min, ""),
    field("max", &ClipAttributes::max, "wins if it is less than `min`"),
};

}  // namespace shoal::worker
