// Rnn on the device cpu: products of oneDNN and a step per direction, against the oracle kernel.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tests/support/tensor_values.hpp"
#include "tests/support/vectors.hpp"
#include "tests/unit/worker/exec/graph_builder.hpp"
#include "tests/unit/worker/exec/typed_answers.hpp"
#include "worker/exec/cpu/kernels/panel_product.hpp"
#include "worker/exec/planned_program.hpp"
#include "worker/graph/convert.hpp"
#include "worker/ops/recurrent.hpp"

namespace shoal::worker {
namespace {

using testing::GraphBuilder;
using testing::load;
using testing::runs_oracle_kernel;
using testing::spec;
using testing::TypedAnswer;

struct Sizes {
  std::int64_t steps = 5, sequences = 3, width = 7;
};

std::int64_t parameters_in(const RnnAttributes& rnn, std::int64_t width) {
  const RnnSizes sizes(rnn, Shape{1, 1, width});
  const std::int64_t units = sizes.gates * sizes.hidden;
  return rnn_parameters(sizes, sizes.layers - 1, sizes.directions - 1).state_bias + units;
}

struct RecurrentNetwork {
  Graph graph;
  std::vector<TensorSpec> inputs;
};
/// A Rnn between its inputs and all its outputs.
RecurrentNetwork recurrent_network(const RnnAttributes& rnn, const Sizes& sizes = {}, DType lengths_type = DType::kFloat32) {
  const bool is_lstm = rnn.mode == RnnMode::kLstm;
  const std::int64_t states = rnn.layers * (rnn.bidirectional ? 2 : 1), result = rnn.projection > 0 ? rnn.projection : rnn.hidden;
  GraphBuilder b;
  RecurrentNetwork made;
  const auto input = [&](const TensorSpec& described) {
    made.inputs.push_back(described);
    return b.input(described.name);
  };
  std::vector<ValueId> sources{input(spec("data", {sizes.steps, sizes.sequences, sizes.width}))};
  sources.push_back(b.constant({parameters_in(rnn, sizes.width)}, 0, 0.4F));
  sources.push_back(input(spec("state", {states, sizes.sequences, result})));
  if (rnn.has_lengths) sources.push_back(input({"lengths", lengths_type, {sizes.sequences}}));
  if (is_lstm) sources.push_back(input(spec("cells", {states, sizes.sequences, rnn.hidden})));
  const int outputs = is_lstm ? 3 : 2;
  const ValueId first = b.node("Rnn", sources, rnn, outputs);
  for (int i = 0; i < outputs; ++i) b.output(first + i);
  made.graph = b.graph();
  return made;
}

/// Runs it on noise; the lengths go from 0 to beyond the steps.
TypedAnswer run_twice(Model& model, const std::vector<TensorSpec>& inputs) {
  model.enter_thread();
  const auto program = model.program(inputs).value();
  std::vector<Tensor> tensors;
  for (const TensorSpec& input : program->inputs()) {
    const Tensor noise = testing::noise(input.shape, tensors.size() + 1);
    tensors.push_back(testing::tensor_of_numbers(input, [&](std::int64_t i) {
      return input.name == "lengths" ? static_cast<double>(i * 3) + 0.5 : noise.values<float>()[static_cast<std::size_t>(i)];
    }));
  }
  Context context;
  const TypedAnswer first = testing::run_typed(*program, context, tensors);
  const TypedAnswer second = testing::run_typed(*program, context, tensors);
  EXPECT_EQ(second.outputs, first.outputs) << "a second run differs";
  return second;
}

void expect_outputs_alike(const TypedAnswer& got, const TypedAnswer& want, double tolerance) {
  ASSERT_EQ(got.outputs.size(), want.outputs.size());
  for (std::size_t k = 0; k < want.outputs.size(); ++k) {
    ASSERT_EQ(got.outputs[k].size(), want.outputs[k].size());
    double largest = 1;
    for (const double x : want.outputs[k]) largest = std::max(largest, std::abs(x));
    for (std::size_t i = 0; i < want.outputs[k].size(); ++i)
      ASSERT_NEAR(got.outputs[k][i], want.outputs[k][i], tolerance * largest) << "output " << k << ", element " << i;
  }
}

/// Both devices answer alike, and cpu without the oracle kernel.
void expect_fast(const RecurrentNetwork& net, double tolerance = 2e-5) {
  const TypedAnswer want = run_twice(*load(net.graph, net.inputs, "cpu-reference"), net.inputs);
  for (const int threads : {1, 2}) {
    const TypedAnswer got = run_twice(*load(net.graph, net.inputs, "cpu", threads), net.inputs);
    EXPECT_FALSE(runs_oracle_kernel(got));
    expect_outputs_alike(got, want, tolerance);
  }
}

constexpr RnnMode kModes[] = {RnnMode::kRelu, RnnMode::kTanh, RnnMode::kLstm, RnnMode::kGru};

TEST(RnnOnCpu, AnswersAsTheOracleKernelInEveryMode) {
  for (const RnnMode mode : kModes) {
    SCOPED_TRACE(kWords<RnnMode>[static_cast<std::size_t>(mode)]);
    for (const std::int64_t layers : {1, 3}) {
      for (const bool both : {false, true})
        expect_fast(recurrent_network({.mode = mode, .hidden = 5, .layers = layers, .bidirectional = both}));
    }
    expect_fast(recurrent_network({.mode = mode, .hidden = 300, .layers = 2}, {.steps = 4, .sequences = 1, .width = 33}));
    expect_fast(
        recurrent_network({.mode = mode, .hidden = 300, .bidirectional = true}, {.steps = 2, .sequences = 19, .width = 1}));
    expect_fast(recurrent_network({.mode = mode, .hidden = 1}, {.steps = 1, .sequences = 1, .width = 1}));
  }
}

TEST(RnnOnCpu, StopsAtTheLengths) {
  for (const RnnMode mode : kModes) {
    for (const DType type : {DType::kFloat32, DType::kInt32, DType::kInt64, DType::kUInt8})
      expect_fast(
          recurrent_network({.mode = mode, .hidden = 6, .layers = 2, .bidirectional = true, .has_lengths = true}, {}, type));
  }
}

TEST(RnnOnCpu, ProjectsAndCutsTheCellsOfAnLstm) {
  for (const std::int64_t projection : {2, 9}) {
    const RnnAttributes rnn{.hidden = 6, .layers = 2, .bidirectional = true, .projection = projection};
    expect_fast(recurrent_network(rnn));
    RnnAttributes with_lengths = rnn;
    with_lengths.has_lengths = true;
    expect_fast(recurrent_network(with_lengths, {}, DType::kInt32));
  }
  expect_fast(recurrent_network({.hidden = 6, .layers = 2, .clip_min = -0.1, .clip_max = 0.25}));
}

TEST(RnnOnCpu, ComputesHalfTypesInFloat32) {
  for (const DType type : {DType::kFloat16, DType::kBFloat16}) {
    RecurrentNetwork net = recurrent_network({.mode = RnnMode::kGru, .hidden = 6, .layers = 2});
    for (TensorSpec& input : net.inputs) input.dtype = type;
    expect_fast(net, type == DType::kFloat16 ? 0x1p-9 : 0x1p-6);
  }
}

TEST(RnnOnCpu, RunsByTheOracleKernelWhereOneDnnCannot) {
  RecurrentNetwork doubles = recurrent_network({.hidden = 4});
  for (TensorSpec& input : doubles.inputs) input.dtype = DType::kFloat64;
  const TypedAnswer got = run_twice(*load(doubles.graph, doubles.inputs), doubles.inputs);
  EXPECT_TRUE(runs_oracle_kernel(got));
  expect_outputs_alike(got, run_twice(*load(doubles.graph, doubles.inputs, "cpu-reference"), doubles.inputs), 1e-12);
  const RecurrentNetwork deep = recurrent_network({.mode = RnnMode::kTanh, .hidden = 1, .layers = 70});
  const TypedAnswer layers = run_twice(*load(deep.graph, deep.inputs), deep.inputs);
  EXPECT_TRUE(runs_oracle_kernel(layers));
  expect_outputs_alike(layers, run_twice(*load(deep.graph, deep.inputs, "cpu-reference"), deep.inputs), 1e-6);
  // Parameters that come with the request.
  GraphBuilder b;
  b.output(b.node("Rnn", {b.input("data"), b.input("parameters"), b.input("state")},
                  RnnAttributes{.mode = RnnMode::kGru, .hidden = 2}));
  const std::vector<TensorSpec> inputs{spec("data", {3, 2, 4}), spec("parameters", {48}), spec("state", {1, 2, 2})};
  const TypedAnswer given = run_twice(*load(b.graph(), inputs), inputs);
  EXPECT_TRUE(runs_oracle_kernel(given));
  expect_outputs_alike(given, run_twice(*load(b.graph(), inputs, "cpu-reference"), inputs), 1e-6);
}

TEST(RnnOnCpu, NeedsNeitherCodeNorOtherWeightsForOtherLengths) {
  if (!cpu::has_panel_products()) GTEST_SKIP() << "oneDNN runs the products, and generates code";
  const RnnAttributes lstm{.hidden = 24, .layers = 2, .bidirectional = true, .projection = 16};
  const RecurrentNetwork first = recurrent_network(lstm);
  const auto model = load(first.graph, first.inputs);
  for (std::int64_t steps = 1; steps <= 64; ++steps) {
    const auto program = model->program(recurrent_network(lstm, {.steps = steps, .sequences = 1 + steps % 3}).inputs).value();
    const Plan& plan = static_cast<const PlannedProgram&>(*program).plan();
    EXPECT_TRUE(plan.privates.empty()) << "weights were packed again for " << steps << " steps";
    for (const auto& step : plan.steps) EXPECT_FALSE(step->has_code()) << step->name() << " by " << step->implementation();
  }
  EXPECT_EQ(model->program_counters().compiled, 0U);
}

TEST(RnnOnCpu, WithoutStepsGivesItsStatesBack) {
  for (const RnnMode mode : kModes) expect_fast(recurrent_network({.mode = mode, .hidden = 5, .layers = 2}, {.steps = 0}));
  // Also where the parameters were packed for other lengths.
  const RnnAttributes lstm{.mode = RnnMode::kLstm, .hidden = 5};
  const auto model = load(recurrent_network(lstm).graph, recurrent_network(lstm).inputs);
  const auto inputs = recurrent_network(lstm, {.steps = 0}).inputs;
  expect_outputs_alike(run_twice(*model, inputs),
                       run_twice(*load(recurrent_network(lstm).graph, inputs, "cpu-reference"), inputs), 0);
}

TEST(RnnOnCpu, CanBeStoppedWithinASequence) {
  const RecurrentNetwork net = recurrent_network({.mode = RnnMode::kGru, .hidden = 5}, {.steps = 1000});
  const auto model = load(net.graph, net.inputs);
  const auto program = model->program(net.inputs).value();
  std::vector<Tensor> tensors;
  std::vector<TensorView> src, dst;
  for (const auto& [specs, views] : {std::pair(&program->inputs(), &src), std::pair(&program->outputs(), &dst)}) {
    for (const TensorSpec& each : *specs)
      views->push_back(tensors.emplace_back(Tensor::create(each.dtype, each.shape).value()).view());
  }
  testing::StopAt stop(static_cast<int>(program->step_count()) + 3);
  Progress progress;
  progress.stop = &stop;
  Context context;
  context.progress = &progress;
  const Status stopped = program->run(context, src, dst);
  EXPECT_EQ(stopped.code(), StatusCode::kCancelled);
  EXPECT_NE(stopped.message().find("of its 1000 steps"), std::string::npos) << stopped.message();
}

TEST(RnnOnCpu, OutputsThatNobodyReadsAreNotMade) {
  for (const int wanted : {0, 1, 2}) {
    RecurrentNetwork net = recurrent_network({.hidden = 5, .layers = 2});
    net.graph.outputs = {net.graph.outputs[static_cast<std::size_t>(wanted)]};
    expect_fast(net);
  }
}

// Programs of other lengths and batches, also in a process that opens the packed weights, read what was packed for the first one.
TEST(RnnOnCpu, ProgramsOfOtherShapesReadThePackedWeights) {
  const RnnAttributes wide{.mode = RnnMode::kLstm, .hidden = 400, .layers = 2};
  const RecurrentNetwork net = recurrent_network(wide);
  const auto fast = load(net.graph, net.inputs), slow = load(net.graph, net.inputs, "cpu-reference");
  const auto opened = Model::load(net.graph, {.input_sets = {net.inputs}}, UniqueFd(::dup(fast->packed_fd())));
  ASSERT_TRUE(opened.ok()) << opened.status().to_string();
  for (const Sizes& sizes : {Sizes{1, 1, 7}, Sizes{30, 2, 7}, Sizes{2, 40, 7}}) {
    const auto inputs = recurrent_network(wide, sizes).inputs;
    const TypedAnswer want = run_twice(*slow, inputs), got = run_twice(*fast, inputs);
    EXPECT_FALSE(runs_oracle_kernel(got));
    expect_outputs_alike(got, want, 1e-3);
    expect_outputs_alike(run_twice(**opened, inputs), want, 1e-3);
  }
  constexpr std::size_t kPage = 2 << 20;  // the store is rounded up to one
  EXPECT_LT(fast->packed_bytes(), sizeof(float) * static_cast<std::size_t>(parameters_in(wide, 7)) + kPage);
}

TEST(RnnOnCpu, KeepsNanAndInfinityWhereTheOracleKernelDoes) {
  GraphBuilder b;
  const RnnAttributes rnn{.mode = RnnMode::kLstm, .hidden = 3};
  const ValueId data = b.input("data"), state = b.input("state"), cells = b.input("cells");
  b.output(b.node("Rnn", {data, b.constant({parameters_in(rnn, 2)}), state, cells}, rnn));
  for (const float odd : {std::nanf(""), HUGE_VALF, -HUGE_VALF}) {
    std::vector<std::vector<double>> answers;
    for (const char* const device : {"cpu", "cpu-reference"}) {
      Tensor x = testing::noise({3, 2, 2}), h = testing::noise({1, 2, 3}, 2), c = testing::noise({1, 2, 3}, 3);
      x.values<float>()[4] = odd;  // step 1 of sequence 0
      answers.push_back(shoal::testing::as_doubles(testing::answer(b.graph(), {x, h, c}, device)[0].view()));
    }
    EXPECT_TRUE(shoal::testing::values_close(answers[0], answers[1], 1e-5));
  }
}

}  // namespace
}  // namespace shoal::worker
