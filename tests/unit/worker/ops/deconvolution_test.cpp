// Deconvolution, through the importer's lowering and the oracle kernel. The numbers are worked out by hand.
#include "worker/ops/deconvolution.hpp"

#include <gtest/gtest.h>

#include "tests/unit/worker/ops/one_node.hpp"

namespace shoal::worker {
namespace {

using namespace one_node;

const Tensor kTwo = tensor({1, 1, 2}, {1, 2}), kThreeTaps = tensor({1, 1, 3}, {1, 10, 100});

Texts with(Texts texts) {
  texts.emplace("num_filter", "1");
  return texts;
}

TEST(Deconvolution, AddsTheKernelAtEveryStride) {
  EXPECT_TRUE(gives("Deconvolution", with({{"kernel", "(3,)"}}), {kTwo, kThreeTaps}, {1, 1, 4}, {1, 12, 120, 200}));
  EXPECT_TRUE(gives("Deconvolution", with({{"kernel", "(3,)"}, {"stride", "(2,)"}}), {kTwo, kThreeTaps}, {1, 1, 5},
                    {1, 10, 102, 20, 200}));
}

TEST(Deconvolution, CutsPadOffBothEndsAndAdjLessOffTheSecond) {
  const Texts padded = with({{"kernel", "(3,)"}, {"stride", "(2,)"}, {"pad", "(1,)"}});
  EXPECT_TRUE(gives("Deconvolution", padded, {kTwo, kThreeTaps}, {1, 1, 3}, {10, 102, 20}));
  Texts adjusted = padded;
  adjusted["adj"] = "(1,)";
  EXPECT_TRUE(gives("Deconvolution", adjusted, {kTwo, kThreeTaps}, {1, 1, 4}, {10, 102, 20, 200}));
  adjusted["pad"] = "(0,)";
  EXPECT_TRUE(gives("Deconvolution", adjusted, {kTwo, kThreeTaps}, {1, 1, 6}, {1, 10, 102, 20, 200, 0}));
}

TEST(Deconvolution, TargetShapeDecidesPadAndAdj) {
  Texts texts = with({{"kernel", "(3,)"}, {"stride", "(2,)"}, {"pad", "(9,)"}, {"target_shape", "(4,)"}});
  EXPECT_TRUE(gives("Deconvolution", texts, {kTwo, kThreeTaps}, {1, 1, 4}, {10, 102, 20, 200}));
  texts["target_shape"] = "(3,)";
  EXPECT_TRUE(gives("Deconvolution", texts, {kTwo, kThreeTaps}, {1, 1, 3}, {10, 102, 20}));
  texts["target_shape"] = "(0,)";
  texts["pad"] = "(1,)";
  EXPECT_TRUE(gives("Deconvolution", texts, {kTwo, kThreeTaps}, {1, 1, 3}, {10, 102, 20})) << "no target";
}

TEST(Deconvolution, DilatesBesideAStrideToo) {
  const Tensor taps = tensor({1, 1, 2}, {1, 10});
  EXPECT_TRUE(gives("Deconvolution", with({{"kernel", "(2,)"}, {"dilate", "(2,)"}}), {kTwo, taps}, {1, 1, 4}, {1, 2, 10, 20}));
  EXPECT_TRUE(gives("Deconvolution", with({{"kernel", "(2,)"}, {"dilate", "(3,)"}, {"stride", "(2,)"}}), {kTwo, taps}, {1, 1, 6},
                    {1, 0, 2, 10, 0, 20}));
}

TEST(Deconvolution, WeightsAreByChannelThenByFilterOfTheGroup) {
  const Tensor data = tensor({1, 2, 1}, {1, 2}), weight = tensor({2, 2, 1}, {3, 4, 5, 6});
  EXPECT_TRUE(gives("Deconvolution", {{"kernel", "1"}, {"num_filter", "2"}}, {data, weight}, {1, 2, 1}, {13, 16}));
  EXPECT_TRUE(gives("Deconvolution", {{"kernel", "1"}, {"num_filter", "4"}, {"num_group", "2"}}, {data, weight}, {1, 4, 1},
                    {3, 4, 10, 12}));
}

TEST(Deconvolution, HasABiasOnlyIfAsked) {
  const Texts texts{{"kernel", "1"}, {"num_filter", "1"}, {"no_bias", "False"}};
  const Tensor weight = tensor({1, 1, 1}, {3}), bias = tensor({1}, {0.5});
  EXPECT_TRUE(gives("Deconvolution", texts, {kTwo, weight, bias}, {1, 1, 2}, {3.5, 6.5}));
  EXPECT_TRUE(refuses("Deconvolution", texts, {kTwo, weight}, "bias"));
  EXPECT_TRUE(refuses("Deconvolution", with({{"kernel", "1"}}), {kTwo, weight, bias}, "3 inputs"));
}

TEST(Deconvolution, RunsInThreeDimensions) {
  const Tensor data = tensor({1, 1, 1, 1, 2}, {1, 2}), weight = tensor({1, 1, 2, 1, 1}, {1, 10});
  EXPECT_TRUE(gives("Deconvolution", with({{"kernel", "(2, 1, 1)"}}), {data, weight}, {1, 1, 2, 1, 2}, {1, 2, 10, 20}));
}

TEST(Deconvolution, OfHalvesSumsInFloat32) {
  const std::size_t many = 3000;
  const Tensor data = tensor<Half>({1, static_cast<std::int64_t>(many), 1}, std::vector<double>(many, 1)),
               weight = tensor<Half>({static_cast<std::int64_t>(many), 1, 1}, std::vector<double>(many, 1));
  EXPECT_TRUE(gives("Deconvolution", with({{"kernel", "1"}}), {data, weight}, {1, 1, 1}, {3000})) << "2048 + 1 is 2048 in halves";
}

TEST(Deconvolution, RefusesWhatHasNoResult) {
  const auto refused = [](Texts texts, const std::string& word, const Tensor& weight = kThreeTaps) {
    texts.emplace("kernel", "(3,)");
    return refuses("Deconvolution", with(std::move(texts)), {kTwo, weight}, word);
  };
  EXPECT_TRUE(refused({{"stride", "(2,)"}, {"adj", "(2,)"}}, "adj"));
  EXPECT_TRUE(refused({{"target_shape", "(40,)"}}, "target_shape"));
  EXPECT_TRUE(refused({{"target_shape", "(3,)"}}, "target_shape")) << "an odd number of rows at stride 1";
  EXPECT_TRUE(refused({{"pad", "(2,)"}}, "pad"));
  EXPECT_TRUE(refused({}, "weight", tensor({2, 1, 3}, {})));
  EXPECT_TRUE(refused({{"num_group", "2"}}, "num_group"));
  EXPECT_TRUE(refused({{"stride", "(2, 2)"}}, "stride"));
  EXPECT_TRUE(refused({{"layout", "NWC"}}, "layout"));
  EXPECT_TRUE(refused({{"kernel", "(1, 1, 1, 1)"}}, "kernel"));
  EXPECT_TRUE(refused({{"stride", "(2147483647,)"}, {"pad", "(2147483647,)"}}, "pad"));
  const Texts plane = with({{"kernel", "(1, 1)"}, {"target_shape", "(0, 2)"}});
  EXPECT_TRUE(refuses("Deconvolution", plane, {tensor({1, 1, 1, 2}, {}), tensor({1, 1, 1, 1}, {})}, "target_shape"));
}

TEST(Deconvolution, KeepsOpenSizesAndGivesParametersTheirShapes) {
  DimTable table;
  const Dim batch = table.symbol("batch", {1, 64}), height = table.symbol("height", {1, 64});
  const Node node{
      .op = &ops::kDeconvolution,
      .name = "up",
      .attributes = DeconvolutionAttributes{
          .kernel = {4, 3}, .stride = {2, 1}, .dilate = {1, 1}, .pad = {1, 0}, .adj = {0, 0}, .num_filter = 6, .num_group = 2}};
  std::array<TypedValue, 3> src{{{"data", DType::kFloat16, {batch, 4, height, 5}},
                                 {"weight", DType::kInvalid, SymbolicShape::any()},
                                 {"bias", DType::kInvalid, SymbolicShape::any()}}};
  node.op->infer_parameters(node, src);
  EXPECT_EQ(src[1].dtype, DType::kFloat16);
  EXPECT_TRUE(src[1].shape == (SymbolicShape{4, 3, 4, 3}));
  EXPECT_TRUE(src[2].shape == (SymbolicShape{6}));
  std::array<TypedValue, 1> dst;
  const Status inferred = node.op->infer(node, src, dst);
  ASSERT_TRUE(inferred.ok()) << inferred.to_string();
  EXPECT_TRUE(dst[0].shape == (SymbolicShape{batch, 6, 2 * height, 7})) << dst[0].shape.to_string();
}

}  // namespace
}  // namespace shoal::worker
