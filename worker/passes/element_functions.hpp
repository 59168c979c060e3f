// Functions of one number, and rows of them: what element-wise nodes compute, whatever operators an exporter wrote it with.
#pragma once

#include <vector>

#include "worker/graph/graph.hpp"

namespace shoal::worker {

/// A function of one float32 number x.
struct ElementFunction {
  enum class Kind : unsigned char {
    kLinear,     ///< alpha * x + beta; beta is -0 where nothing is added, so that zeros keep their sign
    kDivision,   ///< x / alpha, exactly
    kClip,       ///< the nearest number to x in [alpha, beta]
    kRelu,       ///< x if x > 0, else alpha * x
    kAbs,        ///< |x|
    kSquare,     ///< x * x
    kSqrt,       ///< square root of x
    kLogistic,   ///< 1 / (1 + exp(-x))
    kTanh,       ///< tanh(x)
    kGelu,       ///< x * (1 + erf(x / sqrt(2))) / 2
    kSwish,      ///< x / (1 + exp(-alpha * x))
    kHardSwish,  ///< x * clip(x + 3, 0, 6) / 6
  };
  Kind kind = Kind::kLinear;
  float alpha = 0, beta = 0;
};
/// Several functions, one after the other.
using Functions = std::vector<ElementFunction>;

/// The functions that the node applies to its one input; empty if it is another kind of node, or one that these cannot say.
Functions functions_of(const Node& node);
/// Appends a function to a row and keeps the row short. Consecutive linear functions become one, unless a rounding would be lost
/// (x + 2^23 - 2^23). A linear function after a clip moves into the linear function before it:
/// clip(x + 3, 0, 6) / 6 = clip(x / 6 + 0.5, 0, 1). Functions that cancel out leave an empty row.
void append(Functions& row, const ElementFunction& function);

inline bool is_division(const ElementFunction& function) { return function.kind == ElementFunction::Kind::kDivision; }
/// A division as a product. Within a gate (hard sigmoid, hard swish) the results are the same.
ElementFunction as_product(const ElementFunction& function);

}  // namespace shoal::worker
