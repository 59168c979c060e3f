// Many lengths of one transformer: a program for each, of kernels that know the length when they run.
#include <gtest/gtest.h>

#include "tests/unit/worker/exec/graph_builder.hpp"
#include "worker/exec/cpu/kernels/panel_product.hpp"
#include "worker/exec/planned_program.hpp"
#include "worker/ops/activation.hpp"
#include "worker/ops/attention.hpp"
#include "worker/ops/fully_connected.hpp"
#include "worker/ops/movement.hpp"
#include "worker/ops/normalization.hpp"
#include "worker/ops/softmax.hpp"

namespace shoal::worker {
namespace {

using testing::GraphBuilder;
using testing::spec;

constexpr std::int64_t kWidth = 48, kHeads = 3;

/// A small BERT: two layers over tokens (length, batch, width) and the lengths of their rows of scores; then a layer over the
/// first token.
Graph transformer() {
  GraphBuilder b;
  ValueId x = b.input("tokens");
  const ValueId lengths = b.input("lengths");
  const auto layer = [&](ValueId src, std::int64_t from, std::int64_t to) {
    return b.node("FullyConnected", {src, b.constant({to, from}, 0, 0.2F), b.constant({to})},
                  FullyConnectedAttributes{.num_hidden = to, .flatten = false});
  };
  const auto norm = [&](ValueId src) {
    return b.node("LayerNorm", {src, b.constant({kWidth}, 1, 0.25F), b.constant({kWidth})}, LayerNormAttributes{}, 3);
  };
  for (int i = 0; i < 2; ++i) {
    const ValueId qkv = layer(x, kWidth, 3 * kWidth);
    const ValueId scores = b.node("AttentionScores", {qkv}, AttentionAttributes{kHeads, true});
    const ValueId weights = b.node("Softmax", {scores, lengths}, SoftmaxAttributes{.use_length = true});
    x = norm(b.add(layer(b.node("AttentionValues", {qkv, weights}, AttentionAttributes{kHeads, true}), kWidth, kWidth), x));
    const ValueId wide = b.node("LeakyReLU", {layer(x, kWidth, 4 * kWidth)}, LeakyAttributes{.kind = LeakyKind::kGelu});
    x = norm(b.add(layer(wide, 4 * kWidth, kWidth), x));
  }
  const ValueId turned = b.node("Transpose", {x}, TransposeAttributes{{1, 0, 2}});
  b.output(turned);
  const ValueId first = b.node("Slice", {turned}, SliceAttributes{{{.axis = 1, .begin = 0, .end = 1}}});
  b.output(b.activation(layer(first, kWidth, kWidth), ActivationKind::kTanh));
  return b.graph();
}

std::vector<TensorSpec> transformer_inputs(std::int64_t length, std::int64_t batch) {
  return {spec("tokens", {length, batch, kWidth}), {"lengths", DType::kInt32, {batch * kHeads, length}}};
}

/// Noise for the tokens; every query sees another number of keys.
std::vector<Tensor> answer_with_every_length(const Model& model, const Program& program) {
  model.enter_thread();
  std::vector<Tensor> inputs;
  inputs.push_back(testing::noise(program.inputs()[0].shape));
  inputs.push_back(Tensor::create(DType::kInt32, program.inputs()[1].shape).value());
  const auto lengths = inputs[1].view().values<std::int32_t>();
  for (std::size_t i = 0; i < lengths.size(); ++i)
    lengths[i] = static_cast<std::int32_t>(1 + i % static_cast<std::size_t>(program.inputs()[0].shape[0]));
  Context context;
  return testing::run(program, context, inputs);
}

TEST(Lengths, OfATransformerNeedNeitherCodeNorOtherWeights) {
  if (!cpu::has_panel_products()) GTEST_SKIP() << "oneDNN runs the products, and generates code";
  for (const int threads : {1, 2}) {
    const auto model = testing::load(transformer(), transformer_inputs(16, 1), "cpu", threads);
    for (std::int64_t length = 1; length <= 512; ++length) {
      const auto program = model->program(transformer_inputs(length, 1 + length % 3)).value();
      const Plan& plan = static_cast<const PlannedProgram&>(*program).plan();
      EXPECT_TRUE(plan.privates.empty()) << "weights were packed again for length " << length;
      for (const auto& step : plan.steps) EXPECT_FALSE(step->has_code()) << step->name() << " by " << step->implementation();
    }
    const ProgramCounters counters = model->program_counters();
    EXPECT_EQ(counters.compiled, 0U);
    EXPECT_EQ(counters.codeless, 512U);
    EXPECT_EQ(counters.evicted, 0U) << counters.bytes << " bytes";
  }
}

// A program is chosen by its shapes alone: which one was loaded first changes no bit.
TEST(Lengths, GiveTheBitsOfAModelThatWasLoadedForThem) {
  const auto model = testing::load(transformer(), transformer_inputs(16, 1));
  for (const std::int64_t length : {1, 7, 33, 130}) {
    const auto inputs = transformer_inputs(length, 2);
    const auto own = testing::load(transformer(), inputs);
    const auto reference = testing::load(transformer(), inputs, "cpu-reference");
    const auto got = answer_with_every_length(*model, **model->program(inputs));
    if (cpu::has_panel_products())
      EXPECT_TRUE(testing::same_bits(got, answer_with_every_length(*own, **own->program(inputs)))) << length;
    EXPECT_TRUE(testing::alike(got, answer_with_every_length(*reference, **reference->program(inputs)), 1e-5)) << length;
  }
}

}  // namespace
}  // namespace shoal::worker
