// Writes MXNet checkpoints with computed parameters.
#pragma once

#include <filesystem>
#include <span>

#include "shoal/status.hpp"
#include "tools/make_model/parameter_rule.hpp"

namespace shoal::make_model {

/// Writes `params_file` as a list of V2 float32 arrays, one per rule. Keeps only one block of numbers in memory.
///   Errors  kInternal (directory missing, disk full; names the file)
Status write_params(const std::filesystem::path& params_file, std::span<const ParameterRule> rules);

/// Writes PREFIX-symbol.json (a copy of symbol_file) and PREFIX-0000.params.
Status write_checkpoint(const std::filesystem::path& symbol_file, std::span<const ParameterRule> rules,
                        const std::filesystem::path& prefix);

}  // namespace shoal::make_model
