// Attention as one step, and products whose rows are known when they run: against the reference device, for odd lengths, masks
// and widths.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/unit/worker/exec/graph_builder.hpp"
#include "worker/exec/cpu/kernels/panel_product.hpp"
#include "worker/ops/attention.hpp"
#include "worker/ops/fully_connected.hpp"
#include "worker/ops/normalization.hpp"
#include "worker/ops/products.hpp"
#include "worker/ops/softmax.hpp"

namespace shoal::worker {
namespace {

using testing::answer;
using testing::GraphBuilder;
using testing::kInfinity;
using testing::kNan;

/// Sums of float32 in another order, behind a softmax.
constexpr double kBehindSoftmax = 5e-6;

/// Queries, keys and values side by side, and how many keys each query sees.
Graph self_attention(std::int64_t heads, bool with_lengths) {
  GraphBuilder b;
  const ValueId tokens = b.input("tokens");
  const ValueId scores = b.node("AttentionScores", {tokens}, AttentionAttributes{heads, true});
  std::vector<ValueId> inputs = {scores};
  if (with_lengths) inputs.push_back(b.input("lengths"));
  const ValueId weights = b.node("Softmax", inputs, SoftmaxAttributes{.use_length = with_lengths});
  b.output(b.node("AttentionValues", {tokens, b.node("Identity", {weights})}, AttentionAttributes{heads, true}));
  return b.graph();
}

/// As exporters write it: two products around a softmax, with a mask that is added to the scores.
Graph masked_attention(bool mask_comes_first = false) {
  GraphBuilder b;
  const ValueId queries = b.input("queries"), keys = b.input("keys"), values = b.input("values"), mask = b.input("mask");
  const ValueId scores = b.node("MatMul", {queries, keys}, MatMulAttributes{.transpose_b = true, .scale = 0.3});
  const ValueId masked =
      mask_comes_first ? b.binary(BinaryKind::kAdd, mask, scores, true) : b.binary(BinaryKind::kAdd, scores, mask, true);
  b.output(b.node("MatMul", {b.node("Softmax", {masked}, SoftmaxAttributes{}), values}, MatMulAttributes{}));
  return b.graph();
}

/// The answer of the device cpu, and of how many steps its program is.
std::pair<std::vector<Tensor>, std::size_t> answer_and_steps(const Graph& graph, const std::vector<Tensor>& inputs) {
  const auto specs = testing::specs_of(graph, inputs);
  const auto model = testing::load(graph, specs);
  model->enter_thread();
  const auto program = model->program(specs).value();
  Context context;
  return {testing::run(*program, context, inputs), program->step_count()};
}

/// Numbers alike, and NaN at the same places.
void expect_alike_with_nan(const Tensor& got, const Tensor& want, double tolerance) {
  const auto a = got.view().values<float>(), b = want.view().values<float>();
  ASSERT_EQ(a.size(), b.size());
  double largest = 1;
  for (const float number : b)
    largest = std::isfinite(number) ? std::max(largest, std::abs(static_cast<double>(number))) : largest;
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(std::isnan(a[i]), std::isnan(b[i])) << "element " << i << ": " << a[i] << " and " << b[i];
    if (a[i] != b[i] && !std::isnan(b[i])) ASSERT_NEAR(a[i], b[i], tolerance * largest) << "element " << i;
  }
}

/// On the cpu device in one step, with the same bits for one, two and three threads, and as the reference device.
void expect_one_step(const Graph& graph, const std::vector<Tensor>& inputs) {
  if (!cpu::has_panel_products()) GTEST_SKIP() << "this processor has no fused multiplications and additions";
  const auto [got, steps] = answer_and_steps(graph, inputs);
  EXPECT_EQ(steps, 1u);
  expect_alike_with_nan(got[0], answer(graph, inputs, "cpu-reference")[0], kBehindSoftmax);
  for (const int threads : {2, 3}) EXPECT_TRUE(testing::same_bits(got, answer(graph, inputs, "cpu", threads))) << threads;
}

TEST(Attention, IsOneStepForAnyLengthAndSize) {
  for (const std::int64_t length : {1, 7, 33, 65, 511}) {
    for (const std::int64_t size : {3, 16, 64, 80}) {
      if (length == 511 && size != 64) continue;  // plain loops take long
      SCOPED_TRACE(std::to_string(length) + " positions of size " + std::to_string(size));
      const Shape shape{length, 2, 3 * 3 * size};
      expect_one_step(self_attention(3, false), {testing::noise(shape)});
    }
  }
}

template <typename T>
Tensor lengths_of(DType type, const Shape& shape, const std::vector<T>& numbers) {
  Tensor tensor = Tensor::create(type, shape).value();
  const auto values = tensor.view().values<T>();
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = numbers[i % numbers.size()];
  return tensor;
}

// A query that sees no key gets zeros; a length below 0 or beyond the keys is cut.
TEST(Attention, SeesAsManyKeysAsItsLengthSays) {
  const Shape shape{33, 2, 2 * 3 * 8}, rows{4, 33};
  const Tensor tokens = testing::noise(shape);
  expect_one_step(self_attention(2, true), {tokens, lengths_of<std::int32_t>(DType::kInt32, rows, {33, 0, 1, 17, 32, -5, 40})});
  expect_one_step(self_attention(2, true),
                  {tokens, lengths_of<std::int64_t>(DType::kInt64, rows, {33, 0, 1, std::int64_t{1} << 40})});
}

TEST(Attention, AddsAMaskThatIsBroadcast) {
  const Shape queries{2, 3, 5, 16}, keys{2, 3, 21, 16}, values{2, 3, 21, 24};
  for (const Shape& mask : {Shape{2, 3, 5, 21}, Shape{2, 1, 1, 21}, Shape{3, 1, 21}, Shape{5, 21}, Shape{21}}) {
    for (const bool comes_first : {false, true}) {
      SCOPED_TRACE(mask.to_string());
      expect_one_step(masked_attention(comes_first),
                      {testing::noise(queries, 1), testing::noise(keys, 2), testing::noise(values, 3), testing::noise(mask, 4)});
    }
  }
}

// How many rows it has is known when the program runs: one is broadcast.
TEST(Attention, OfWhichTheMaskHasRowsFromDataIsNoStep) {
  GraphBuilder b;
  const ValueId queries = b.input("queries"), keys = b.input("keys"), rows = b.input("rows"), which = b.input("which");
  const ValueId scores = b.node("MatMul", {queries, keys}, MatMulAttributes{.transpose_b = true});
  const ValueId masked = b.binary(BinaryKind::kAdd, scores, b.node("BooleanMask", {rows, which}), true);
  b.output(b.node("MatMul", {b.node("Softmax", {masked}, SoftmaxAttributes{}), keys}, MatMulAttributes{}));
  const Shape three{1, 3, 8}, five{1, 5, 8}, mask{3, 5};
  Tensor last = Tensor::create(DType::kFloat32, {3}).value();
  std::ranges::copy(std::array{0.f, 0.f, 1.f}, last.view().values<float>().begin());
  const std::vector inputs{testing::noise(three, 1), testing::noise(five, 2), testing::noise(mask, 3), last};
  expect_alike_with_nan(answer(b.graph(), inputs, "cpu")[0], answer(b.graph(), inputs, "cpu-reference")[0], kBehindSoftmax);
}

// A row that sees nothing is NaN, as that of the operators by themselves; a NaN stays in its row.
TEST(Attention, KeepsInfinitiesAndNan) {
  const Shape queries{1, 7, 8}, keys{1, 9, 8}, mask{1, 7, 9};
  Tensor numbers = testing::noise(mask, 4);
  const auto values = numbers.view().values<float>();
  for (std::size_t i = 0; i < 9; ++i) values[i] = -kInfinity;
  for (std::size_t i = 9; i < 13; ++i) values[i] = -kInfinity;
  values[3 * 9 + 4] = kNan;
  values[5 * 9] = kInfinity;
  expect_one_step(masked_attention(), {testing::noise(queries, 1), testing::noise(keys, 2), testing::noise(keys, 3), numbers});
}

// What lies between is read elsewhere, or is no attention: then the nodes run one by one.
TEST(Attention, OfWhichSomebodyReadsTheWeightsIsNoStep) {
  Graph graph = self_attention(3, false);
  graph.outputs.push_back({"weights", graph.nodes[1].outputs[0]});
  const std::vector inputs{testing::noise({5, 1, 36})};
  const auto [got, steps] = answer_and_steps(graph, inputs);
  EXPECT_GT(steps, 1u);
  EXPECT_TRUE(testing::alike(got, answer(graph, inputs, "cpu-reference"), kBehindSoftmax));
}

Graph layer(std::int64_t depth, std::int64_t units, const char* function) {
  GraphBuilder b;
  ValueId x = b.node("FullyConnected", {b.input("x"), b.constant({units, depth}), b.constant({units})},
                     FullyConnectedAttributes{.num_hidden = units, .flatten = false});
  const std::string_view name = function;
  if (name == "gelu") x = b.node("LeakyReLU", {x}, LeakyAttributes{.kind = LeakyKind::kGelu});
  if (name == "tanh") x = b.activation(x, ActivationKind::kTanh);
  if (name == "sigmoid") x = b.activation(x, ActivationKind::kSigmoid);
  if (name == "relu") x = b.activation(x);
  b.output(x);
  return b.graph();
}

TEST(RowsProduct, IsExactForAnyNumberOfRowsAndColumns) {
  for (const std::int64_t depth : {1, 7, 130, 300}) {
    for (const std::int64_t units : {1, 15, 16, 65, 128}) {
      for (const std::int64_t rows : {1, 2, 6, 7, 13, 100}) {
        SCOPED_TRACE(std::to_string(rows) + " rows of " + std::to_string(depth) + " to " + std::to_string(units));
        const std::vector<Tensor> inputs = {testing::noise({rows, depth})};
        const auto got = answer(layer(depth, units, ""), inputs, "cpu");
        ASSERT_TRUE(testing::alike(got, answer(layer(depth, units, ""), inputs, "cpu-reference"), kBehindSoftmax));
      }
    }
  }
}

// Deep products with many columns are computed a part of the depth at a time: from 1024 on with AVX2, from 4096 on with AVX-512.
TEST(RowsProduct, IsExactWhereItIsComputedInParts) {
  for (const auto& [rows, depth, units] : {std::array<std::int64_t, 3>{50, 1030, 200}, {193, 2047, 129}, {197, 4353, 270}}) {
    const std::vector<Tensor> inputs = {testing::noise({rows, depth})};
    const auto got = answer(layer(depth, units, "relu"), inputs, "cpu");
    ASSERT_TRUE(testing::alike(got, answer(layer(depth, units, "relu"), inputs, "cpu-reference"), kBehindSoftmax));
  }
}

TEST(RowsProduct, AppliesTheFunctionsBehindIt) {
  for (const char* const function : {"gelu", "tanh", "sigmoid", "relu"}) {
    SCOPED_TRACE(function);
    Tensor data = testing::noise({9, 40});
    data.view().values<float>()[3] = kNan;
    data.view().values<float>()[45] = kInfinity;
    const auto [got, steps] = answer_and_steps(layer(40, 70, function), {data});
    if (cpu::has_panel_products()) EXPECT_EQ(steps, 1u);
    expect_alike_with_nan(got[0], answer(layer(40, 70, function), {data}, "cpu-reference")[0], kBehindSoftmax);
  }
}

// So requests that are joined, and requests of other lengths, get the bits that they would get alone.
TEST(RowsProduct, OfARowDoesNotDependOnOtherRowsOrThreads) {
  if (!cpu::has_panel_products()) GTEST_SKIP() << "oneDNN's sums depend on the number of rows";
  for (const std::int64_t depth : {300, 1030, 4353}) {
    const std::int64_t units = 270, rows = 131;
    const Graph graph = layer(depth, units, "gelu");
    const Tensor data = testing::noise({rows, depth});
    const auto together = answer(graph, {data}, "cpu");
    for (const int threads : {2, 3}) EXPECT_TRUE(testing::same_bits(together, answer(graph, {data}, "cpu", threads)));
    for (const std::int64_t row : {0, 1, 77, 130}) {
      Tensor alone = Tensor::create(DType::kFloat32, {1, depth}).value();
      std::ranges::copy(
          data.view().values<float>().subspan(static_cast<std::size_t>(row * depth), static_cast<std::size_t>(depth)),
          alone.view().values<float>().begin());
      const auto got = answer(graph, {alone}, "cpu");
      const auto want =
          together[0].view().values<float>().subspan(static_cast<std::size_t>(row * units), static_cast<std::size_t>(units));
      EXPECT_TRUE(std::ranges::equal(got[0].view().values<float>(), want)) << row;
    }
  }
}

}  // namespace
}  // namespace shoal::worker
