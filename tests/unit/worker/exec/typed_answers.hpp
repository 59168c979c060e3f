// What programs answer whose tensors are of any type, as doubles.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "worker/exec/model.hpp"

namespace shoal::worker::testing {

struct TypedAnswer {
  std::vector<std::vector<double>> outputs;
  std::vector<std::string> implementations;  ///< of the steps
  std::size_t arena_bytes = 0;
};

/// A tensor of numbers of any type: element i is number(i), rounded.
Tensor tensor_of_numbers(const TensorSpec& spec, const std::function<double(std::int64_t)>& number);
TypedAnswer run_typed(const Program& program, Context& context, const std::vector<Tensor>& inputs);
bool runs_oracle_kernel(const TypedAnswer& answer);

}  // namespace shoal::worker::testing
