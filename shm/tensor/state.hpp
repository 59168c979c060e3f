// The states of a model: how they must fit together, and the zeros that stand for those that a request leaves out.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "shoal/result.hpp"
#include "shoal/tensor.hpp"

namespace shoal {

/// The state whose input has that name; null if there is none.
const StatePair* find_state(std::span<const StatePair> state, std::string_view input);

/// The type and the shape of the zeros that stand for a state.
///   inputs  of the model, with their types and shapes
///   given   inputs of the request, in any order. An open dimension of the state becomes their batch: dimension
///           `pair.batch_axis` of the input that the pair names, or of the model's first input that is no state and no scalar
///   Errors  kInvalidArgument: the shape does not follow from these; names the state
Result<TensorSpec> zero_state(std::span<const TensorSpec> inputs, std::span<const StatePair> state, const StatePair& pair,
                              std::span<const TensorSpec> given);

/// Checks that each state is an output and an input of the model, and that both have its shape, and the same type.
///   inputs, outputs  of the model, with the shapes of one run
///   where            names the model in errors
///   Errors           kInvalidArgument: names 'state' and the tensor
Status check_state(std::span<const StatePair> state, std::span<const TensorSpec> inputs, std::span<const TensorSpec> outputs,
                   const std::string& where);

}  // namespace shoal
