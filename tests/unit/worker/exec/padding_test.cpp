#include "worker/exec/padding.hpp"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/unit/worker/exec/graph_builder.hpp"
#include "worker/ops/detection.hpp"
#include "worker/ops/movement.hpp"
#include "worker/ops/proposal.hpp"
#include "worker/ops/reduce.hpp"
#include "worker/ops/reshape.hpp"
#include "worker/ops/resize.hpp"
#include "worker/ops/softmax.hpp"

namespace shoal::worker {
namespace {

using testing::GraphBuilder;
using testing::noise;
using testing::spec;

const std::vector<TensorSpec> kOpen = {spec("data", {-1, 3, 16, 16})}, kOne = {spec("data", {1, 3, 16, 16})};

Graph classifier() {
  GraphBuilder b;
  const ValueId features = b.activation(b.batch_norm(b.conv(b.input("data"), 3, 16, 3), 16));
  b.output(b.node("Softmax", {b.fully_connected(b.node("Flatten", {b.global_average(features)}), 16, 10)}, SoftmaxAttributes{}));
  return b.graph();
}

std::unique_ptr<Model> load_with_buckets(Graph graph, std::vector<Buckets> buckets) {
  return Model::load(std::move(graph), {.input_sets = {kOne}, .buckets = std::move(buckets), .declared_inputs = kOpen}).value();
}

std::vector<Tensor> answer_of(Model& model, const Tensor& input) {
  Context context;
  return testing::run(*model.program(std::vector{spec("data", input.shape())}).value(), context, {input});
}

TEST(Padding, GivesTheAnswersOfTheUnpaddedBatchFromFewPrograms) {
  const auto padded = load_with_buckets(classifier(), {{.sizes = {1, 4, 8}}}), exact = load_with_buckets(classifier(), {});
  for (const std::int64_t batch : {1, 2, 3, 4, 5, 8, 9}) {
    const Tensor input = noise({batch, 3, 16, 16}, static_cast<std::uint64_t>(batch));
    const auto got = answer_of(*padded, input), want = answer_of(*exact, input);
    EXPECT_EQ(got[0].shape(), (Shape{batch, 10}));
    EXPECT_LE(testing::relative_error(got[0], want[0]), 1e-6) << batch;
  }
  EXPECT_EQ(padded->program_counters().programs, 3u);  // 4, 8, and 9, which no bucket holds
  EXPECT_EQ(exact->program_counters().programs, 6u);
}

TEST(Padding, ARowDoesNotDependOnWhatTheBatchIsFilledWith) {
  const auto model = load_with_buckets(classifier(), {{.sizes = {8}}});
  const Tensor full = noise({8, 3, 16, 16});
  const Tensor part = Tensor::create(DType::kFloat32, {3, 3, 16, 16}).value();
  std::memcpy(part.view().data, full.view().data, part.size_bytes());
  const auto all = answer_of(*model, full), some = answer_of(*model, part);
  EXPECT_EQ(std::memcmp(all[0].view().data, some[0].view().data, some[0].size_bytes()), 0);
}

TEST(Padding, FindsAPaddedProgramWithoutCompiling) {
  const auto model = load_with_buckets(classifier(), {{.sizes = {1, 4}}});
  const std::vector<TensorSpec> two = {spec("data", {2, 3, 16, 16})}, three = {spec("data", {3, 3, 16, 16})};
  EXPECT_EQ(*model->find_program(two), nullptr);
  ASSERT_TRUE(model->program(two).ok());
  EXPECT_EQ((*model->find_program(three))->inputs()[0].shape, three[0].shape);
}

TEST(Padding, CountsTheRoomThatItsRunsNeed) {
  const auto model = load_with_buckets(classifier(), {{.sizes = {8}}});
  const auto arena_bytes = [&](std::int64_t batch) {
    return (*model->program(std::vector{spec("data", {batch, 3, 16, 16})}))->arena_bytes();
  };
  EXPECT_EQ(arena_bytes(3), arena_bytes(8) + (8 * 3 * 16 * 16 + 8 * 10) * sizeof(float));
}

// Padding must be refused where it could change an answer, and the node named.
TEST(Padding, RefusesABatchWhoseRowsAreMixed) {
  const auto refusal = [](const Graph& graph) {
    const auto padding = Padding::make({{.sizes = {4}}}, graph, kOpen, kOne);
    EXPECT_EQ(padding.status().code(), StatusCode::kUnimplemented) << padding.status().to_string();
    return padding.status().message();
  };
  GraphBuilder over_batch;
  over_batch.output(over_batch.node("Softmax", {over_batch.input("data")}, SoftmaxAttributes{.axis = 0}));
  EXPECT_NE(refusal(over_batch.graph()).find("Softmax"), std::string::npos);
  GraphBuilder turned;
  turned.output(turned.node("Transpose", {turned.input("data")}, TransposeAttributes{.axes = {1, 0, 2, 3}}));
  EXPECT_NE(refusal(turned.graph()).find("Transpose"), std::string::npos);
  GraphBuilder merged;  // rows of 3x16x16 cut anew into rows of 7: a row lies across two samples
  merged.output(merged.node("Reshape", {merged.input("data")}, ReshapeAttributes{.shape = {3, -1}}));
  EXPECT_NE(refusal(merged.graph()).find("Reshape"), std::string::npos);
  GraphBuilder joined;
  const ValueId data = joined.input("data");
  joined.output(joined.concat({data, data}, 0));
  EXPECT_NE(refusal(joined.graph()).find("Concat"), std::string::npos);
}

TEST(Padding, OfABatchPassesInputsOfWhichOnlyTheShapeCounts) {
  GraphBuilder b;
  const ValueId data = b.input("data"), anchors = b.node("MultiBoxPrior", {data}, MultiBoxPriorAttributes{});
  const ValueId scores = b.node("Reshape", {data}, ReshapeAttributes{.shape = {0, 0, -1}});
  const ValueId offsets = b.node("Flatten", {b.concat({data, b.node("Crop", {data, data}, CropAttributes{})})});
  b.output(b.node("MultiBoxDetection", {scores, offsets, anchors}, MultiBoxDetectionAttributes{}));
  const std::vector<TensorSpec> open = {spec("data", {-1, 2, 4, 4})}, one = {spec("data", {1, 2, 4, 4})};
  EXPECT_TRUE(check_joinable(b.graph(), open, one).ok()) << check_joinable(b.graph(), open, one).to_string();
  GraphBuilder mixed;
  const ValueId map = mixed.input("data");
  mixed.output(mixed.node("Proposal", {map, mixed.constant({1, 4, 4, 4}), mixed.constant({1, 3})},
                          ProposalAttributes{.scales = {1}, .ratios = {1}}, 2));
  EXPECT_FALSE(check_joinable(mixed.graph(), open, one).ok());
}

TEST(Padding, OfTheBatchGoesWithOtherOpenDimensions) {
  GraphBuilder b;  // a picture of one pixel has nothing that this pooling could take
  const ValueId features =
      b.pool(b.activation(b.conv(b.input("data"), 3, 16, 3)), {.kernel = {4, 4}, .stride = {2, 2}, .pad = {0, 0}});
  b.output(b.fully_connected(b.node("Flatten", {b.global_average(features)}), 16, 10));
  const auto load_with = [&](std::vector<Buckets> buckets) {
    return Model::load(b.graph(),
                       {.input_sets = {kOne}, .buckets = std::move(buckets), .declared_inputs = {spec("data", {-1, 3, -1, -1})}});
  };
  const auto padded = load_with({{.sizes = {1, 4}}}), exact = load_with({});
  ASSERT_TRUE(padded.ok()) << padded.status().to_string();
  const Tensor input = noise({3, 3, 24, 20});
  EXPECT_LE(testing::relative_error(answer_of(**padded, input)[0], answer_of(**exact, input)[0]), 1e-6);
}

TEST(Padding, CompilesNoConfiguredSizeThatIsNeverRun) {
  const auto set = [](std::int64_t batch) { return std::vector{spec("data", {batch, 3, 16, 16})}; };
  const auto model =
      Model::load(classifier(),
                  {.input_sets = {set(1), set(3), set(4)}, .buckets = {{.sizes = {4, 8}}}, .declared_inputs = kOpen})
          .value();
  EXPECT_EQ(model->program_counters().pinned, 1u) << "1 and 3 run as 4";
  EXPECT_EQ(answer_of(*model, noise({3, 3, 16, 16}))[0].shape(), (Shape{3, 10}));
  EXPECT_EQ(model->program_counters().compiled, 0u);
}

// Of one axis, it divides by the root of the number of rows.
TEST(Padding, RefusesToDivideByTheRootOfTheBatch) {
  GraphBuilder b;
  b.output(b.node("DivSqrtDim", {b.input("data")}));
  EXPECT_EQ(Padding::make({{.sizes = {4}}}, b.graph(), {spec("data", {-1})}, {spec("data", {1})}).status().code(),
            StatusCode::kUnimplemented);
  EXPECT_TRUE(Padding::make({{.sizes = {4}}}, b.graph(), {spec("data", {-1, 5})}, {spec("data", {1, 5})}).ok());
}

TEST(Padding, NamesAnOutputThatDoesNotGrowWithTheDimensionWhenItIsMade) {
  GraphBuilder b;
  const ValueId data = b.input("data");
  b.output(b.activation(data));
  b.output(b.node("Slice", {data}, SliceAttributes{.ranges = {{.axis = 1, .begin = 0, .end = 8}}}));
  b.output(b.node("Reduce", {data}, ReduceAttributes{.axes = {1}}));  // of shape {1, 4}
  const auto message = [&](std::vector<std::int64_t> sizes, const std::string& output) {
    return Padding::make({{.input = "data", .dim = 1, .sizes = std::move(sizes), .crop = {{output, 1}}}}, b.graph(),
                         {spec("data", {1, -1, 4})}, {spec("data", {1, 8, 4})})
        .status()
        .message();
  };
  EXPECT_EQ(message({8, 16}, "out0"), "");
  EXPECT_NE(message({8, 16}, "out1").find("output 'out1' of shape 1xmin(8, size)x4"), std::string::npos)
      << message({8, 16}, "out1");
  EXPECT_NE(message({2, 4}, "out2").find("output 'out2' of shape 1x4 does not grow"), std::string::npos)
      << message({2, 4}, "out2");
}

TEST(Padding, CutsOtherDimensionsBackWhereTheUserSaysSo) {
  GraphBuilder b;
  b.output(b.activation(b.input("data")));
  const std::vector<TensorSpec> open = {spec("data", {1, -1, 4})};
  const std::string output = b.graph().outputs[0].name;
  const auto model = Model::load(b.graph(), {.input_sets = {{spec("data", {1, 8, 4})}},
                                             .buckets = {{.input = "data", .dim = 1, .sizes = {8}, .crop = {{output, 1}}}},
                                             .declared_inputs = open})
                         .value();
  const Tensor input = noise({1, 5, 4});
  const auto outputs = answer_of(*model, input);
  ASSERT_EQ(outputs[0].shape(), input.shape());
  for (std::size_t i = 0; i < 20; ++i) EXPECT_EQ(outputs[0].values<float>()[i], std::max(0.0f, input.values<float>()[i]));
  EXPECT_EQ(model->program_counters().programs, 0u);
}

TEST(JoinedSizes, ArePowersOfTwoOrTheBucketsUpToTheFirstThatHoldsAll) {
  using Sizes = std::vector<std::int64_t>;
  EXPECT_EQ(joined_sizes(1, {{.sizes = {1, 4}}}), Sizes{});
  EXPECT_EQ(joined_sizes(8, {}), (Sizes{2, 4, 8}));
  EXPECT_EQ(joined_sizes(6, {}), (Sizes{2, 4, 6}));
  EXPECT_EQ(joined_sizes(6, {{.sizes = {1, 3, 8, 16}}}), (Sizes{3, 8}));
  EXPECT_EQ(joined_sizes(16, {{.sizes = {1, 4}}}), (Sizes{4, 16}));
  EXPECT_EQ(joined_sizes(4, {{.input = "data", .dim = 2, .sizes = {7}}}), (Sizes{2, 4}));  // of no batch
}

TEST(Padding, NamesInputsAndOutputsTheModelDoesNotHave) {
  const auto message = [](Buckets buckets) {
    return Padding::make({std::move(buckets)}, classifier(), kOpen, kOne).status().message();
  };
  EXPECT_NE(message({.input = "date", .dim = 2, .sizes = {4}}).find("'date'"), std::string::npos);
  EXPECT_NE(message({.input = "data", .dim = 2, .sizes = {4}}).find("dimension 2"), std::string::npos) << "it is not open";
  EXPECT_TRUE(Padding::make({{.sizes = {4}}}, classifier(), kOpen, kOne).ok());
}

}  // namespace
}  // namespace shoal::worker
