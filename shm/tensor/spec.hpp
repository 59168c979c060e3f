// Does a tensor fit what a model says of its input?
#pragma once

#include <string>
#include <string_view>

#include "shoal/result.hpp"
#include "shoal/tensor.hpp"

namespace shoal {

/// Compares dtype and shape with `spec`; -1 takes any size within its range, and a spec of rank 0 any shape: the model's files
/// say nothing of it.
///   Errors  kInvalidArgument naming the input, what it is and what it should be; the dimension, when only its range is missed
Status check_matches(const TensorSpec& spec, DType dtype, const Shape& shape);

/// The shape as it is written for people: "?x3x224..640x224..640".
std::string shape_text(const TensorSpec& spec);
/// The sizes as it is written in model.toml and on the command line, and as shape_text() says it: "224..640", "1..".
Result<DimRange> parse_range(std::string_view text);
std::string to_string(const DimRange& range);

}  // namespace shoal
