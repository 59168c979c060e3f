// Binary, Scalar, AddN, Clip.
#pragma once

#include "worker/graph/operators.hpp"

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
};
template <>
inline constexpr std::array kWords<BinaryKind>{"add",         "sub",        "mul",           "div",      "mod",
                                               "power",       "maximum",    "minimum",       "hypot",    "equal",
                                               "not_equal",   "greater",    "greater_equal", "lesser",   "lesser_equal",
                                               "logical_and", "logical_or", "logical_xor",   "smooth_l1"};

struct BinaryAttributes {
  BinaryKind kind = BinaryKind::kAdd;
  bool broadcast = false;
  bool floats_only = false;
};
template <>
inline constexpr auto fields_of<BinaryAttributes> = std::tuple{
    field("kind", &BinaryAttributes::kind, "the function of two numbers"),
    field("broadcast", &BinaryAttributes::broadcast, "by NumPy's rule; else the shapes are equal"),
    field("floats_only", &BinaryAttributes::floats_only, "integers are refused"),
};

struct ScalarAttributes {
  BinaryKind kind = BinaryKind::kAdd;
  double scalar = 0;
  bool reversed = false;
  bool is_int = true;
  bool floats_only = false;
};
template <>
inline constexpr auto fields_of<ScalarAttributes> = std::tuple{
    field("kind", &ScalarAttributes::kind, "as of Binary"),
    field("scalar", &ScalarAttributes::scalar, "the number"),
    field("reversed", &ScalarAttributes::reversed, "the number is a, the data b"),
    field("is_int", &ScalarAttributes::is_int, "false: integer data becomes float64"),
    field("floats_only", &ScalarAttributes::floats_only, "integer data is refused"),
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
