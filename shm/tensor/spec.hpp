// Checks a tensor against the description of a model's input.
#pragma once

#include <set>
#include <span>
#include <string>
#include <string_view>

#include "shoal/result.hpp"
#include "shoal/tensor.hpp"

namespace shoal {

/// Compares dtype and shape with `spec`. A dimension of -1 allows any size within its range. Shape::any() allows every shape.
///   Errors  kInvalidArgument (names the input, its dtype or shape, and the allowed one; names the dimension if only a range is
///           exceeded)
Status check_matches(const TensorSpec& spec, DType dtype, const Shape& shape, std::string_view what = "input");

/// Whether a model has an input of that name, or ignores it.
///   model   its name, for the error
///   Errors  kInvalidArgument: names the inputs that it has
Status check_input_name(std::string_view model, std::span<const TensorSpec> inputs, std::span<const std::string> ignored,
                        std::string_view name);

/// Whether it has inputs of these names, or ignores them.
///   where   what has no such input, as the error says: "model 'resnet'"
///   Errors  kInvalidArgument: all names that it does not have, and the inputs that it has
Status check_input_names(std::string_view where, std::span<const TensorSpec> inputs, std::span<const std::string> ignored,
                         const std::set<std::string>& names);

/// "data, ids", for an error: at most 255 bytes.
std::string names_of(std::span<const TensorSpec> specs);
/// "data 1x3x224x224, ids 1x8", for an error: at most 255 bytes.
std::string names_and_shapes(std::span<const TensorSpec> specs);
/// The shape as text: "?x3x224..640x224..640".
std::string shape_text(const TensorSpec& spec);
/// Parses a range as in model.toml and on the command line, and writes it the same way: "224..640", "1..".
Result<DimRange> parse_range(std::string_view text);
std::string to_string(const DimRange& range);

}  // namespace shoal
