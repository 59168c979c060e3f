// Writes MXNet checkpoints with computed parameters.
#pragma once

#include <filesystem>
#include <span>
#include <vector>

#include "shoal/result.hpp"
#include "shoal/tensor.hpp"
#include "tools/make_model/parameter_rule.hpp"

namespace shoal::make_model {

/// Reads a parameter file whose arrays belong to the network, such as the anchors of a detector. Names are keys ("arg:anchors").
///   Errors  those of the importer; kInvalidArgument (an array is not float32)
Result<std::vector<NamedTensor>> read_constants(const std::filesystem::path& params_file);

/// Writes `params_file` as a list of V2 float32 arrays: one per rule, then the `constants`, which are float32 and whose names are
/// keys ("arg:anchors"). Keeps only one block of the rules' numbers in memory.
///   Errors  kInternal (directory missing, disk full; names the file)
Status write_params(const std::filesystem::path& params_file, std::span<const ParameterRule> rules,
                    std::span<const NamedTensor> constants = {});

/// Writes PREFIX-symbol.json (a copy of symbol_file) and PREFIX-0000.params.
Status write_checkpoint(const std::filesystem::path& symbol_file, std::span<const ParameterRule> rules,
                        const std::filesystem::path& prefix, std::span<const NamedTensor> constants = {});

}  // namespace shoal::make_model
