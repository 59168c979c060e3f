// Tensors of float32 as tests write them: a shape and its numbers.
#pragma once

#include <algorithm>
#include <vector>

#include "shoal/tensor.hpp"

namespace shoal::worker::testing {

using Numbers = std::vector<float>;
struct ShapedNumbers {
  Shape shape;
  Numbers numbers;
  friend bool operator==(const ShapedNumbers&, const ShapedNumbers&) = default;
};

inline ShapedNumbers shaped_numbers_of(const Tensor& tensor) {
  const auto values = tensor.values<float>();
  return {tensor.shape(), {values.begin(), values.end()}};
}

inline Tensor float_tensor(const Shape& shape, const Numbers& numbers) {
  Tensor tensor = Tensor::create(DType::kFloat32, shape).value();
  std::ranges::copy(numbers, tensor.values<float>().begin());
  return tensor;
}

}  // namespace shoal::worker::testing
