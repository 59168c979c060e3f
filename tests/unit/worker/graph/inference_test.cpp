#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "worker/graph/floats.hpp"
#include "worker/graph/graph.hpp"
#include "worker/graph/operators.hpp"

namespace shoal::worker {
namespace {

/// Builds graphs by hand.
struct Builder {
  Graph graph;

  ValueId input(const std::string& name, Shape shape = {}) {
    Value value;
    value.name = name;
    value.shape = shape;
    graph.inputs.push_back(graph.add_value(value));
    return graph.inputs.back();
  }
  template <typename T>
  ValueId constant(const std::string& name, DType dtype, Shape shape, T fill) {
    auto bytes = std::make_shared<std::vector<T>>(static_cast<std::size_t>(shape.element_count()), fill);
    Value value;
    value.name = name;
    value.dtype = dtype;
    value.shape = shape;
    value.constant = Constant{dtype, shape, std::as_bytes(std::span(*bytes)), bytes};
    return graph.add_value(value);
  }
  ValueId node(const char* op, Attributes attributes, std::vector<ValueId> inputs) {
    Node node;
    node.op = find_operator(op);
    node.name = "layer";
    node.attributes = std::move(attributes);
    node.inputs = std::move(inputs);
    for (int i = 0; i < std::max(node.op->output_count, 1); ++i) node.outputs.push_back(graph.add_value({}));
    graph.nodes.push_back(node);
    graph.outputs = {{"out", node.outputs[0]}};
    return node.outputs[0];
  }
};

ConvolutionAttributes three_by_three() { return {{3, 3}, {2, 2}, {1, 1}, {1, 1}, 4, 1}; }

Builder small_convolution() {
  Builder b;
  const ValueId data = b.input("data");
  b.node("Convolution", three_by_three(), {data, b.constant("w", DType::kFloat16, {4, 3, 3, 3}, Half(0.5f))});
  return b;
}

TEST(Inference, FollowsShapesThroughLayers) {
  Builder b = small_convolution();
  const ValueId out = b.node("Flatten", {}, {b.graph.outputs[0].value});
  const std::array specs{TensorSpec{"data", DType::kFloat32, {2, 3, 9, 7}}};
  ASSERT_TRUE(infer(b.graph, specs).ok());
  EXPECT_EQ(b.graph.value(out).shape, (Shape{2, 80}));
}

TEST(Inference, NamesOperatorNodeTensorAndBothShapesOfAMisfit) {
  Builder b = small_convolution();
  b.graph.nodes[0].source_op = "Convolution_v1";
  const std::array specs{TensorSpec{"data", DType::kFloat32, {2, 5, 9, 9}}};
  const std::string text = infer(b.graph, specs).message();
  for (const char* part : {"Convolution_v1 'layer'", "'w'", "4x3x3x3", "4x5x3x3"})
    EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST(Inference, LetsStoredFloatsFollowTheTypeOfTheData) {
  Builder b = small_convolution();
  const std::array specs{TensorSpec{"data", DType::kFloat32, {1, 3, 4, 4}}};
  ASSERT_TRUE(infer(b.graph, specs).ok());
  const Value& weight = b.graph.value(b.graph.nodes[0].inputs[1]);
  EXPECT_EQ(weight.dtype, DType::kFloat32);
  float first = 0;
  std::memcpy(&first, weight.constant->bytes.data(), sizeof(first));
  EXPECT_EQ(first, 0.5f);
  EXPECT_EQ(b.graph.constant_bytes(), 4u * 27 * 4) << "the stored half is read by nobody now";
}

TEST(Inference, ConvertsAnewFromTheStoredConstantEachTime) {
  Builder b = small_convolution();
  const ValueId stored = b.graph.nodes[0].inputs[1];
  for (const DType dtype : {DType::kFloat64, DType::kFloat16, DType::kFloat32}) {
    const std::array specs{TensorSpec{"data", dtype, {1, 3, 4, 4}}};
    ASSERT_TRUE(infer(b.graph, specs).ok());
    const ValueId read = b.graph.nodes[0].inputs[1];
    EXPECT_EQ(b.graph.value(read).dtype, dtype);
    EXPECT_EQ(read == stored, dtype == DType::kFloat16);
  }
}

TEST(Inference, KeepsTheStatisticsOfBatchNormInFloat32ForHalfData) {
  Builder b;
  std::vector<ValueId> inputs{b.input("data")};
  for (const char* name : {"gamma", "beta", "mean", "var"}) inputs.push_back(b.constant(name, DType::kFloat32, {3}, 1.f));
  b.node("BatchNorm", BatchNormAttributes{}, inputs);
  const std::array specs{TensorSpec{"data", DType::kFloat16, {1, 3, 4}}};
  ASSERT_TRUE(infer(b.graph, specs).ok());
  EXPECT_EQ(b.graph.value(b.graph.nodes[0].outputs[0]).dtype, DType::kFloat16);
  EXPECT_EQ(b.graph.value(b.graph.nodes[0].outputs[2]).dtype, DType::kFloat32);
}

TEST(Inference, RefusesInputsTheModelDoesNotHave) {
  Builder b = small_convolution();
  const std::array specs{TensorSpec{"image", DType::kFloat32, {1, 3, 4, 4}}};
  const std::string text = infer(b.graph, specs).message();
  EXPECT_NE(text.find("'image'"), std::string::npos) << text;
  EXPECT_NE(text.find("'data'"), std::string::npos) << text;
}

TEST(Inference, NamesTheInputThatIsMissing) {
  Builder b = small_convolution();
  const std::string text = infer(b.graph, {}).message();
  EXPECT_NE(text.find("'data' is not given"), std::string::npos) << text;
}

TEST(Inference, TakesAShapeTheModelKnowsByItself) {
  Builder b;
  b.node("Flatten", {}, {b.input("data", {2, 3, 4})});
  ASSERT_TRUE(infer(b.graph, {}).ok());
  EXPECT_EQ(b.graph.value(b.graph.outputs[0].value).shape, (Shape{2, 12}));
}

TEST(Inference, AcceptsLabelsAndIgnoresThem) {
  Builder b = small_convolution();
  b.graph.ignored_inputs = {"label"};
  const std::array specs{TensorSpec{"data", DType::kFloat32, {1, 3, 4, 4}}, TensorSpec{"label", DType::kFloat32, {1}}};
  EXPECT_TRUE(infer(b.graph, specs).ok());
}

TEST(Inference, RefusesOpenAndEmptyDimensions) {
  Builder b = small_convolution();
  for (const std::int64_t dim : {0, -1}) {
    const std::array specs{TensorSpec{"data", DType::kFloat32, {dim, 3, 4, 4}}};
    EXPECT_EQ(infer(b.graph, specs).code(), StatusCode::kInvalidArgument);
  }
}

TEST(Inference, RefusesSizesThatOverflow) {
  Builder b;
  b.node("Flatten", {}, {b.input("data")});
  constexpr std::int64_t kHuge = std::int64_t{1} << 40;
  const std::array specs{TensorSpec{"data", DType::kFloat32, {kHuge, kHuge, kHuge}}};
  EXPECT_EQ(infer(b.graph, specs).code(), StatusCode::kInvalidArgument);
}

// No kernel has to think of tensors without elements: MXNet's valid graphs have none.
TEST(Inference, RefusesConstantsWithoutElements) {
  constexpr std::int64_t kHuge = std::int64_t{1} << 62;
  const auto empty = [](Builder& b, Shape shape) { return b.constant("empty", DType::kFloat32, shape, 0.f); };
  Builder moved, flat, merged, split, mean, slopes, sum;
  moved.node("Transpose", TransposeAttributes{}, {empty(moved, {0, 4})});
  flat.node("Flatten", {}, {empty(flat, {0, kHuge, kHuge})});
  merged.node("Reshape", ReshapeAttributes{.shape = {0, -3}}, {empty(merged, {0, kHuge, kHuge})});
  split.node("Split", SplitAttributes{.axis = 1, .parts = 1}, {empty(split, {0, 4})});
  mean.node("Reduce", ReduceAttributes{.kind = ReduceKind::kMean, .axes = {0}}, {empty(mean, {0, 4})});
  slopes.node("LeakyReLU", LeakyAttributes{.kind = LeakyKind::kPrelu}, {slopes.input("data", {3}), empty(slopes, {0})});
  sum.node("Binary", BinaryAttributes{BinaryKind::kAdd, true}, {sum.input("data", {3}), empty(sum, {0, 1})});
  for (Builder* b : {&moved, &flat, &merged, &split, &mean, &slopes, &sum}) {
    b->graph.nodes[0].name = "odd";
    const Status status = infer(b->graph, {});
    EXPECT_EQ(status.code(), StatusCode::kUnimplemented) << b->graph.nodes[0].op->name << ": " << status.to_string();
    EXPECT_NE(status.message().find("'odd': 'empty' of shape 0"), std::string::npos) << status.to_string();
  }
}

TEST(Inference, RefusesAScalarWhereSlopesLieAlongAnAxis) {
  Builder b;
  const ValueId scalar = b.constant("number", DType::kFloat32, {}, 1.f);
  b.node("LeakyReLU", LeakyAttributes{.kind = LeakyKind::kPrelu}, {scalar, b.constant("slopes", DType::kFloat32, {}, 1.f)});
  EXPECT_EQ(infer(b.graph, {}).code(), StatusCode::kInvalidArgument);
}

TEST(InferParameters, TellsShapesOfWeightsFromTheData) {
  Builder b;
  const ValueId data = b.input("data"), weight = b.input("w", {0, -1, 3, 3}), bias = b.input("b");
  b.node("Convolution", three_by_three(), {data, weight, bias});
  const std::array specs{TensorSpec{"data", DType::kFloat32, {1, 6, 8, 8}}};
  ASSERT_TRUE(infer_parameters(b.graph, specs).ok());
  EXPECT_EQ(b.graph.value(weight).shape, (Shape{4, 6, 3, 3}));
  EXPECT_EQ(b.graph.value(bias).shape, (Shape{4}));
}

TEST(Operators, AreFoundByTheirNames) {
  for (const Operator* op : all_operators()) EXPECT_EQ(find_operator(op->name), op);
  EXPECT_EQ(find_operator("NoSuchOperator"), nullptr);
}

}  // namespace
}  // namespace shoal::worker
