// One MXNet operator by itself: from its name and attributes in a file to numbers, through the importer's lowering, the shape
// rules and the oracle kernels.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "tests/support/interpreter.hpp"
#include "tests/support/vectors.hpp"
#include "worker/graph/types.hpp"
#include "worker/import/mxnet/mxnet_lowering.hpp"

namespace shoal::worker::one_node {

using Texts = std::map<std::string, std::string>;

inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInfinity = std::numeric_limits<double>::infinity();
inline constexpr double kTolerance = 1e-6;  // float32 rounding of numbers near 1

/// Bools of a file or a client, which may be any bytes.
inline Tensor bools(const std::vector<unsigned char>& bytes) {
  Tensor made = Tensor::create(DType::kBool, {static_cast<std::int64_t>(bytes.size())}).value();
  std::memcpy(made.view().data, bytes.data(), bytes.size());
  return made;
}

template <typename T = float>
Tensor tensor(const Shape& shape, const std::vector<double>& values) {
  Tensor made = Tensor::create(kDTypeOf<T>, shape).value();
  for (std::size_t i = 0; i < values.size(); ++i) made.values<T>()[i] = static_cast<T>(values[i]);
  return made;
}

/// The MXNet operator by itself on these inputs.
inline Result<Tensors> apply(const std::string& op, const Texts& attributes, const std::vector<Tensor>& inputs) {
  MxnetNode node;
  node.op = op;
  node.name = "node";
  for (const auto& [key, text] : attributes) node.attributes[key] = text;
  Graph graph;
  Tensors named;
  for (const Tensor& input : inputs) {
    const std::string name = "in" + std::to_string(named.size());
    graph.inputs.push_back(graph.add_value({.name = name}));
    named.push_back({name, input});
  }
  AttributeReader reader(node);
  MemoryBudget budget{ImportLimits()};
  MxnetLowering lowering{graph, node, reader, budget, graph.inputs};
  const std::vector<ValueId> outputs = find_mxnet_operator(op)->lower(lowering);
  if (!reader.status().ok()) return reader.status();
  for (const ValueId id : outputs) {
    if (id != kNoValue) graph.outputs.push_back({"out" + std::to_string(graph.outputs.size()), id});
  }
  return testing::interpret(graph, named);
}

/// The first output, or another one, is of this shape and these values.
inline ::testing::AssertionResult gives(const std::string& op, const Texts& attributes, const std::vector<Tensor>& inputs,
                                        const Shape& shape, const std::vector<double>& values, std::size_t output = 0) {
  const auto outputs = apply(op, attributes, inputs);
  if (!outputs.ok()) return ::testing::AssertionFailure() << outputs.status().to_string();
  const Tensor& got = outputs->at(output).tensor;
  if (got.shape() != shape) return ::testing::AssertionFailure() << "shape " << got.shape().to_string();
  return testing::values_close(testing::as_doubles(got.view()), values, kTolerance);
}

inline ::testing::AssertionResult refuses(const std::string& op, const Texts& attributes, const std::vector<Tensor>& inputs,
                                          const std::string& word) {
  const auto outputs = apply(op, attributes, inputs);
  if (outputs.ok()) return ::testing::AssertionFailure() << "it ran";
  const std::string& message = outputs.status().message();
  for (const std::string& part : {op + " 'node'", word}) {
    if (message.find(part) == std::string::npos) return ::testing::AssertionFailure() << "no " << part << " in: " << message;
  }
  return ::testing::AssertionSuccess();
}

}  // namespace shoal::worker::one_node
