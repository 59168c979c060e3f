#include "worker/passes/constant_folding.hpp"

#include <gtest/gtest.h>

#include "tests/unit/worker/exec/graph_builder.hpp"
#include "worker/ops/arithmetic.hpp"
#include "worker/ops/contraction.hpp"
#include "worker/ops/convolution.hpp"
#include "worker/ops/indexing.hpp"
#include "worker/ops/movement.hpp"
#include "worker/ops/pooling.hpp"
#include "worker/ops/products.hpp"
#include "worker/ops/reduce.hpp"
#include "worker/passes/infer.hpp"

namespace shoal::worker {
namespace {

using testing::GraphBuilder;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

/// The graph with its constants folded; the constants that are left have at most `most_bytes`.
Graph folded(Graph graph, std::uint64_t most_bytes) {
  EXPECT_TRUE(infer(graph, {}).ok());
  EXPECT_TRUE(fold_constants(graph).ok());
  EXPECT_LE(graph.constant_bytes(), most_bytes);
  return graph;
}

TEST(ConstantFolding, MovesWeightsOfAnySize) {
  GraphBuilder b;
  b.output(b.node("Transpose", {b.constant({2048, 3072})}, TransposeAttributes{}));
  EXPECT_TRUE(folded(b.graph(), 24 * kMiB).nodes.empty());
}

TEST(ConstantFolding, LeavesNodesWhoseOutputsAreLarge) {
  GraphBuilder b;
  b.output(b.node("AdaptiveAvgPooling", {b.constant({1, 1, 1, 1})}, AdaptivePoolingAttributes{4096, 4096}));
  EXPECT_EQ(folded(b.graph(), kMiB).nodes.size(), 1u);
}

// Each node doubles what it reads, and all of them are at hand at once.
TEST(ConstantFolding, CountsAllThatItMakes) {
  GraphBuilder b;
  ValueId x = b.constant({1, 1});
  for (int i = 0; i < 26; ++i) x = b.concat({x, x});
  b.output(x);
  EXPECT_EQ(folded(b.graph(), 16 * kMiB).nodes.size(), 5u) << "21 of them make 16 MiB less 8 bytes";
}

// 3 * 10^9 products or more, from constants of a few KB to a few MB.
TEST(ConstantFolding, LeavesNodesThatTakeLong) {
  GraphBuilder b;
  b.output(b.node(
      "Convolution", {b.constant({1, 1, 300, 300}), b.constant({1, 1, 300, 300})},
      ConvolutionAttributes{.kernel = {300, 300}, .stride = {1, 1}, .dilate = {1, 1}, .pad = {150, 150}, .num_filter = 1}));
  b.output(b.node("Einsum", {b.constant({4000}), b.constant({1000}), b.constant({1000})},
                  EinsumAttributes{.inputs = {{Dims{0}}, {Dims{1}}, {Dims{2}}}, .output = {Dims{0}}}));
  b.output(b.node("MatMul", {b.constant({2048, 2048}), b.constant({2048, 2048})}, MatMulAttributes{}));
  EXPECT_EQ(folded(b.graph(), 64 * kMiB).nodes.size(), 3u);
}

// Each of them could read what all elements of its input pair with: 10^9 operations.
TEST(ConstantFolding, CountsTheWorkOfAllNodes) {
  GraphBuilder b;
  for (int i = 0; i < 4; ++i)
    b.output(b.node("AdaptiveAvgPooling", {b.constant({1, 1, 1, 30'000})}, AdaptivePoolingAttributes{1, 1}));
  EXPECT_EQ(folded(b.graph(), kMiB).nodes.size(), 2u);
}

// Exporters write several operators for each weight.
TEST(ConstantFolding, FoldsWhatTakesAFewOperationsForEachElement) {
  GraphBuilder b;
  const ValueId x = b.node("Transpose", {b.scalar(BinaryKind::kMul, b.constant({4096, 2048}), 2)}, TransposeAttributes{});
  b.output(b.node("Reduce", {x}, ReduceAttributes{.kind = ReduceKind::kSum, .axes = {1}}));
  b.output(b.node("MatMul", {b.constant({1024, 16}), b.constant({16, 1024})}, MatMulAttributes{}));
  EXPECT_TRUE(folded(b.graph(), 8 * kMiB).nodes.empty());
}

// It may be in a branch that is never taken.
TEST(ConstantFolding, LeavesNodesThatRefuseTheirValues) {
  GraphBuilder b;
  const ValueId indices = b.constant({2});  // between -1 and 1, and not whole
  b.output(b.node("Take", {b.constant({3, 2}), b.node("Scalar", {indices}, ScalarAttributes{BinaryKind::kAdd, 100})},
                  TakeAttributes{.mode = IndexMode::kRaise}));
  EXPECT_EQ(folded(b.graph(), kMiB).nodes.size(), 1u);
}

// A node that is not folded runs like any other.
TEST(ConstantFolding, WhatIsLeftIsRun) {
  GraphBuilder b;
  const ValueId wide = b.node("AdaptiveAvgPooling", {b.constant({1, 1, 1, 1})}, AdaptivePoolingAttributes{2100, 2100});
  b.output(b.binary(BinaryKind::kAdd, b.input("data"), wide, true));
  const std::vector<TensorSpec> inputs = {testing::spec("data", {1, 1, 1, 1})};
  Context context, reference_context;
  const auto model = testing::load(b.graph(), inputs);
  EXPECT_LE(model->packed_bytes(), 4 * kMiB) << "its segment is at least 2 MiB";
  const auto got = testing::run(**model->program(inputs), context);
  const auto want = testing::run(**testing::load(b.graph(), inputs, "cpu-reference")->program(inputs), reference_context);
  EXPECT_TRUE(testing::same_bits(got, want));
}

}  // namespace
}  // namespace shoal::worker
