// Values whose size depends on data.
#include <gtest/gtest.h>

#include <cstring>

#include "tests/support/custom_operator.hpp"
#include "tests/support/dynamic_operators.hpp"
#include "tests/unit/worker/exec/graph_builder.hpp"
#include "worker/exec/owned_outputs.hpp"
#include "worker/exec/padding.hpp"
#include "worker/ops/cast.hpp"
#include "worker/ops/movement.hpp"
#include "worker/ops/ordering.hpp"
#include "worker/ops/reduce.hpp"
#include "worker/ops/reshape.hpp"
#include "worker/ops/softmax.hpp"

namespace shoal::worker {
namespace {

using testing::GraphBuilder;
using testing::load;
using testing::spec;

/// Four boxes: the second overlaps the first by 0.8, the others stand alone.
const std::vector<float> kBoxes = {0.9f, 0, 0, 10, 10, 0.8f, 0, 0, 8, 10, 0.7f, 20, 20, 30, 30, 0.95f, 50, 50, 60, 60};
const std::vector<float> kKept = {0.95f, 50, 50, 60, 60, 0.9f, 0, 0, 10, 10, 0.7f, 20, 20, 30, 30};

class DynamicSizes : public ::testing::TestWithParam<const char*> {
 protected:
  DynamicSizes() { test::register_dynamic_operators(); }

  static Result<std::vector<Tensor>> run(const Program& program, Context& context, const std::vector<float>& values) {
    Tensor input = Tensor::create(DType::kFloat32, program.inputs()[0].shape).value();
    std::memcpy(input.view().data, values.data(), input.size_bytes());
    auto outputs = OwnedOutputs::make(program.outputs()).value();
    context.sink = &outputs;
    SHOAL_RETURN_IF_ERROR(program.run(context, std::vector{input.view()}, outputs.views()));
    std::vector<Tensor> tensors;
    for (NamedTensor& output : std::move(outputs).take()) tensors.push_back(std::move(output.tensor));
    return tensors;
  }
  /// The program of the builder's graph, for an input "data" of that shape.
  std::shared_ptr<const Program> program_of(const GraphBuilder& b, const Shape& shape) {
    model_ = load(b.graph(), {spec("data", shape)}, GetParam());
    return model_->program(std::vector{spec("data", shape)}).value();
  }
  static std::vector<float> values(const Tensor& tensor) {
    const auto span = tensor.values<float>();
    return {span.begin(), span.end()};
  }

