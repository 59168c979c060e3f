#include "worker/passes/patterns.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "worker/graph/operators.hpp"
#include "worker/ops/activation.hpp"
#include "worker/ops/arithmetic.hpp"
#include "worker/ops/convolution.hpp"
#include "worker/ops/fully_connected.hpp"
#include "worker/ops/normalization.hpp"
#include "worker/ops/unary.hpp"

namespace shoal::worker {
namespace {

using Kind = ElementFunction::Kind;

/// Graphs of float32 values, written node by node.
class Patterns : public ::testing::Test {
 protected:
  Patterns() : x_(value("x", {2, 8})) { graph_.inputs = {x_}; }
  ValueId value(const std::string& name, const Shape& shape) {
    return graph_.add_value({.name = name, .dtype = DType::kFloat32, .shape = shape, .constant = {}});
  }
  ValueId constant(const Shape& shape) {
    const ValueId id = value("constant", shape);
    graph_.value(id).constant = Constant{DType::kFloat32, shape, {}, nullptr};
    return id;
  }
  ValueId node(const Operator& op, std::vector<ValueId> inputs, Attributes attributes, int outputs = 1) {
    Node made{.op = &op, .name = "n", .attributes = std::move(attributes), .inputs = std::move(inputs)};
    for (int i = 0; i < outputs; ++i) made.outputs.push_back(value("y", {2, 8}));
    graph_.nodes.push_back(made);
    return made.outputs[0];
  }
  ValueId scalar(ValueId of, BinaryKind kind, double number) {
    return node(ops::kScalar, {of}, ScalarAttributes{.kind = kind, .scalar = number});
  }
  ValueId clip(ValueId of, double low, double high) { return node(ops::kClip, {of}, ClipAttributes{.min = low, .max = high}); }
  ValueId times(ValueId a, ValueId b) { return node(ops::kBinary, {a, b}, BinaryAttributes{.kind = BinaryKind::kMul}); }
  ValueId sigmoid(ValueId of) { return node(ops::kActivation, {of}, ActivationAttributes{.kind = ActivationKind::kSigmoid}); }
  ValueId norm(ValueId of, std::int64_t axis = 1) {
    return node(ops::kBatchNorm, {of, constant({8}), constant({8}), constant({8}), constant({8})},
                BatchNormAttributes{.axis = static_cast<int>(axis)}, 3);
  }
  void output(ValueId id) { graph_.outputs.push_back({"out", id}); }

  std::map<ValueId, Gate> gates() const { return find_gates(graph_, Readers(graph_)); }
  std::vector<NodeId> norms() const { return find_foldable_norms(graph_, Readers(graph_)); }

