// Sizes that a file leaves to the readers of a value: the begin states of unrolled cells.
#include <gtest/gtest.h>

#include <array>

#include "tests/unit/worker/exec/graph_builder.hpp"
#include "worker/exec/padding.hpp"
#include "worker/ops/cast.hpp"
#include "worker/ops/creation.hpp"
#include "worker/ops/indexing.hpp"
#include "worker/ops/movement.hpp"
#include "worker/ops/reshape.hpp"
#include "worker/passes/constant_folding.hpp"
#include "worker/passes/infer.hpp"

namespace shoal::worker {
namespace {

using testing::GraphBuilder;
using testing::spec;

ValueId zeros(GraphBuilder& b, Dims shape) {
  return b.node("Fill", {}, FillAttributes{.shape = std::move(shape), .dtype = DType::kFloat32});
}

/// The shape of the value when the graph's input "data" has that one; any() if there is an error.
Shape shape_of(Graph& graph, ValueId id, const Shape& data, DType dtype = DType::kFloat32) {
  const std::array inputs{TensorSpec{"data", dtype, data}};
  const Status status = infer(graph, inputs);
  EXPECT_TRUE(status.ok()) << status.to_string();
  return status.ok() ? graph.value(id).shape : Shape::any();
}

TEST(OpenSizes, FollowFromWhatReadsThem) {
  GraphBuilder b;
  const ValueId data = b.input("data"), state = zeros(b, {kOpenSize, 4});
  b.output(b.add(b.fully_connected(data, 3, 5), b.fully_connected(state, 4, 5)));
  Graph graph = b.graph();
  for (const std::int64_t batch : {2, 7, 1, 0}) EXPECT_EQ(shape_of(graph, state, {batch, 3}), (Shape{batch, 4})) << batch;
}

// Two halves of an axis; one size from the other, which is found later; a size in a shape that is turned.
TEST(OpenSizes, AreFoundThroughOtherOperators) {
  GraphBuilder b;
  const ValueId data = b.input("data");
  const ValueId half = zeros(b, {kOpenSize, 3}), first = zeros(b, {3, kOpenSize}), second = zeros(b, {kOpenSize, kOpenSize});
  b.output(b.add(data, b.concat({half, half}, 0)));
  const ValueId turned = b.node("Transpose", {b.add(first, second)}, TransposeAttributes{});
  b.output(b.add(data, turned));
  Graph graph = b.graph();
  EXPECT_EQ(shape_of(graph, half, {6, 3}), (Shape{3, 3}));
  EXPECT_EQ(graph.value(first).shape, (Shape{3, 6}));
  EXPECT_EQ(graph.value(second).shape, (Shape{3, 6}));
}

TEST(OpenSizes, OfARangeAreItsCount) {
  GraphBuilder b;
  const ValueId range = b.node("Range", {}, RangeAttributes{.count = kOpenSize, .dtype = DType::kFloat32});
  b.output(b.add(b.input("data"), range));
  Graph graph = b.graph();
  EXPECT_EQ(shape_of(graph, range, {7}), Shape{7});
  EXPECT_EQ(shape_of(graph, range, {3}), Shape{3});
}

TEST(OpenSizes, FollowTheTypeOfTheDataLikeConstants) {
  GraphBuilder b;
  const ValueId state = zeros(b, {kOpenSize, 3}), sum = b.add(b.input("data"), state);
  b.output(sum);
  Graph graph = b.graph();
  for (const DType dtype : {DType::kFloat16, DType::kFloat32, DType::kFloat64}) {
    EXPECT_EQ(shape_of(graph, state, {2, 3}, dtype), (Shape{2, 3}));
    EXPECT_EQ(graph.value(sum).dtype, dtype);
  }
}

TEST(OpenSizes, ThatNobodySaysAreRefused) {
  GraphBuilder b;
  b.output(b.activation(zeros(b, {kOpenSize, 4})));
  Graph graph = b.graph();
  const std::string text = infer(graph, {}).message();
  for (const char* part : {"Fill", "axis 0", "open"}) EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST(OpenSizes, ThatCannotBeRightAreErrorsOfTheReader) {
  GraphBuilder b;
  const ValueId data = b.input("data"), state = zeros(b, {kOpenSize, 3});
  b.output(b.add(data, state));
  b.output(b.add(b.concat({data, data}, 0), state));
  b.output(b.add(data, b.concat({state, state}, 0)));
  Graph graph = b.graph();
  const std::array inputs{spec("data", {3, 3})};
  const Status status = infer(graph, inputs);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.to_string();
  EXPECT_NE(status.message().find("Binary"), std::string::npos) << status.to_string();
}

TEST(OpenSizes, ThatDependOnDataAreRefused) {
  GraphBuilder b;
  const ValueId data = b.input("data"), kept = b.node("BooleanMask", {data, data});
  b.output(b.add(kept, zeros(b, {kOpenSize})));
  Graph graph = b.graph();
  const std::array inputs{spec("data", {3})};
  const Status status = infer(graph, inputs);
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented) << status.to_string();
  EXPECT_NE(status.message().find("depends on data"), std::string::npos) << status.to_string();
}

TEST(OpenSizes, AreExpressionsOfTheSizesOfInputs) {
  GraphBuilder b;
  const ValueId state = zeros(b, {kOpenSize, 4});
  b.output(b.add(b.input("data"), b.node("Reshape", {state}, ReshapeAttributes{{-1}})));
  Graph graph = b.graph();
  const auto table = std::make_shared<DimTable>();
  const Dim n = table->symbol("n", {1, 100});
  const std::array inputs{SizedInput{"data", DType::kFloat32, {n * 4}}};
  ASSERT_TRUE(infer_sizes(graph, table, inputs).ok());
  EXPECT_EQ(graph.value(state).sizes()[0], n) << graph.value(state).sizes().to_string();
}

// They differ from one set of shapes to the next.
TEST(OpenSizes, AreNotFolded) {
  GraphBuilder b;
  b.output(b.add(b.input("data"), zeros(b, {kOpenSize, 4})));
  b.output(b.scalar(BinaryKind::kAdd, zeros(b, {2, 4}), 1));
  Graph graph = b.graph();
  const std::array inputs{spec("data", {2, 4})};
  ASSERT_TRUE(infer(graph, inputs).ok());
  ASSERT_TRUE(fold_constants(graph).ok());
  EXPECT_EQ(graph.nodes.size(), 2u) << "the sum and its open zeros";
  EXPECT_EQ(shape_of(graph, graph.outputs[0].value, {5, 4}), (Shape{5, 4}));
}

// A batch is joined through zeros, and not through numbers that count its rows.
TEST(OpenSizes, OfABatchKeepItsRowsApart) {
  const std::vector<TensorSpec> declared{spec("data", {-1, 4})}, concrete{spec("data", {1, 4})};
  GraphBuilder zeros_added;
  zeros_added.output(zeros_added.add(zeros_added.input("data"), zeros(zeros_added, {kOpenSize, 4})));
  EXPECT_TRUE(check_joinable(zeros_added.graph(), declared, concrete).ok());

  GraphBuilder counted;
  const ValueId rows = counted.node("Range", {}, RangeAttributes{.count = kOpenSize, .dtype = DType::kFloat32});
  const ValueId data = counted.input("data");
  const ValueId sums = counted.node("Slice", {data}, SliceAttributes{{{.axis = 1, .begin = 0, .end = 1}}});
  counted.output(counted.add(counted.node("Reshape", {sums}, ReshapeAttributes{{-1}}), rows));
  const Status mixed = check_joinable(counted.graph(), declared, concrete);
  EXPECT_EQ(mixed.code(), StatusCode::kUnimplemented) << mixed.to_string();
  EXPECT_NE(mixed.message().find("Range"), std::string::npos) << mixed.to_string();
}

// What only reads a shape does not mix rows, unless the shape itself is that of the batch.
TEST(ShapeInputs, AreNoRowsThatAreMixed) {
  const std::vector<TensorSpec> declared{spec("data", {-1, 4})}, concrete{spec("data", {1, 4})};
  const auto joinable = [&](const std::string& op, Attributes attributes) {
    GraphBuilder b;
    const ValueId data = b.input("data");
    b.output(b.binary(BinaryKind::kAdd, data, b.node(op, {data}, std::move(attributes)), true));
    return check_joinable(b.graph(), declared, concrete).ok();
  };
  EXPECT_TRUE(joinable("Range", RangeAttributes{.axis = 1}));
  EXPECT_FALSE(joinable("Range", RangeAttributes{}));
  EXPECT_TRUE(joinable("Fill", FillAttributes{.value = 1, .shape_of_input = true}));
  GraphBuilder b;
  const ValueId data = b.input("data"), anchors = b.constant({1, 9});
  b.output(b.binary(BinaryKind::kAdd, data, b.node("SliceLike", {anchors, data}, SliceLikeAttributes{{1}}), true));
  EXPECT_TRUE(check_joinable(b.graph(), declared, concrete).ok());
  GraphBuilder sized;
  const ValueId other = sized.input("data");
  const ValueId sizes =
      sized.node("Cast", {sized.node("ShapeOf", {other}, ShapeOfAttributes{})}, CastAttributes{DType::kFloat32});
  const ValueId first = sized.node("Slice", {sizes}, SliceAttributes{{{.axis = 0, .begin = 0, .end = 1}}});
  sized.output(sized.binary(BinaryKind::kMul, other, first, true));
  EXPECT_FALSE(check_joinable(sized.graph(), declared, concrete).ok()) << "the number of rows is known to all of them";
}

}  // namespace
}  // namespace shoal::worker