  std::unique_ptr<Model> model_;
  Context context_;
};

TEST_P(DynamicSizes, AreThoseOfEachRun) {
  GraphBuilder b;
  const ValueId kept = b.node("_dynamic_nms", {b.input("data")}, CustomAttributes{0.5});
  b.output(kept);
  b.output(b.scalar(BinaryKind::kMul, kept, 2));
  b.output(b.node("Reduce", {kept}, ReduceAttributes{.axes = {0}}));
  const auto program = program_of(b, {4, 5});
  EXPECT_EQ(program->outputs()[0].shape, (Shape{-1, 5}));
  EXPECT_EQ(program->outputs()[0].ranges, (std::vector<DimRange>{{0, 4}, {}}));
  EXPECT_EQ(program->outputs()[2].shape, Shape{5});

  const auto three = run(*program, context_, kBoxes).value();
  ASSERT_EQ(three[0].shape(), (Shape{3, 5}));
  EXPECT_EQ(values(three[0]), kKept);
  ASSERT_EQ(three[1].shape(), (Shape{3, 5}));
  for (std::size_t i = 0; i < kKept.size(); ++i) EXPECT_EQ(values(three[1])[i], 2 * kKept[i]);
  for (std::size_t i = 0; i < 5; ++i) EXPECT_FLOAT_EQ(values(three[2])[i], kKept[i] + kKept[i + 5] + kKept[i + 10]);

  const std::vector<float> same(20, 1);  // four boxes without area: none overlaps another
  EXPECT_EQ(run(*program, context_, same).value()[0].shape(), (Shape{4, 5}));
  EXPECT_EQ(values(run(*program, context_, kBoxes).value()[0]), kKept) << "again";
}

TEST_P(DynamicSizes, MayBeNothing) {
  GraphBuilder b;
  const ValueId positions = b.node("_dynamic_nonzero", {b.input("data")}, CustomAttributes{});
  b.output(positions);
  b.output(b.node("Reduce", {positions}, ReduceAttributes{.axes = {0}}));
  const auto program = program_of(b, {2, 3});
  const auto outputs = run(*program, context_, {0, 0, 0, 0, 0, 0}).value();
  EXPECT_EQ(outputs[0].shape(), (Shape{0, 2}));
  EXPECT_EQ(outputs[1].values<std::int64_t>()[0], 0);
  const auto some = run(*program, context_, {0, 5, 0, 0, 0, 6}).value();
  ASSERT_EQ(some[0].shape(), (Shape{2, 2}));
  const auto found = some[0].values<std::int64_t>();
  EXPECT_EQ(std::vector<std::int64_t>(found.begin(), found.end()), (std::vector<std::int64_t>{0, 1, 1, 2}));
}

// There is no element to be copied, but rows are found.
TEST_P(DynamicSizes, AreFoundInRowsWithoutElements) {
  GraphBuilder b;
  const ValueId data = b.input("data");
  const ValueId scores = b.node("Slice", {data}, SliceAttributes{{{1, 0, 1, 1}}});
  const ValueId mask = b.node("Reshape", {b.scalar(BinaryKind::kGreater, scores, 0.75)}, ReshapeAttributes{{-1}});
  b.output(b.node("BooleanMask", {b.constant({4, 0}), mask}));
  EXPECT_EQ(run(*program_of(b, {4, 5}), context_, kBoxes).value()[0].shape(), (Shape{3, 0}));
}

// One row is found: its axis goes, and the program was made for two.
TEST_P(DynamicSizes, ThatChangeTheNumberOfAxesAreAnErrorOfTheRun) {
  GraphBuilder b;
  b.output(b.node("Squeeze", {b.node("_dynamic_nonzero", {b.input("data")}, CustomAttributes{})}, SqueezeAttributes{}));
  const auto program = program_of(b, {2, 3});
  const Status status = run(*program, context_, {0, 0, 0, 0, 5, 0}).status();
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
  EXPECT_NE(status.message().find("name the axes"), std::string::npos) << status.to_string();
  EXPECT_TRUE(run(*program, context_, {0, 5, 0, 0, 0, 6}).ok()) << "the next run is not affected";
}

TEST_P(DynamicSizes, ThatDoNotFitTogetherAreAnErrorOfTheRun) {
  GraphBuilder b;
  const ValueId data = b.input("data");
  const ValueId few = b.node("_dynamic_nms", {data}, CustomAttributes{0.5}),
                all = b.node("_dynamic_nms", {data}, CustomAttributes{1});
  b.output(b.binary(BinaryKind::kAdd, few, all));
  const auto program = program_of(b, {4, 5});
  const Status status = run(*program, context_, kBoxes).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("3x5"), std::string::npos) << status.to_string();
  EXPECT_NE(status.message().find("4x5"), std::string::npos) << status.to_string();
  EXPECT_TRUE(run(*program, context_, std::vector<float>(20, 1)).ok()) << "the next run is not affected";
}

TEST_P(DynamicSizes, AreComputedByTheKernelsThatTheDeviceHas) {
  GraphBuilder b;
  const ValueId kept = b.node("_dynamic_nms", {b.input("data")}, CustomAttributes{0.5});
  const ValueId part = b.node("Slice", {kept}, SliceAttributes{{{1, 1, 5, 1}}});
  const ValueId softmax = b.node("Softmax", {b.scalar(BinaryKind::kMul, part, 0.1)}, SoftmaxAttributes{.axis = 1});
  b.output(softmax);
  b.output(b.node("TopK", {kept}, TopKAttributes{.axis = 1, .count = 2, .result = TopKResult::kValues}, 2));
  const auto program = program_of(b, {4, 5});
  const bool is_cpu = std::string_view(GetParam()) == "cpu";
  for (const StepInfo& step : program->steps()) {
    if (step.name.find("_dynamic_nms") != std::string::npos) continue;
    EXPECT_EQ(step.implementation, is_cpu ? "kernel" : "oracle") << step.name;
  }
  const auto reference = load(b.graph(), {spec("data", {4, 5})}, "cpu-reference");
  const auto oracle = reference->program(std::vector{spec("data", {4, 5})}).value();
  Context context;
  for (const auto& boxes : {kBoxes, std::vector<float>(20, 1), kBoxes, std::vector<float>(20, 0)}) {
    const auto got = run(*program, context_, boxes).value(), want = run(*oracle, context, boxes).value();
    for (std::size_t i = 0; i < want.size(); ++i) {
      ASSERT_EQ(got[i].shape(), want[i].shape());
      for (std::size_t at = 0; at < values(want[i]).size(); ++at) EXPECT_FLOAT_EQ(values(got[i])[at], values(want[i])[at]);
    }
  }
}

TEST_P(DynamicSizes, NeedAPlace) {
  GraphBuilder b;
  b.output(b.node("_dynamic_nms", {b.input("data")}, CustomAttributes{0.5}));
  const auto program = program_of(b, {4, 5});
  const Tensor input = testing::noise({4, 5});
  std::vector<TensorView> dst{{DType::kFloat32, program->outputs()[0].shape, nullptr}};
  EXPECT_EQ(program->run(context_, std::vector{input.view()}, dst).code(), StatusCode::kFailedPrecondition);
}

// Half types are widened around what computes with them, and keep their sizes.
TEST_P(DynamicSizes, AreKeptInHalfTypes) {
  GraphBuilder b;
  const ValueId data = b.input("data");
  const ValueId scores = b.node("Slice", {data}, SliceAttributes{{{1, 0, 1, 1}}});
  const ValueId mask = b.node("Reshape", {b.scalar(BinaryKind::kGreater, scores, 0.75)}, ReshapeAttributes{{-1}});
  const ValueId halves = b.node("Cast", {data}, CastAttributes{DType::kFloat16});
  const ValueId kept = b.node("BooleanMask", {halves, mask});
  const ValueId dense = b.node("Softmax", {kept}, SoftmaxAttributes{.axis = -1});
  b.output(b.node("Cast", {dense}, CastAttributes{DType::kFloat32}));
  b.output(b.node("Cast", {b.node("Reduce", {kept}, ReduceAttributes{.axes = {0}})}, CastAttributes{DType::kFloat32}));
  const auto program = program_of(b, {4, 5});
  const auto first = run(*program, context_, kBoxes).value();
  ASSERT_EQ(first[0].shape(), (Shape{3, 5}));
  EXPECT_NEAR(values(first[1])[4], 10 + 10 + 60, 0.1) << "of the three boxes only";
  const auto none = run(*program, context_, std::vector<float>(20, 0)).value();
  EXPECT_EQ(none[0].shape(), (Shape{0, 5}));
}

TEST_P(DynamicSizes, KeepBatchesApart) {
  GraphBuilder b;
  b.output(b.node("_dynamic_nms", {b.input("data")}, CustomAttributes{0.5}));
  const Status joinable = check_joinable(b.graph(), {spec("data", {-1, 5})}, {spec("data", {1, 5})});
  EXPECT_EQ(joinable.code(), StatusCode::kUnimplemented) << joinable.to_string();
}

INSTANTIATE_TEST_SUITE_P(, DynamicSizes, ::testing::Values("cpu", "cpu-reference"));

}  // namespace
}  // namespace shoal::worker
