#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "worker/graph/floats.hpp"
#include "worker/graph/graph.hpp"
#include "worker/graph/operators.hpp"
#include "worker/ops/activation.hpp"
#include "worker/ops/arithmetic.hpp"
#include "worker/ops/cast.hpp"
#include "worker/ops/convolution.hpp"
#include "worker/ops/fully_connected.hpp"
#include "worker/ops/movement.hpp"
#include "worker/ops/normalization.hpp"
#include "worker/ops/pooling.hpp"
#include "worker/ops/reduce.hpp"
#include "worker/ops/reshape.hpp"
#include "worker/ops/unary.hpp"
#include "worker/passes/infer.hpp"

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
    for (int i = 0; i < std::max(node.op->outputs.least, 1); ++i) node.outputs.push_back(graph.add_value({}));
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

// MXNet's types go backwards, too: what is made of parameters follows the data.
TEST(Inference, LetsWhatIsMadeOfConstantsFollowTheTypeOfTheData) {
  Builder b;
  const ValueId data = b.input("data"), one = b.constant("one", DType::kFloat32, {1, 3}, 1.f);
  const ValueId sum = b.node("Binary", BinaryAttributes{BinaryKind::kAdd}, {one, one});
  const ValueId scaled = b.node("Scalar", ScalarAttributes{BinaryKind::kMul, 0.5}, {sum});
  const ValueId left = b.node("Binary", BinaryAttributes{BinaryKind::kAdd, true}, {scaled, data});
  const ValueId both = b.node("Binary", BinaryAttributes{BinaryKind::kMul, true}, {left, scaled});
  for (const DType dtype : {DType::kFloat16, DType::kFloat64, DType::kFloat32}) {
    const std::array specs{TensorSpec{"data", dtype, {2, 3}}};
    const Status inferred = infer(b.graph, specs);
    ASSERT_TRUE(inferred.ok()) << inferred.to_string();
    EXPECT_EQ(b.graph.value(both).dtype, dtype);
    EXPECT_EQ(b.graph.value(scaled).dtype, DType::kFloat32) << "what is stored decides how it is computed";
  }
  const auto casts = std::ranges::count(b.graph.nodes, "Cast", [](const Node& node) { return node.op->name; });
  EXPECT_EQ(casts, 2) << "one for each other type, shared by both readers";
  for (std::size_t i = 0; i < b.graph.nodes.size(); ++i) {
    for (const ValueId id : b.graph.nodes[i].outputs) EXPECT_EQ(b.graph.value(id).producer, static_cast<NodeId>(i));
    for (const ValueId id : b.graph.nodes[i].inputs) EXPECT_LT(b.graph.value(id).producer, static_cast<NodeId>(i));
  }
}

TEST(Inference, LetsConstantsFollowWhatIsMadeOfConstantsWhereThereIsNoData) {
  Builder b;
  const ValueId wide = b.node("Cast", CastAttributes{DType::kFloat32}, {b.constant("half", DType::kFloat16, {3}, Half(1.f))});
  b.node("Binary", BinaryAttributes{BinaryKind::kAdd}, {wide, b.constant("other", DType::kFloat16, {3}, Half(1.f))});
  EXPECT_TRUE(infer(b.graph, {}).ok());
}

TEST(Inference, KeepsTheTypeOfTheComputedValueThatDecides) {
  Builder leaky, norm;
  const auto half = [](Builder& b) {
    return b.node("Cast", CastAttributes{DType::kFloat16}, {b.constant("wide", DType::kFloat32, {1, 3, 4}, 1.f)});
  };
  const ValueId x = half(leaky);
  leaky.node("LeakyReLU", LeakyAttributes{.kind = LeakyKind::kLeaky}, {x});
  std::vector<ValueId> inputs{half(norm)};
  for (const char* name : {"gamma", "beta", "mean", "var"}) inputs.push_back(norm.constant(name, DType::kFloat32, {3}, 1.f));
  norm.node("BatchNorm", BatchNormAttributes{}, inputs);
  for (Builder* b : {&leaky, &norm}) {
    const Status status = infer(b->graph, {});
    ASSERT_TRUE(status.ok()) << status.to_string();
    EXPECT_EQ(b->graph.value(b->graph.outputs[0].value).dtype, DType::kFloat16) << b->graph.nodes.back().op->name;
    EXPECT_EQ(b->graph.nodes.size(), 2u);
  }
}

