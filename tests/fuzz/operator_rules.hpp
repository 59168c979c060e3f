// What random graphs know of each MXNet operator: texts of its attributes, and inputs that it needs.
#pragma once

#include <span>
#include <string_view>
#include <vector>

namespace shoal::fuzz {

/// How the text of an attribute is made.
enum class Kind {
  kSpatial,      ///< a tuple of sizes, one per axis of space: most often small, sometimes all of them large
  kPadding,      ///< the same from 0 on
  kSize,         ///< a small whole number
  kGroup,        ///< 1 or 2
  kAxis,         ///< an axis, may be negative
  kAxes,         ///< a tuple of axes
  kPermutation,  ///< all axes in some order
  kShape,        ///< reshape's codes
  kPositions,    ///< per axis a position, may be negative or None
  kSteps,        ///< per axis a step, may be negative or None
  kWidths,       ///< two widths per axis; none around the first two
  kReal,
  kFlag,
  kType,
  kWord,
};
struct Rule {
  const char* key;
  Kind kind;
  bool is_needed = false;
  std::vector<const char*> words = {};
};

/// The attributes of the operator with that main name. One that is not there has none, or only some that may be left out.
std::span<const Rule> rules_of(std::string_view op);

/// The inputs of an operator that rarely fits what the graph has. Each is one of
///   "*"                    a result from before
///   "w"                    a variable whose shape follows from the other inputs
///   "(2, 3)"               a float32 variable of that shape; "3 (2, 3)": of MXNet's type 3
///   "q" "q(2, 3)"          8 bits, made of a result or of a variable; the ranges of all these stand behind the last input
///   "i(2, 3)"              32 bits, likewise
/// Empty: those that the operator's definition says.
std::span<const char* const> operands_of(std::string_view op);

}  // namespace shoal::fuzz
