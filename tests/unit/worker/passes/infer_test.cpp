#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "shm/tensor/floats.hpp"
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

  ValueId input(const std::string& name, Shape shape = Shape::any()) {
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

// As without the branches, each result by itself.
TEST(Inference, LetsWhatBranchesMakeOfConstantsFollowTheTypeOfTheData) {
  const auto branch = [](double factor) {
    Builder body;
    const ValueId one = body.input("one"), data = body.input("data");
    const ValueId made = body.node("Scalar", ScalarAttributes{BinaryKind::kMul, factor}, {one});
    const ValueId computed = body.node("Scalar", ScalarAttributes{BinaryKind::kMul, factor}, {data});
    body.graph.outputs = {{"made", made}, {"computed", computed}};
    return body.graph;
  };
  Builder b;
  const ValueId data = b.input("data"), one = b.constant("one", DType::kFloat32, {2, 3}, 1.f);
  const ValueId made = b.node("If", {}, {b.constant("condition", DType::kInt32, {1}, std::int32_t{1}), one, data});
  Node& node = b.graph.nodes.back();
  node.bodies = {branch(2), branch(3)};
  const ValueId computed = b.graph.add_value({});
  node.outputs = {made, computed};
  const ValueId sum = b.node("Binary", BinaryAttributes{BinaryKind::kAdd}, {made, computed});
  const std::array specs{TensorSpec{"data", DType::kFloat16, {2, 3}}};
  const Status inferred = infer(b.graph, specs);
  ASSERT_TRUE(inferred.ok()) << inferred.to_string();
  EXPECT_EQ(b.graph.value(made).dtype, DType::kFloat32);
  EXPECT_EQ(b.graph.value(sum).dtype, DType::kFloat16);
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

TEST(Inference, RefusesOpenDimensions) {
  Builder b = small_convolution();
  const std::array specs{TensorSpec{"data", DType::kFloat32, {-1, 3, 4, 4}}};
  EXPECT_EQ(infer(b.graph, specs).code(), StatusCode::kInvalidArgument);
}

TEST(Inference, TakesEmptyTensorsAndScalars) {
  Builder b = small_convolution();
  const std::array none{TensorSpec{"data", DType::kFloat32, {0, 3, 4, 4}}};
  ASSERT_TRUE(infer(b.graph, none).ok());
  EXPECT_EQ(b.graph.value(b.graph.outputs[0].value).shape, (Shape{0, 4, 2, 2}));
  Builder scaled;
  scaled.node("Binary", BinaryAttributes{BinaryKind::kMul, true}, {scaled.input("x"), scaled.input("y")});
  const std::array scalars{TensorSpec{"x", DType::kFloat32, {0, 3}}, TensorSpec{"y", DType::kFloat32, {}}};
  ASSERT_TRUE(infer(scaled.graph, scalars).ok());
  EXPECT_EQ(scaled.graph.value(scaled.graph.outputs[0].value).shape, (Shape{0, 3}));
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

TEST(Inference, FollowsConstantsWithoutElements) {
  const auto shape_of = [](Builder& b) {
    const Status inferred = infer(b.graph, {});
    EXPECT_TRUE(inferred.ok()) << inferred.to_string();
    return b.graph.value(b.graph.outputs[0].value).shape;
  };
  const auto empty = [](Builder& b, Shape shape) { return b.constant("empty", DType::kFloat32, shape, 0.f); };
  Builder moved, split, mean, sum;
  moved.node("Transpose", TransposeAttributes{}, {empty(moved, {0, 4})});
  split.node("Split", SplitAttributes{.axis = 1, .parts = 1}, {empty(split, {0, 4})});
  mean.node("Reduce", ReduceAttributes{.kind = ReduceKind::kMean, .axes = {0}}, {empty(mean, {0, 4})});
  sum.node("Binary", BinaryAttributes{BinaryKind::kAdd, true}, {sum.input("data", {3}), empty(sum, {0, 1})});
  EXPECT_EQ(shape_of(moved), (Shape{4, 0}));
  EXPECT_EQ(shape_of(split), (Shape{0, 4}));
  EXPECT_EQ(shape_of(mean), Shape{4});
  EXPECT_EQ(shape_of(sum), (Shape{0, 3}));
}

// Kernels compute strides, which must not overflow.
TEST(Inference, RefusesEmptyTensorsWithHugeAxes) {
  constexpr std::int64_t kHuge = std::int64_t{1} << 62;
  const auto empty = [](Builder& b) { return b.constant("empty", DType::kFloat32, {0, kHuge, kHuge}, 0.f); };
  Builder flat, merged;
  flat.node("Flatten", {}, {empty(flat)});
  merged.node("Reshape", ReshapeAttributes{.shape = {0, -3}}, {empty(merged)});
  for (Builder* b : {&flat, &merged}) {
    b->graph.nodes[0].name = "odd";
    const Status status = infer(b->graph, {});
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.to_string();
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

/// The sizes of the output when the sizes of the input "data" (float32) are not known yet.
SymbolicShape sizes_of_output(Builder b, const std::shared_ptr<DimTable>& table, const SymbolicShape& data) {
  const Status inferred = infer_sizes(b.graph, table, std::array{SizedInput{"data", DType::kFloat32, data}});
  EXPECT_TRUE(inferred.ok()) << inferred.to_string();
  return b.graph.value(b.graph.outputs[0].value).sizes();
}

TEST(OpenSizes, AreExpressionsOfTheInputs) {
  const auto table = std::make_shared<DimTable>();
  const Dim n = table->symbol("n", {0, 64}), h = table->symbol("h", {1, 640});
  const SymbolicShape features = sizes_of_output(small_convolution(), table, {n, 3, h, 32});
  EXPECT_EQ(features, (SymbolicShape{n, 4, floor_div(h + 1, 2), 16}));
  Builder b = small_convolution();
  b.node("Flatten", {}, {b.graph.outputs[0].value});
  EXPECT_EQ(sizes_of_output(b, table, {n, 3, h, 32}), (SymbolicShape{n, floor_div(h + 1, 2) * 64}));
}

TEST(OpenSizes, KeepWhatACodeOfReshapeCopies) {
  const auto table = std::make_shared<DimTable>();
  const Dim n = table->symbol("n", {0, 64}), t = table->symbol("t", {1, 512});
  Builder b;
  const ValueId heads = b.node("Reshape", ReshapeAttributes{.shape = {0, 0, -4, 12, -1}}, {b.input("data")});
  b.node("Reshape", ReshapeAttributes{.shape = {-1, 64}},
         {b.node("SwapAxes", SwapAxesAttributes{.first = 1, .second = 2}, {heads})});
  EXPECT_EQ(sizes_of_output(b, table, {n, t, 768}), (SymbolicShape{n * t * 12, 64}));
}

TEST(OpenSizes, AreRefusedOnlyWhereTheyAreWrongForAll) {
  const auto table = std::make_shared<DimTable>();
  const Dim n = table->symbol("n", {1, 64}), m = table->symbol("m", {1, 64});
  const auto add = [&](const SymbolicShape& left, const SymbolicShape& right) {
    Builder b;
    b.node("Binary", BinaryAttributes{BinaryKind::kAdd}, {b.input("a"), b.input("b")});
    return infer_sizes(b.graph, table,
                       std::array{SizedInput{"a", DType::kFloat32, left}, SizedInput{"b", DType::kFloat32, right}});
  };
  EXPECT_TRUE(add({n, 2}, {m, 2}).ok());
  const std::string text = add({n, 2}, {n + 1, 2}).message();
  EXPECT_NE(text.find("'a' has shape nx2 but 'b' has (n + 1)x2"), std::string::npos) << text;
  EXPECT_FALSE(add({n, 2}, {65, 2}).ok());
}

TEST(OpenSizes, OfBroadcastTensorsAreThoseThatAreNotOne) {
  const auto table = std::make_shared<DimTable>();
  const Dim n = table->symbol("n", {2, 64}), m = table->symbol("m", {1, 64});
  const auto add = [&](const SymbolicShape& right) {
    Builder b;
    b.node("Binary", BinaryAttributes{BinaryKind::kAdd, true}, {b.input("a"), b.input("b")});
    const Status inferred = infer_sizes(
        b.graph, table, std::array{SizedInput{"a", DType::kFloat32, {n, 5}}, SizedInput{"b", DType::kFloat32, right}});
    EXPECT_TRUE(inferred.ok()) << inferred.to_string();
    return b.graph.value(b.graph.outputs[0].value).sizes();
  };
  EXPECT_EQ(add({1}), (SymbolicShape{n, 5}));
  EXPECT_EQ(add({m, 1}), (SymbolicShape{n, 5})) << "n is not 1";
  EXPECT_EQ(add({n, 5}), (SymbolicShape{n, 5}));
}

}  // namespace
}  // namespace shoal::worker
