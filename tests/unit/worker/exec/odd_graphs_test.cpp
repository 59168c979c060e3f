// Graphs that no network has and a file may hold: the cpu device answers as the reference device does. What
// tests/fuzz/load_fuzzer.cpp finds gets a test here.
#include <gtest/gtest.h>

#include <limits>

#include "tests/unit/worker/exec/graph_builder.hpp"

namespace shoal::worker {
namespace {

using testing::GraphBuilder;
using testing::load;
using testing::spec;

constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();

/// Both devices compile the graph for data of this shape, run it on the same noise and answer alike.
void expect_alike(const GraphBuilder& graph, const Shape& data) {
  const auto cpu = load(graph.graph(), {spec("data", data)}),
             reference = load(graph.graph(), {spec("data", data)}, "cpu-reference");
  ASSERT_TRUE(cpu && reference);
  const std::vector<TensorSpec> inputs{spec("data", data)};
  Context context, other;
  const auto got = testing::run(*cpu->program(inputs).value(), context);
  const auto want = testing::run(*reference->program(inputs).value(), other);
  EXPECT_TRUE(testing::alike(got, want));
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

TEST(OddGraphs, SlicesWithStepsBeyondTheAxis) {
  GraphBuilder b;
  b.output(b.node(
      "Slice", {b.input("data")},
      SliceAttributes{{{.axis = 1, .begin = 2, .end = {}, .step = kMost}, {.axis = 2, .begin = {}, .end = {}, .step = -kMost}}}));
  expect_alike(b, {2, 4, 3, 2});
}

}  // namespace
}  // namespace shoal::worker
