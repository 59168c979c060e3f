// One node by hand: what its rule and its oracle kernel make of tensors.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "shm/base/errors.hpp"
#include "tests/support/tensor_values.hpp"
#include "worker/graph/operators.hpp"

namespace shoal::worker::by_hand {

inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInfinity = std::numeric_limits<float>::infinity();

template <typename T>
Tensor tensor_of(const Shape& shape, const std::vector<T>& values) {
  Tensor tensor = Tensor::create(kDTypeOf<T>, shape).value();
  SHOAL_CHECK(std::cmp_equal(values.size(), shape.element_count()));
  for (std::size_t i = 0; i < values.size(); ++i) reinterpret_cast<T*>(tensor.view().data)[i] = values[i];
  return tensor;
}

/// The numbers 0, 1, 2, ...
template <typename T = float>
Tensor counted(const Shape& shape) {
  std::vector<T> values(static_cast<std::size_t>(shape.element_count()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<T>(static_cast<float>(i));
  return tensor_of<T>(shape, values);
}

/// Its results; of sizes that depend on data, those that it found.
inline Result<std::vector<Tensor>> run_node(const Operator& op, const Attributes& attributes, const std::vector<Tensor>& inputs,
                                            std::size_t outputs = 1) {
  const Node node{.op = &op,
                  .name = "n",
                  .attributes = attributes,
                  .inputs = std::vector<ValueId>(inputs.size()),
                  .outputs = std::vector<ValueId>(outputs)};
  DimTable table;
  std::vector<TypedValue> src, dst(outputs);
  std::vector<TensorView> from, to;
  for (const Tensor& tensor : inputs) {
    src.push_back({.name = "x", .dtype = tensor.dtype(), .shape = tensor.shape()});
    from.push_back(tensor.view());
  }
  for (TypedValue& value : dst) value = {.name = "y", .table = &table};
  SHOAL_RETURN_IF_ERROR(op.infer(node, src, dst));
  std::vector<Tensor> results;
  for (const TypedValue& value : dst) {
    SHOAL_ASSIGN_OR_RETURN(results.emplace_back(), Tensor::create(value.dtype, value.shape.bound()));
    to.push_back(results.back().view());
  }
  SHOAL_RETURN_IF_ERROR(run_oracle(node, from, to));
  for (std::size_t i = 0; i < outputs; ++i) {
    if (to[i].shape == results[i].shape()) continue;
    Tensor part = Tensor::create(to[i].dtype, to[i].shape).value();
    std::copy_n(to[i].data, part.size_bytes(), part.view().data);
    results[i] = part;
  }
  return results;
}

/// Expects one result of that shape and with these elements.
inline void expect_result(const Result<std::vector<Tensor>>& results, const Shape& shape, const std::vector<double>& values,
                          std::size_t output = 0) {
  ASSERT_TRUE(results.ok()) << results.status().to_string();
  const Tensor& result = results->at(output);
  EXPECT_EQ(result.shape(), shape);
  EXPECT_EQ(shoal::testing::as_doubles(result.view()), values);
}

/// Expects an error that names the node, and these parts.
inline void expect_error(const Result<std::vector<Tensor>>& results, const std::vector<std::string>& parts = {}) {
  ASSERT_FALSE(results.ok()) << "shape " << results->front().shape().to_string();
  const std::string text = results.status().to_string();
  EXPECT_NE(text.find("'n'"), std::string::npos) << text;
  for (const std::string& part : parts) EXPECT_NE(text.find(part), std::string::npos) << text;
}

}  // namespace shoal::worker::by_hand
