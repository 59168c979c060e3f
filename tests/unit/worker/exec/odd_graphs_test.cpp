// Graphs that no network has and a file may hold: the cpu device answers as the reference device does. What
// tests/fuzz/load_fuzzer.cpp finds gets a test here.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/worker/exec/graph_builder.hpp"
#include "worker/exec/planned_program.hpp"
#include "worker/ops/activation.hpp"
#include "worker/ops/arithmetic.hpp"
#include "worker/ops/convolution.hpp"
#include "worker/ops/movement.hpp"
#include "worker/ops/normalization.hpp"
#include "worker/ops/ordering.hpp"
#include "worker/ops/pooling.hpp"
#include "worker/ops/products.hpp"
#include "worker/ops/proposal.hpp"
#include "worker/ops/rearrangement.hpp"
#include "worker/ops/resize.hpp"
#include "worker/ops/softmax.hpp"

namespace shoal::worker {
namespace {

using testing::GraphBuilder;
using testing::load;
using testing::spec;

constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();

/// Both devices compile the graph for these inputs, run it on the same noise and answer alike.
void expect_alike(const GraphBuilder& graph, const std::vector<TensorSpec>& inputs,
                  std::optional<std::size_t> core_cache_bytes = {}) {
  const auto cpu = Model::load(graph.graph(), {.input_sets = {inputs}, .core_cache_bytes = core_cache_bytes}).value(),
             reference = load(graph.graph(), inputs, "cpu-reference");
  ASSERT_TRUE(cpu && reference);
  Context context, other;
  const auto got = testing::run(*cpu->program(inputs).value(), context);
  const auto want = testing::run(*reference->program(inputs).value(), other);
  EXPECT_TRUE(testing::alike(got, want));
}
void expect_alike(const GraphBuilder& graph, const Shape& data) { expect_alike(graph, {spec("data", data)}); }

// Then there is nothing to compute for the first shapes, whose load packs the weights.
TEST(OddGraphs, LayersThatGetNothingAtFirstServeOtherShapes) {
  GraphBuilder b;
  const ValueId rest = b.node("Delete", {b.input("data")}, DeleteAttributes{.axis = 0, .index = 0});
  const ValueId normed = b.batch_norm(b.conv(b.batch_norm(rest, 3), 3, 8, 3), 8);
  b.output(b.fully_connected(b.activation(normed), 8 * 5 * 5, 7));
  const auto shapes = [](std::int64_t batch) { return std::vector<TensorSpec>{spec("data", {batch, 3, 5, 5})}; };
  for (const bool fuse : {true, false}) {
    const auto cpu = load(b.graph(), shapes(1), "cpu", 1, fuse), reference = load(b.graph(), shapes(1), "cpu-reference");
    for (const std::int64_t batch : {3, 1}) {
      Context context, other;
      const auto program = cpu->program(shapes(batch));
      ASSERT_TRUE(program.ok()) << program.status().to_string();
      EXPECT_TRUE(
          testing::alike(testing::run(**program, context), testing::run(*reference->program(shapes(batch)).value(), other)));
    }
  }
}

TEST(OddGraphs, BodiesThatGetNothingAtFirstServeOtherShapes) {
  GraphBuilder layer;
  layer.output(layer.fully_connected(layer.input("rows"), 5, 3));
  GraphBuilder b;
  const ValueId rest = b.node("Delete", {b.input("data")}, DeleteAttributes{.axis = 0, .index = 0});
  b.output(b.node_with_bodies("If", {b.number(1), rest}, {layer.graph(), layer.graph()}));
  const auto shapes = [](std::int64_t batch) { return std::vector<TensorSpec>{spec("data", {batch, 5})}; };
  const auto cpu = load(b.graph(), shapes(1)), reference = load(b.graph(), shapes(1), "cpu-reference");
  for (const std::int64_t batch : {3, 1}) {
    Context context, other;
    const auto program = cpu->program(shapes(batch));
    ASSERT_TRUE(program.ok()) << program.status().to_string();
    EXPECT_TRUE(
        testing::alike(testing::run(**program, context), testing::run(*reference->program(shapes(batch)).value(), other)));
  }
}

// oneDNN takes several times as long for it.
TEST(OddGraphs, SmallPiecesAreJoinedByAKernel) {
  GraphBuilder b;
  const ValueId data = b.input("data");
  const auto part = [&](std::int64_t begin, std::int64_t end) {
    return b.node("Slice", {data}, SliceAttributes{{{.axis = -1, .begin = begin, .end = end, .step = 1}}});
  };
  b.output(b.node("Concat", {part(4, 5), part(0, 4), part(1, 2)}, ConcatAttributes{-1}));
  const std::vector<TensorSpec> inputs{spec("data", {3, 70, 6})};
  expect_alike(b, inputs);
  const auto program = load(b.graph(), inputs)->program(inputs).value();
  const auto& steps = dynamic_cast<const PlannedProgram&>(*program).plan().steps;
  EXPECT_TRUE(std::ranges::any_of(steps, [](const auto& step) { return step->implementation() == "kernel"; }));
}

TEST(OddGraphs, ConcatOfMorePartsThanOneDnnHasArgumentsFor) {
  GraphBuilder b;
  const ValueId data = b.input("data"), other = b.scalar(BinaryKind::kAdd, data, 1);
  std::vector<ValueId> parts;
  for (int i = 0; i < 1500; ++i) parts.push_back(i % 2 == 0 ? data : other);
  b.output(b.concat(parts));
  expect_alike(b, {2, 3, 2, 2});
}

// oneDNN counts positions in int.
TEST(OddGraphs, WindowsInAPaddedImageBeyondInt) {
  const ConvolutionAttributes far{{1}, {kMost}, {1}, {kMost}, 2, 1};
  GraphBuilder convolved;
  convolved.output(convolved.node("Convolution", {convolved.input("data"), convolved.constant({2, 3, 1})}, far));
  expect_alike(convolved, {1, 3, 2});
  GraphBuilder dilated;
  const ConvolutionAttributes wide{{2}, {kMost}, {kMost - 2}, {kMost - 1}, 2, 1};
  dilated.output(dilated.node("Convolution", {dilated.input("data"), dilated.constant({2, 3, 2})}, wide));
  expect_alike(dilated, {1, 3, 4});
  for (const PoolingKind kind : {PoolingKind::kMax, PoolingKind::kAvg, PoolingKind::kSum}) {
    GraphBuilder pooled;
    PoolingAttributes pool{.kind = kind, .kernel = {kMost}, .stride = {kMost}, .pad = {kMost - 1}};
    pooled.output(pooled.pool(pooled.input("data"), pool));
    expect_alike(pooled, {1, 3, 4});
  }
}

/// Depthwise convolutions whose images run one by one, a BatchNorm at their end, and a convolution for the whole batch.
struct SplitNetwork {
  GraphBuilder b;
  ValueId data = b.input("data"), norm = -1;
  explicit SplitNetwork(std::int64_t channels) {
    ValueId x = data;
    for (int i = 0; i < 3; ++i) x = b.conv(x, channels, channels, 3, 1, /*group=*/channels);
    norm = b.batch_norm(x, channels);
  }
  void add_heads(ValueId statistics) {
    b.output(statistics);
    b.output(b.conv(data, 16, 16, 1));
  }
};

// The mean and the deviation of a BatchNorm have channels and no images, also if there are as many of both.
TEST(OddGraphs, StatisticsThatOutlastABatchRunImageByImage) {
  for (const std::int64_t batch : {16, 4}) {
    for (const int statistic : {1, 2}) {
      SCOPED_TRACE(std::to_string(batch) + " images, output " + std::to_string(statistic));
      SplitNetwork network(16);
      network.add_heads(network.norm + statistic);
      expect_alike(network.b, {batch, 16, 64, 64});
    }
  }
}

// So the fuzzer's small graphs take that path.
TEST(OddGraphs, BatchesLargerThanTheCacheThatIsGivenRunImageByImage) {
  SplitNetwork network(4);
  network.b.output(network.b.conv(network.norm, 4, 4, 1));
  const std::vector<TensorSpec> inputs{spec("data", {3, 4, 6, 6})};
  const auto whole = load(network.b.graph(), inputs);
  const auto split = Model::load(network.b.graph(), {.input_sets = {inputs}, .core_cache_bytes = 256}).value();
  const auto whole_program = whole->program(inputs).value(), split_program = split->program(inputs).value();
  EXPECT_GT(split_program->step_count(), 2 * whole_program->step_count());
  Context context, other;
  EXPECT_TRUE(testing::alike(testing::run(*split_program, context), testing::run(*whole_program, other)));
}

/// Ends a graph in nodes that are worth running image by image.
void add_concat(GraphBuilder& b, ValueId x) {
  const ValueId relu = b.activation(x);
  b.output(b.global_average(b.concat({relu, b.activation(relu, ActivationKind::kSigmoid)})));
}

TEST(OddGraphs, WeightsInARequestWithAsManyFiltersAsThereAreImages) {
  GraphBuilder b;
  const ValueId data = b.input("data"), weights = b.input("weights");
  const ConvolutionAttributes attributes{
      .kernel = {3, 3}, .stride = {1, 1}, .dilate = {1, 1}, .pad = {1, 1}, .num_filter = 2, .num_group = 1};
  add_concat(b, b.node("Convolution", {data, weights}, attributes));
  expect_alike(b, {spec("data", {2, 8, 16, 16}), spec("weights", {2, 8, 3, 3})}, 256);
}

// Two groups of 32 x 2 filters have as many weights as one.
TEST(OddGraphs, WeightsThatTwoConvolutionsReadInDifferentGroups) {
  for (const bool grouped_first : {true, false}) {
    SCOPED_TRACE(grouped_first);
    GraphBuilder b;
    const ValueId data = b.input("data"), weights = b.constant({32, 2, 3, 3}, 0.0F, 0.5F);
    ConvolutionAttributes attributes{.kernel = {3, 3}, .stride = {1, 1}, .dilate = {1, 1}, .pad = {1, 1}, .num_filter = 32};
    std::vector<ValueId> parts;
    for (const bool is_grouped : {grouped_first, !grouped_first}) {
      attributes.num_group = is_grouped ? 2 : 1;
      const SliceAttributes half{{{.axis = 1, .begin = 0, .end = 2, .step = 1}}};
      parts.push_back(b.node("Convolution", {is_grouped ? data : b.node("Slice", {data}, half), weights}, attributes));
    }
    b.output(b.concat(parts));
    expect_alike(b, {2, 4, 16, 16});
    const std::vector<TensorSpec> inputs{spec("data", {2, 4, 16, 16})};
    const auto program = load(b.graph(), inputs)->program(inputs).value();
    for (const auto& step : dynamic_cast<const PlannedProgram&>(*program).plan().steps)
      EXPECT_NE(step->implementation(), "oracle");
  }
}

TEST(OddGraphs, BatchNormsOverTheBatch) {
  for (const std::int64_t axis : {0, -4}) {
    GraphBuilder b;
    std::vector<ValueId> inputs{b.input("data")};
    for (int i = 0; i < 4; ++i) inputs.push_back(b.constant({2}, 1.0F, 0.5F));
    add_concat(b, b.node("BatchNorm", inputs, BatchNormAttributes{.eps = 1e-5, .fix_gamma = false, .axis = axis}, 3));
    expect_alike(b, {spec("data", {2, 8, 16, 16})}, 256);
  }
}

TEST(OddGraphs, SlicesWithStepsBeyondTheAxis) {
  GraphBuilder b;
  b.output(b.node(
      "Slice", {b.input("data")},
      SliceAttributes{{{.axis = 1, .begin = 2, .end = {}, .step = kMost}, {.axis = 2, .begin = {}, .end = {}, .step = -kMost}}}));
  expect_alike(b, {2, 4, 3, 2});
}

// What the products of an attention give, moved between them: the result has the same shape.
TEST(OddGraphs, AttentionsWhoseScoresOrWeightsAreMoved) {
  const std::vector<std::pair<const char*, Attributes>> moves{
      {"Transpose", TransposeAttributes{{0, 2, 1}}},
      {"SwapAxes", SwapAxesAttributes{1, 2}},
      {"Slice", SliceAttributes{{{.axis = 2, .begin = {}, .end = {}, .step = -1}}}}};
  for (const auto& [op, attributes] : moves) {
    for (const bool is_of_scores : {true, false}) {
      GraphBuilder b;
      const ValueId queries = b.input("data"), keys = b.scalar(BinaryKind::kMul, queries, 2);
      ValueId x = b.node("MatMul", {queries, keys}, MatMulAttributes{.transpose_b = true});
      if (is_of_scores) x = b.node(op, {x}, attributes);
      x = b.node("Softmax", {x}, SoftmaxAttributes{.axis = -1});
      if (!is_of_scores) x = b.node(op, {x}, attributes);
      b.output(b.node("MatMul", {x, queries}, MatMulAttributes{}));
      expect_alike(b, {2, 7, 4});
    }
  }
}

// A file may have its hidden output read.
TEST(OddGraphs, TheBestWithIndicesOfATypeThatHoldsNone) {
  GraphBuilder b;
  const ValueId values =
      b.node("TopK", {b.input("data")},
             TopKAttributes{.axis = -1, .count = 2, .result = TopKResult::kValues, .dtype = DType::kBool}, /*output_count=*/2);
  b.output(values + 1);
  const Status why = Model::load(b.graph(), {.input_sets = {{spec("data", {3, 4})}}}).status();
  EXPECT_EQ(why.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(why.message().find("bool does not hold the indices"), std::string::npos) << why.message();
}

TEST(OddGraphs, PicturesOfVeryLongRowsKeepNoTables) {
  for (const ResizeKind kind : {ResizeKind::kRepeat, ResizeKind::kLinearCorners}) {
    GraphBuilder b;
    b.output(b.node("Resize", {b.input("data")}, ResizeAttributes{.kind = kind, .height = 1, .width = 1 << 20}));
    const std::vector<TensorSpec> inputs{spec("data", {1, 1, 1, 8})};
    EXPECT_LT((*load(b.graph(), inputs)->program(inputs))->resident_bytes(), std::size_t{1} << 20);
    expect_alike(b, inputs);
  }
}

TEST(OddGraphs, ProposalsWithMoreAnchorsThanAnyNetworkHas) {
  GraphBuilder b;
  const std::vector<float> many(100, 1);
  const std::int64_t anchors = 100 * 100;
  b.output(b.node("Proposal", {b.input("cls_prob"), b.input("bbox_pred"), b.input("im_info")},
                  ProposalAttributes{.scales = many, .ratios = many}, /*output_count=*/2));
  const std::vector<TensorSpec> inputs{spec("cls_prob", {1, 2 * anchors, 1, 1}), spec("bbox_pred", {1, 4 * anchors, 1, 1}),
                                       spec("im_info", {1, 3})};
  const Status why = Model::load(b.graph(), {.input_sets = {inputs}}).status();
  EXPECT_NE(why.message().find("4096 anchors"), std::string::npos) << why.message();
}

}  // namespace
}  // namespace shoal::worker