  Graph graph_;
  ValueId x_;
};

TEST_F(Patterns, ASwishIsAGate) {
  output(times(sigmoid(scalar(x_, BinaryKind::kMul, 1.702)), x_));
  const auto found = gates();
  ASSERT_EQ(found.size(), 1u);
  const Gate& gate = found.at(x_);
  EXPECT_EQ(gate.nodes, (std::vector<NodeId>{0, 1, 2}));
  ASSERT_EQ(gate.functions.size(), 1u);
  EXPECT_EQ(gate.functions[0].kind, Kind::kSwish);
  EXPECT_EQ(gate.functions[0].alpha, 1.702F);
}

TEST_F(Patterns, AHardSwishIsAGateWhereverTheDivisionStands) {
  output(times(x_, scalar(clip(scalar(x_, BinaryKind::kAdd, 3), 0, 6), BinaryKind::kDiv, 6)));
  auto found = gates();
  ASSERT_EQ(found.size(), 1u);
  ASSERT_EQ(found.at(x_).functions.size(), 1u);
  EXPECT_EQ(found.at(x_).functions[0].kind, Kind::kHardSwish);

  graph_.nodes.clear();
  graph_.outputs.clear();
  output(times(x_, clip(scalar(x_, BinaryKind::kAdd, 3), 0, 6)));  // divided later
  found = gates();
  ASSERT_EQ(found.size(), 1u);
  const Functions& functions = found.at(x_).functions;
  ASSERT_EQ(functions.size(), 2u);
  EXPECT_EQ(functions[0].kind, Kind::kHardSwish);
  EXPECT_EQ(functions[1].kind, Kind::kLinear);
  EXPECT_EQ(functions[1].alpha, 6);
}

TEST_F(Patterns, OtherProductsAreNoGates) {
  output(times(x_, clip(scalar(x_, BinaryKind::kAdd, 3), 0, 5)));
  EXPECT_TRUE(gates().empty()) << "another height";
  graph_.nodes.clear();
  graph_.outputs.clear();
  output(times(x_, x_));
  EXPECT_TRUE(gates().empty()) << "no gate";
}

TEST_F(Patterns, AGateThatSomebodyElseReadsIsNone) {
  const ValueId gate = sigmoid(x_);
  output(times(x_, gate));
  ASSERT_EQ(gates().size(), 1u);
  output(gate);
  EXPECT_TRUE(gates().empty());
  graph_.outputs.pop_back();
  output(x_);
  EXPECT_TRUE(gates().empty());
}

TEST_F(Patterns, FunctionsOfWholeNumbersAreNoGates) {
  output(times(x_, sigmoid(x_)));
  for (Value& each : graph_.values) each.dtype = DType::kInt32;
  EXPECT_TRUE(gates().empty());
}

TEST_F(Patterns, ANormBehindAConvolutionIsFolded) {
  output(norm(node(ops::kConvolution, {x_, constant({8, 8, 1, 1})}, ConvolutionAttributes{})));
  EXPECT_EQ(norms(), (std::vector<NodeId>{1, kNoNode}));
}

TEST_F(Patterns, ANormBehindAProductIsFoldedIfItsChannelsAreTheRows) {
  const ValueId product = node(ops::kFullyConnected, {x_, constant({8, 8}), constant({8})}, FullyConnectedAttributes{});
  output(norm(product));
  EXPECT_EQ(norms(), (std::vector<NodeId>{1, kNoNode}));
  graph_.value(product).shape = {2, 3, 8};
  EXPECT_EQ(norms(), (std::vector<NodeId>{kNoNode, kNoNode}));
}

TEST_F(Patterns, ANormIsNotFoldedIfAnythingElseNeedsWhatItReads) {
  const std::vector<NodeId> none = {kNoNode, kNoNode};
  const ValueId convolved = node(ops::kConvolution, {x_, constant({8, 8, 1, 1})}, ConvolutionAttributes{});
  const ValueId normed = norm(convolved);
  output(normed);
  output(convolved);
  EXPECT_EQ(norms(), none) << "an output";
  graph_.outputs.pop_back();
  output(graph_.nodes[1].outputs[1]);
  EXPECT_EQ(norms(), none) << "the mean is read";
  graph_.outputs.pop_back();
  EXPECT_NE(norms(), none);
  graph_.value(graph_.nodes[1].inputs[3]).constant.reset();
  EXPECT_EQ(norms(), none) << "a mean that is computed";
  graph_.value(graph_.nodes[1].inputs[3]).constant.emplace();
  graph_.nodes[1].attributes = BatchNormAttributes{.axis = 2};
  EXPECT_EQ(norms(), none) << "another axis";
}

TEST(ElementFunctions, LinearOnesBecomeOne) {
  Functions row;
  append(row, {Kind::kLinear, 2, 1});
  append(row, {Kind::kLinear, 3, 5});
  ASSERT_EQ(row.size(), 1u);
  EXPECT_EQ(row[0].alpha, 6);
  EXPECT_EQ(row[0].beta, 8);
  append(row, {Kind::kLinear, 1.0F / 6, -8.0F / 6 + 1});
  ASSERT_EQ(row.size(), 1u);
}

// x * -1 is -0 for x = 0, and x * -1 + 0 is 0.
TEST(ElementFunctions, AProductAddsNothing) {
  const auto addend_of = [](const Functions& row) { return row.at(0).beta; };
  const auto is_minus_zero = [](float x) { return x == 0 && std::signbit(x); };
  Node negative{.op = &ops::kUnary, .attributes = UnaryAttributes{UnaryKind::kNegative}};
  EXPECT_TRUE(is_minus_zero(addend_of(functions_of(negative))));
  for (const BinaryKind kind : {BinaryKind::kMul, BinaryKind::kDiv}) {
    const Node node{.op = &ops::kScalar, .attributes = ScalarAttributes{kind, -2}};
    EXPECT_TRUE(is_minus_zero(addend_of(functions_of(node))));
  }
  Functions row = functions_of(negative);
  append(row, {Kind::kLinear, -2, -0.0F});
  EXPECT_TRUE(is_minus_zero(addend_of(row)));
  append(row, {Kind::kLinear, 1, 0});
  EXPECT_FALSE(std::signbit(addend_of(row))) << "x + 0 is 0 for x = -0";
  append(row, {Kind::kLinear, 0.5, -0.0F});
  ASSERT_EQ(row.size(), 1u) << "x + 0";
  EXPECT_FALSE(std::signbit(addend_of(row)));
}

TEST(ElementFunctions, ARoundingStays) {
  Functions row;
  append(row, {Kind::kLinear, 1, 12582912});
  append(row, {Kind::kLinear, 1, -12582912});
  EXPECT_EQ(row.size(), 2u);
}

TEST(ElementFunctions, AFactorBehindAClipMovesBeforeIt) {
  Functions row;
  append(row, {Kind::kLinear, 1, 3});
  append(row, {Kind::kClip, 0, 6});
  append(row, {Kind::kLinear, -0.5, 0});
  ASSERT_EQ(row.size(), 2u);
  EXPECT_EQ(row[0].alpha, -0.5F);
  EXPECT_EQ(row[0].beta, -1.5F);
  EXPECT_EQ(row[1].alpha, -3);
  EXPECT_EQ(row[1].beta, 0);
}

}  // namespace
}  // namespace shoal::worker
