// Kernels of the device cpu beside the oracle kernels.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "worker/exec/cpu/kernels/kernels.hpp"
#include "worker/graph/attribute_fields.hpp"

namespace shoal::worker::testing {

/// Numbers of any type: first the odd ones (zeros, extremes, halves, NaN, infinities), then noise, large and small.
Tensor odd_numbers(DType dtype, const Shape& shape, std::uint64_t seed = 1);
/// All types of a list.
template <typename... Ts>
std::vector<DType> types_of(Types<Ts...>) {
  return {kDTypeOf<Ts>...};
}

/// All kinds of a family of functions.
template <typename Kind>
std::vector<Kind> all_kinds() {
  std::vector<Kind> kinds;
  for (std::size_t i = 0; i < kWords<Kind>.size(); ++i) kinds.push_back(static_cast<Kind>(i));
  return kinds;
}

/// What one node gives.
struct Case {
  const Operator* op;
  Attributes attributes;
  std::vector<Tensor> src;
  int outputs = 1;
};
/// The kernel gives the bits of the oracle kernel, with one thread and with two; any NaN is as good as another. With a tolerance,
/// floats may be off by that, relative to the oracle's number or to 1.
::testing::AssertionResult as_oracle(const Case& given, double tolerance = 0);
/// The same with the result in the memory of input number `input`.
::testing::AssertionResult as_oracle_in_place(const Case& given, std::size_t input);

}  // namespace shoal::worker::testing