// MXNet's BatchNorm has statistics of float32 for data of float16, whatever its parameters are computed from.
TEST(Inference, WidensParametersThatAreComputedFromConstants) {
  Builder norm, leaky, stored;
  const ValueId data = norm.constant("data", DType::kFloat16, {1, 3, 4}, Half(1.f));
  std::vector<ValueId> inputs{
      data, norm.node("Cast", CastAttributes{DType::kFloat16}, {norm.constant("wide", DType::kFloat32, {3}, 1.f)})};
  for (const char* name : {"beta", "mean", "var"}) inputs.push_back(norm.constant(name, DType::kFloat16, {3}, Half(1.f)));
  norm.node("BatchNorm", BatchNormAttributes{}, inputs);
  const ValueId slopes = leaky.node("Cast", CastAttributes{DType::kFloat16}, {leaky.constant("wide", DType::kFloat32, {3}, 1.f)});
  leaky.node("LeakyReLU", LeakyAttributes{.kind = LeakyKind::kPrelu},
             {leaky.constant("data", DType::kFloat16, {1, 3, 4}, Half(1.f)), slopes});
  std::vector<ValueId> constants{stored.constant("data", DType::kFloat16, {1, 3, 4}, Half(1.f))};
  for (const char* name : {"gamma", "beta", "mean", "var"})
    constants.push_back(stored.constant(name, DType::kFloat16, {3}, Half(1.f)));
  stored.node("BatchNorm", BatchNormAttributes{}, constants);
  for (Builder* b : {&norm, &leaky, &stored}) {
    const Status status = infer(b->graph, {});
    ASSERT_TRUE(status.ok()) << status.to_string();
    const Node& last = b->graph.nodes.back();
    EXPECT_EQ(b->graph.value(last.outputs[0]).dtype, DType::kFloat16) << last.op->name << ": the data's";
    for (std::size_t i = 1; i < last.inputs.size(); ++i)
      EXPECT_EQ(b->graph.value(last.inputs[i]).dtype, DType::kFloat32) << last.op->name << ", input " << i;
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

// What infer() says of the graph; every part must stand in it.
void expect_refusal(Builder& b, std::span<const TensorSpec> specs, std::initializer_list<std::string_view> parts) {
  const Status status = infer(b.graph, specs);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.to_string();
  for (const std::string_view part : parts) EXPECT_NE(status.message().find(part), std::string::npos) << status.to_string();
}

constexpr std::int64_t kLongest = std::int64_t{1} << 44;  // the longest axis there is

TEST(InferenceLimits, RefusesAConcatOfMoreReferencesThanAnAxisMayHaveElements) {
  Builder b;
  const ValueId data = b.input("data");
  b.node("Concat", ConcatAttributes{0}, std::vector<ValueId>(std::size_t{1} << 19, data));
  const std::array specs{TensorSpec{"data", DType::kUInt8, {kLongest}}};
  expect_refusal(b, specs, {"Concat 'layer'", "axis 0", "524288 inputs"});
}

TEST(InferenceLimits, ConcatenatesManyReferencesThatFit) {
  Builder b;
  const ValueId data = b.input("data");
  const ValueId out = b.node("Concat", ConcatAttributes{0}, std::vector<ValueId>(std::size_t{1} << 19, data));
  const std::array specs{TensorSpec{"data", DType::kUInt8, {3}}};
  ASSERT_TRUE(infer(b.graph, specs).ok());
  EXPECT_EQ(b.graph.value(out).shape, (Shape{3 << 19}));
}

TEST(InferenceLimits, RefusesAWindowOverAPaddedImageTooLargeToCount) {
  constexpr std::int64_t kHuge = 2147483647;
  const std::array specs{TensorSpec{"data", DType::kFloat32, {1, 1, 2, 2, 2}}};
  Builder pooled, convolved;
  PoolingAttributes pool{.kind = PoolingKind::kAvg};
  pool.kernel = pool.stride = pool.pad = {kHuge, kHuge, kHuge};
  pooled.node("Pooling", pool, {pooled.input("data")});
  expect_refusal(pooled, specs, {"Pooling 'layer'", "pad (2147483647, 2147483647, 2147483647)", "'data' (1x1x2x2x2)"});
  ConvolutionAttributes conv{{1, 1, 1}, {kHuge, kHuge, kHuge}, {1, 1, 1}, {kHuge, kHuge, kHuge}, 1, 1};
  const ValueId data = convolved.input("data");
  convolved.node("Convolution", conv, {data, convolved.constant("w", DType::kFloat32, {1, 1, 1, 1, 1}, 1.f)});
  expect_refusal(convolved, specs, {"Convolution 'layer'", "pad (2147483647, 2147483647, 2147483647)"});
}

// Graphs need not come from an importer, which keeps attributes within 32 bits.
TEST(InferenceLimits, RefusesWindowsWithNumbersBeyond32Bits) {
  constexpr std::int64_t kBeyond = std::int64_t{1} << 62;
  const std::array specs{TensorSpec{"data", DType::kFloat32, {1, 1, 4}}};
  for (Dims PoolingAttributes::*dims : {&PoolingAttributes::kernel, &PoolingAttributes::stride, &PoolingAttributes::pad}) {
    Builder b;
    PoolingAttributes pool{.convention = PoolingConvention::kFull, .kernel = {1}, .stride = {1}, .pad = {0}};
    pool.*dims = {kBeyond};
    b.node("Pooling", pool, {b.input("data")});
    expect_refusal(b, specs, {"Pooling 'layer'", "4611686018427387904"});
  }
  for (Dims ConvolutionAttributes::*dims : {&ConvolutionAttributes::kernel, &ConvolutionAttributes::stride,
                                            &ConvolutionAttributes::dilate, &ConvolutionAttributes::pad}) {
    Builder b;
    ConvolutionAttributes conv{{3}, {1}, {1}, {0}, 1, 1};
    conv.*dims = {kBeyond};
    const ValueId data = b.input("data");
    b.node("Convolution", conv, {data, b.constant("w", DType::kFloat32, {1, 1, 3}, 1.f)});
    expect_refusal(b, specs, {"Convolution 'layer'", "4611686018427387904"});
  }
  Builder padded;
  padded.node("Pad", PadAttributes{.widths = {0, 0, 0, 0, 0, 0, kBeyond, kBeyond}}, {padded.input("data", {1, 1, 1, 4})});
  expect_refusal(padded, {}, {"Pad 'layer'", "pad_width", "4611686018427387904"});
}

TEST(InferenceLimits, RefusesAGraphWhoseTensorsTogetherAreTooLarge) {
  Builder b;
  ValueId last = b.input("data");
  for (int i = 0; i < 2; ++i) last = b.node("Unary", UnaryAttributes{UnaryKind::kAbs}, {last});
  const std::array specs{TensorSpec{"data", DType::kFloat64, {kLongest / 2}}};
  expect_refusal(b, specs, {"Unary 'layer'", "together"});
}

TEST(InferenceLimits, CountsInputsThatAreNotGiven) {
  Builder b;
  b.node("Unary", UnaryAttributes{UnaryKind::kAbs}, {b.input("first", {kLongest / 2})});
  b.input("second", {kLongest / 2});
  b.input("third", {1});
  expect_refusal(b, {}, {"together"});
}

TEST(InferenceLimits, RefusesDeclaredInputsThatAreTooLarge) {
  Builder b;
  const ValueId data = b.input("data", {-1, std::int64_t{1} << 62, std::int64_t{1} << 62}), weight = b.input("w");
  b.node("FullyConnected", FullyConnectedAttributes{.num_hidden = 2}, {data, weight});
  const Status status = infer_parameters(b.graph, {});
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.to_string();
}

TEST(InferenceLimits, NamesSomeOfManyInputs) {
  Builder b;
  for (int i = 0; i < 100000; ++i) b.input("input" + std::to_string(i));
  const std::string text = infer(b.graph, {}).message();
  EXPECT_NE(text.find("'input0'"), std::string::npos) << text;
  EXPECT_LT(text.size(), 4096u);
}

TEST(Slices, OfOneAxisTwiceAreRefused) {
  Builder b;
  const SliceRange first{.axis = 1, .begin = 1, .end = 3, .step = 1}, again{.axis = -1, .begin = 2, .end = 4, .step = 1};
  b.node("Slice", SliceAttributes{{first, again}}, {b.input("data", {2, 4})});
  expect_refusal(b, {}, {"Slice 'layer'", "axis -1 is listed twice", "'data' has shape 2x4"});
}

TEST(Slices, OfOneElementHaveNoStepToSpeakOf) {
  const AxisSlice one = resolve({.axis = 0, .begin = 1, .end = {}, .step = 2147483647}, 4);
  EXPECT_EQ(one.count, 1);
  EXPECT_EQ(one.step, 1);  // times the stride of an axis, the given one could overflow
  const AxisSlice back = resolve({.axis = 0, .begin = {}, .end = {}, .step = std::numeric_limits<std::int64_t>::min()}, 4);
  EXPECT_EQ(back.begin, 3);
  EXPECT_EQ(back.count, 1);
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

}  // namespace
}  // namespace shoal::worker
