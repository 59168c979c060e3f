// Does a tensor fit what a model says of its input?
#pragma once

#include "shoal/result.hpp"
#include "shoal/tensor.hpp"

namespace shoal {

/// Compares dtype and shape with `spec`; -1 takes any size, and a spec of rank 0 any shape: the model's files say nothing of it.
///   Errors  kInvalidArgument naming the input, what it is and what it should be
Status check_matches(const TensorSpec& spec, DType dtype, const Shape& shape);

}  // namespace shoal
