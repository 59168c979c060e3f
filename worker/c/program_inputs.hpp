// Which inputs of a symbol a program is given at each invocation, by the flags of MXNet's cached operator.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "shoal/result.hpp"
#include "shoal/tensor.hpp"

namespace shoal::c {

/// The flags that say something.
struct ProgramFlags {
  std::optional<std::vector<std::size_t>> data_indices, param_indices;
};

/// Checks all keys and values of MXCreateCachedOpEX.
///   Errors  kInvalidArgument: names the key, and its value or the keys that there are
Result<ProgramFlags> program_flags(const char* const* keys, const char* const* values, std::size_t count);

/// The names of what an invocation is given, by place.
///   variables  all inputs of the symbol, parameters and labels included, in the order of MXNet's list_inputs
///   inputs     those of the model: the parameters hold no value of them
///   labels     inputs without effect
///   Errors     kInvalidArgument: names the flag, the position and the input
Result<std::vector<std::string>> program_inputs(const ProgramFlags& flags, const std::vector<std::string>& variables,
                                                const std::vector<TensorSpec>& inputs, const std::vector<std::string>& labels);

}  // namespace shoal::c
