// What the requests of a measurement bring.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "shoal/client.hpp"

namespace shoal::tool {

/// Parses "data=1x3x224x224"; "data=scalar" is one number. Errors: kInvalidArgument (names the argument).
Result<std::vector<TensorSpec>> parse_shapes(std::span<const std::string> arguments);

/// Loans a tensor for each input that a request must bring, and fills it: with the bytes of `files` if it is there, else with
/// random numbers in [0, 1), integers 0 or 1.
///   shapes  of inputs whose sizes are open; a size that nobody gives is 1, a shape that nobody gives is 4
///   Errors  kInvalidArgument (names all inputs of files and shapes that the model does not have), those of Client::loan()
Result<Tensors> make_inputs(const Client& client, const ModelInfo& info, const Tensors& files, std::span<const TensorSpec> shapes,
                            std::uint64_t seed);

}  // namespace shoal::tool
