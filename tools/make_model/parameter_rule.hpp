// The parameters that a graph needs, with offset and scale of each.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/result.hpp"
#include "shoal/tensor.hpp"

namespace shoal::make_model {

/// One line of NAME-parameters.txt: a key with its prefix arg: or aux:, offset, scale and shape.
struct ParameterRule {
  std::string key;
  float offset = 0, scale = 0;
  Shape shape;

  std::string_view name() const { return std::string_view(key).substr(4); }
};

/// Reads NAME-parameters.txt: "arg:conv0_weight 0 0.20203051 64 3 7 7".
///   Errors  kNotFound, kInvalidArgument (names file and line)
Result<std::vector<ParameterRule>> read_parameter_rules(const std::filesystem::path& path);

/// The parameters of a -symbol.json: arguments in the graph's order, then auxiliary states. The role in the name gives offset and
/// scale (weights by fan-in, gammas around 1, last layers of residual branches damped). Shapes follow from those of the inputs.
///   Errors  those of the importer and of shape inference; kInvalidArgument (the name of a parameter shows no role)
Result<std::vector<ParameterRule>> derive_parameter_rules(const std::filesystem::path& symbol_file,
                                                          std::span<const TensorSpec> inputs);

}  // namespace shoal::make_model
