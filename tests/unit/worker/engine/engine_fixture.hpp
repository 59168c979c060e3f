// A model on disk for tests of the engine: it multiplies by three.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "shoal/engine.hpp"
#include "tests/support/checkpoint.hpp"
#include "tests/support/scratch_directory.hpp"

namespace shoal {

inline Tensor tensor_of(const Shape& shape, std::vector<float> values) {
  Tensor tensor = Tensor::create(DType::kFloat32, shape).value();
  std::ranges::copy(values, tensor.values<float>().begin());
  return tensor;
}

class EngineTest : public ::testing::Test {
 protected:
  EngineTest() { test::write_checkpoint(directory_, "net", {{"_mul_scalar", "times3", {{"scalar", "3"}}, {}}}, "[-1, 2]"); }
  const test::ScratchDirectory scratch_;
  const std::filesystem::path directory_ = scratch_.path();
};

}  // namespace shoal
