// Checks a tensor against the description of a model's input.
#pragma once

#include <string>
#include <string_view>

#include "shoal/result.hpp"
#include "shoal/tensor.hpp"

namespace shoal {

/// Compares dtype and shape with `spec`. A dimension of -1 allows any size within its range. Shape::any() allows every shape.
///   Errors  kInvalidArgument (names the input, its dtype or shape, and the allowed one; names the dimension if only a range is
///           exceeded)
Status check_matches(const TensorSpec& spec, DType dtype, const Shape& shape);

/// The shape as text: "?x3x224..640x224..640".
std::string shape_text(const TensorSpec& spec);
/// Parses a range as in model.toml and on the command line, and writes it the same way: "224..640", "1..".
Result<DimRange> parse_range(std::string_view text);
std::string to_string(const DimRange& range);

}  // namespace shoal
