// Nodes with bodies: If, Loop and Scan over programs of their own.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <ostream>

#include "tests/support/custom_operator.hpp"
#include "tests/support/dynamic_operators.hpp"
#include "tests/support/interpreter.hpp"
#include "tests/unit/worker/exec/bodies_graphs.hpp"
#include "tests/unit/worker/exec/graph_builder.hpp"
#include "tests/unit/worker/exec/shaped_numbers.hpp"
#include "worker/exec/owned_outputs.hpp"
#include "worker/exec/planned_program.hpp"
#include "worker/graph/convert.hpp"
#include "worker/ops/cast.hpp"
#include "worker/ops/control_flow.hpp"
#include "worker/ops/convolution.hpp"
#include "worker/ops/fully_connected.hpp"
#include "worker/ops/reduce.hpp"
#include "worker/ops/unary.hpp"

namespace shoal::worker {
namespace {

using testing::doubling_loop;
using testing::GraphBuilder;
using testing::kLoopInputs;
using testing::nested_branches;
using testing::Numbers;
using testing::shaped_numbers_of;
using testing::ShapedNumbers;
using testing::spec;

Tensor tensor_of(const TensorSpec& spec, const Numbers& numbers) {
  if (spec.dtype != DType::kInt64) return testing::float_tensor(spec.shape, numbers);
  Tensor tensor = Tensor::create(spec.dtype, spec.shape).value();
  std::ranges::copy(numbers, tensor.values<std::int64_t>().begin());
  return tensor;
}

Numbers numbers_of(const Tensor& tensor) { return shaped_numbers_of(tensor).numbers; }

struct Device {
  const char* name;
  bool fuses;
};
void PrintTo(const Device& device, std::ostream* stream) { *stream << device.name << (device.fuses ? "" : " unfused"); }

/// One model on one of the devices.
class Bodies : public ::testing::TestWithParam<Device> {
 protected:
  static std::unique_ptr<Model> load(const Graph& graph, const std::vector<TensorSpec>& specs) {
    return testing::load(graph, specs, GetParam().name, 1, GetParam().fuses);
  }
  void use(const Graph& graph, const std::vector<TensorSpec>& specs) {
    model_ = load(graph, specs);
    program_ = model_->program(specs).value();
    graph_ = graph;
  }
  /// The outputs, or an error.
  Result<std::vector<ShapedNumbers>> try_run(const std::vector<Numbers>& inputs) {
    std::vector<Tensor> tensors;
    std::vector<TensorView> src;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      tensors.push_back(tensor_of(program_->inputs()[i], inputs[i]));
      src.push_back(tensors.back().view());
    }
    auto outputs = OwnedOutputs::make(program_->outputs()).value();
    context_.sink = &outputs;
    SHOAL_RETURN_IF_ERROR(program_->run(context_, src, outputs.views()));
    std::vector<ShapedNumbers> all;
    for (const NamedTensor& output : std::move(outputs).take()) all.push_back(shaped_numbers_of(output.tensor));
    return all;
  }
  /// The outputs, which the interpreter must give, too: it has no plan of the memory.
  std::vector<ShapedNumbers> run(const std::vector<Numbers>& inputs) {
    auto got = try_run(inputs).value();
    Tensors named;
    for (std::size_t i = 0; i < inputs.size(); ++i)
      named.push_back({program_->inputs()[i].name, tensor_of(program_->inputs()[i], inputs[i])});
    const Tensors want = shoal::testing::interpret(graph_, named).value();
    for (std::size_t i = 0; i < got.size(); ++i) {
      if (is_dynamic(program_->outputs()[i])) continue;  // the interpreter knows the largest size only
      EXPECT_EQ(got[i].shape, want[i].tensor.shape());
      expect_near(got[i].numbers, numbers_of(want[i].tensor));
    }
    return got;
  }
  static void expect_near(const Numbers& got, const Numbers& want) {
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-5F * std::max(1.0F, std::abs(want[i]))) << i;
  }

  Graph graph_;
  std::unique_ptr<Model> model_;
  std::shared_ptr<const Program> program_;
  Context context_;
};

TEST_P(Bodies, ALoopCarriesItsStateUntilItsConditionFails) {
  use(doubling_loop(), kLoopInputs);
  EXPECT_TRUE(program_->time_varies());
  EXPECT_EQ(run({{3}, {1}, {1}})[0].numbers[0], 127);   // 7 15 31 63 127
  EXPECT_EQ(run({{60}, {1}, {0}})[0].numbers[0], 120);  // one turn: an odd number of them
  EXPECT_EQ(run({{3}, {0}, {1}})[0].numbers[0], 3) << "no turn";
  EXPECT_EQ(run({{0.001F}, {1}, {0}})[0].numbers[0], 0.001F * 1024) << "ten turns are the most";
}

TEST_P(Bodies, ALoopMakesAsManyTurnsAsItsInputSaysAndItsAttributeAllows) {
  GraphBuilder body;
  const ValueId turn = body.input("turn"), x = body.input("x");
  body.output(body.number(1));
  body.output(body.add(x, body.node("Cast", {turn}, CastAttributes{DType::kFloat32})));
  GraphBuilder b;
  const ValueId turns = b.input("turns"), data = b.input("data");
  b.output(b.node_with_bodies("Loop", {turns, b.number(1), data}, {body.graph()}, LoopAttributes{.most_turns = 7}));
  use(b.graph(), {{"turns", DType::kInt64, Shape()}, spec("data", Shape())});
  const float want[] = {10, 10, 11, 13, 16, 20, 25, 31, 31, 31};  // 0 + 1 + 2 ...
  for (int turns_now = 0; turns_now < 10; ++turns_now)
    EXPECT_EQ(run({{static_cast<float>(turns_now)}, {10}})[0].numbers[0], want[turns_now]) << turns_now;
  EXPECT_EQ(run({{-5}, {10}})[0].numbers[0], 10);
}

TEST_P(Bodies, ALoopStacksRowsOfWhichDataDecidesHowMany) {
  GraphBuilder body;
  body.input("turn");
  const ValueId x = body.input("x");
  const ValueId next = body.scalar(BinaryKind::kMul, x, 2);
  body.output(body.node("Reduce", {body.scalar(BinaryKind::kLesser, next, 100)}, ReduceAttributes{ReduceKind::kMin, {}}));
  body.output(next);
  body.output(body.scalar(BinaryKind::kAdd, next, 0.5));
  GraphBuilder b;
  const ValueId last = b.node_with_bodies("Loop", {b.number(100), b.number(1), b.input("data")}, {body.graph()},
                                          LoopAttributes{.most_turns = 5}, 2);
  const ValueId rows = last + 1;
  b.output(last);
  b.output(rows);
  b.output(b.scalar(BinaryKind::kMul, rows, 10));
  b.output(b.node("Reduce", {rows}, ReduceAttributes{ReduceKind::kSum, {0}}));
  use(b.graph(), {spec("data", {2})});
  EXPECT_EQ(program_->outputs()[1].shape, (Shape{-1, 2}));
  EXPECT_EQ(program_->outputs()[1].ranges[0], (DimRange{0, 5}));
  for (int again = 0; again < 2; ++again) {
    auto three = try_run({{20, 1}}).value();  // 40 80 160
    EXPECT_EQ(three[0].numbers, (Numbers{160, 8}));
    EXPECT_EQ(three[1].shape, (Shape{3, 2}));
    EXPECT_EQ(three[1].numbers, (Numbers{40.5F, 2.5F, 80.5F, 4.5F, 160.5F, 8.5F}));
    EXPECT_EQ(three[2].numbers, (Numbers{405, 25, 805, 45, 1605, 85}));
    EXPECT_EQ(three[3].numbers, (Numbers{281.5F, 15.5F}));
    EXPECT_EQ(try_run({{1, 1}}).value()[1].shape, (Shape{5, 2})) << "the most";
    EXPECT_EQ(try_run({{99, 1}}).value()[1].numbers, (Numbers{198.5F, 2.5F}));
  }
}

TEST_P(Bodies, ALoopWithoutTurnsGivesNoRow) {
  GraphBuilder body;
  body.input("turn");
  const ValueId x = body.input("x");
  body.output(body.number(1));
  body.output(body.scalar(BinaryKind::kAdd, x, 1));
  GraphBuilder b;
  const ValueId go = b.input("go"), data = b.input("data");
  b.output(b.node_with_bodies("Loop", {b.number(3), go, data}, {body.graph()}, LoopAttributes{.states = 1, .most_turns = 9}));
  GraphBuilder rows;  // a loop without a state
  rows.input("turn");
  rows.output(rows.number(1));
  rows.output(rows.input("x"));
  b.output(b.node_with_bodies("Loop", {b.number(3), go, data}, {rows.graph()}, LoopAttributes{.states = 0, .most_turns = 9}));
  use(b.graph(), {spec("go", {1}), spec("data", {2})});
  auto none = try_run({{0}, {5, 6}}).value();
  EXPECT_EQ(none[0].numbers, (Numbers{5, 6}));
  EXPECT_EQ(none[1].shape, (Shape{0, 2}));
  auto three = try_run({{1}, {5, 6}}).value();
  EXPECT_EQ(three[0].numbers, (Numbers{8, 9}));
  EXPECT_EQ(three[1].numbers, (Numbers{5, 6, 5, 6, 5, 6}));
}

// All results are empty, but a run finds how many empty rows there are.
TEST_P(Bodies, ALoopStacksRowsWithoutElements) {
  GraphBuilder rows;
  rows.input("turn");
  rows.output(rows.number(1));
  rows.output(rows.input("x"));
  GraphBuilder b;
  b.output(b.node_with_bodies("Loop", {b.number(3), b.input("go"), b.input("data")}, {rows.graph()},
                              LoopAttributes{.states = 0, .most_turns = 9}));
  use(b.graph(), {spec("go", {1}), spec("data", {0})});
  EXPECT_EQ(try_run({{1}, {}}).value()[0].shape, (Shape{3, 0}));
  EXPECT_EQ(try_run({{0}, {}}).value()[0].shape, (Shape{0, 0}));
}

TEST_P(Bodies, AreRefusedWhereTheyLieTooDeep) {
  GraphBuilder innermost;
  innermost.output(innermost.scalar(BinaryKind::kAdd, innermost.input("x"), 1));
  const Graph flat = innermost.graph();
  Graph graph = flat;
  for (int depth = 1; depth <= kMostNesting + 1; ++depth) {
    GraphBuilder b;
    const ValueId x = b.input("x");
    b.output(b.node_with_bodies("If", {b.number(1), x}, {graph, flat}));
    graph = b.graph();
    const auto loaded = Model::load(graph, {.device = GetParam().name, .input_sets = {{spec("x", {2})}}});
    EXPECT_EQ(loaded.status().code(), depth <= kMostNesting ? StatusCode::kOk : StatusCode::kInvalidArgument) << depth;
  }
}

TEST_P(Bodies, AScanStacksWhatEachRowGivesAndCarriesItsState) {
  GraphBuilder body;
  const ValueId row = body.input("row"), state = body.input("state"), weight = body.input("weight");
  const ValueId sum = body.add(body.node("FullyConnected", {row, weight}, FullyConnectedAttributes{.num_hidden = 3}), state);
  body.output(sum);
  body.output(body.activation(sum, ActivationKind::kRelu));
  GraphBuilder b;
  const ValueId data = b.input("data"), first = b.input("first"), weights = b.constant({3, 4});
  const ValueId last = b.node_with_bodies("Scan", {data, first, weights}, {body.graph()}, ScanAttributes{1, 1}, 2);
  b.output(last);
  b.output(last + 1);
  Tensor weight_tensor = Tensor::create(DType::kFloat32, {3, 4}).value();
  std::memcpy(weight_tensor.view().data, b.graph().value(weights).constant->bytes.data(), weight_tensor.size_bytes());
  const Numbers w = numbers_of(weight_tensor);
  for (const std::int64_t turns : {5, 4, 1, 0}) {  // rows of 32 bytes: they lie at any addresses
    use(b.graph(), {spec("data", {turns, 2, 4}), spec("first", {2, 3})});
    const Numbers rows = numbers_of(testing::noise({turns, 2, 4})), start = numbers_of(testing::noise({2, 3}, 7));
    Numbers carried = start, stacked;
    for (std::size_t turn = 0; turn < static_cast<std::size_t>(turns); ++turn) {
      for (std::size_t i = 0; i < 2; ++i) {
        for (std::size_t j = 0; j < 3; ++j) {
          for (std::size_t k = 0; k < 4; ++k) carried[i * 3 + j] += rows[(turn * 2 + i) * 4 + k] * w[j * 4 + k];
        }
      }
      for (const float x : carried) stacked.push_back(std::max(x, 0.0F));
    }
    for (int again = 0; again < 2; ++again) {
      const auto got = run({rows, start});
      expect_near(got[0].numbers, carried);
      expect_near(got[1].numbers, stacked);
    }
  }
}

TEST_P(Bodies, BranchesMayHaveBranches) {
  use(nested_branches(), {spec("condition", {1}), spec("other", {1}), spec("data", {2})});
  for (int again = 0; again < 2; ++again) {
    EXPECT_EQ(run({{1}, {1}, {1, 10}})[0].numbers, (Numbers{2, 20}));
    EXPECT_EQ(run({{1}, {0}, {1, 10}})[0].numbers, (Numbers{3, 30}));
    EXPECT_EQ(run({{0}, {1}, {1, 10}})[0].numbers, (Numbers{5, 50}));
  }
  EXPECT_EQ(run({{std::nanf("")}, {-1}, {1, 10}})[0].numbers, (Numbers{2, 20})) << "every number but 0 is true";
}

TEST_P(Bodies, ABodyMayBeEmptyOrGiveWhatItIsGiven) {
  GraphBuilder then, otherwise;
  const ValueId x = then.input("x"), y = then.input("y");
  for (const ValueId id : {x, y, x}) then.output(id);
  otherwise.input("x");
  const ValueId other_y = otherwise.input("y");
  otherwise.output(otherwise.constant({2}, 7, 0));
  otherwise.output(other_y);
  otherwise.output(other_y);
  GraphBuilder swap;  // two states change places
  swap.input("turn");
  const ValueId a = swap.input("a"), c = swap.input("b");
  for (const ValueId id : {swap.number(1), c, a}) swap.output(id);
  GraphBuilder b;
  const ValueId condition = b.input("condition"), data = b.input("data"), more = b.input("more");
  const ValueId first = b.node_with_bodies("If", {condition, data, more}, {then.graph(), otherwise.graph()}, {}, 3);
  for (ValueId i = 0; i < 3; ++i) b.output(first + i);
  const ValueId swapped =
      b.node_with_bodies("Loop", {b.number(3), b.number(1), data, more}, {swap.graph()}, LoopAttributes{.states = 2}, 2);
  b.output(swapped);
  b.output(swapped + 1);
  use(b.graph(), {spec("condition", Shape()), spec("data", {2}), spec("more", {2})});
  const auto yes = run({{1}, {1, 2}, {3, 4}}), no = run({{0}, {1, 2}, {3, 4}});
  const Numbers first_two{1, 2}, last_two{3, 4};
  EXPECT_EQ(yes[0].numbers, first_two);
  EXPECT_EQ(yes[1].numbers, last_two);
  EXPECT_EQ(yes[2].numbers, first_two);
  EXPECT_EQ(no[0].numbers, (Numbers{7, 7}));
  EXPECT_EQ(no[1].numbers, last_two);
  EXPECT_EQ(no[3].numbers, last_two) << "three swaps";
  EXPECT_EQ(no[4].numbers, first_two);
}

TEST_P(Bodies, ResultsMayBeReadByNobodyAndBeEmpty) {
  GraphBuilder body;
  const ValueId row = body.input("row"), state = body.input("state");
  body.output(body.add(row, state));
  body.output(body.scalar(BinaryKind::kMul, row, 3));
  GraphBuilder b;
  const ValueId data = b.input("data"), first = b.input("first");
  b.output(b.node_with_bodies("Scan", {data, first}, {body.graph()}, ScanAttributes{1, 1}, 2));
  use(b.graph(), {spec("data", {4, 3}), spec("first", {3})});
  EXPECT_EQ(run({{1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3}, {0, 0, 1}})[0].numbers, (Numbers{4, 8, 13}));
  use(b.graph(), {spec("data", {4, 0}), spec("first", {0})});
  EXPECT_EQ(run({{}, {}})[0].shape, Shape{0});
}

/// A convolution with weights of 1 MB in the graph and in both branches, and a BatchNorm in one of them.
Graph with_shared_weights(bool in_bodies) {
  GraphBuilder b;
  const ValueId condition = b.input("condition"), data = b.input("data");
  const ValueId weights = b.constant({64, 64, 8, 8}, 0, 0.02F);
  const ConvolutionAttributes attributes{
      .kernel = {8, 8}, .stride = {1, 1}, .dilate = {1, 1}, .pad = {0, 0}, .num_filter = 64, .num_group = 1};
  const ValueId outside = b.node("Convolution", {data, weights}, attributes);
  b.output(outside);
  if (!in_bodies) return b.graph();
  std::vector<Graph> branches;
  for (const bool relu : {true, false}) {
    GraphBuilder branch;
    const ValueId x = branch.input("x");
    const ValueId y = branch.node("Convolution", {x, branch.input("w")}, attributes);
    branch.output(relu ? branch.activation(y) : branch.scalar(BinaryKind::kMul, y, 2));
    branches.push_back(branch.graph());
  }
  b.output(b.node_with_bodies("If", {condition, data, weights}, std::move(branches)));
  return b.graph();
}

TEST_P(Bodies, CapturedWeightsAreStoredOnce) {
  const std::vector<TensorSpec> inputs{spec("condition", {1}), spec("data", {1, 64, 10, 10})};
  const std::size_t alone = load(with_shared_weights(false), inputs)->packed_bytes();
  use(with_shared_weights(true), inputs);
  EXPECT_GE(alone, 1u << 20);
  EXPECT_LT(model_->packed_bytes(), alone + (64 << 10)) << "one copy for all that read it";
  const Numbers data = numbers_of(testing::noise({1, 64, 10, 10}));
  const auto yes = try_run({{1}, data}).value(), no = try_run({{0}, data}).value();
  Numbers relu = yes[0].numbers, twice = yes[0].numbers;
  for (float& x : relu) x = std::max(x, 0.0F);
  for (float& x : twice) x *= 2;
  expect_near(yes[1].numbers, relu);
  expect_near(no[1].numbers, twice);
}

TEST_P(Bodies, ProgramsOfOtherShapesAndOtherProcessesReadThePackedWeights) {
  const std::vector<TensorSpec> inputs{spec("condition", {1}), spec("data", {1, 64, 10, 10})},
      larger{spec("condition", {1}), spec("data", {2, 64, 12, 11})};
  use(with_shared_weights(true), inputs);
  const Numbers data = numbers_of(testing::noise({1, 64, 10, 10}));
  const auto want = try_run({{1}, data}).value();
  program_ = model_->program(larger).value();
  const Numbers more = numbers_of(testing::noise({2, 64, 12, 11}));
  const auto later = try_run({{1}, more}).value();
  const auto opened = Model::load(graph_, {.device = GetParam().name, .input_sets = {inputs}, .fuse = GetParam().fuses},
                                  UniqueFd(::dup(model_->packed_fd())));
  ASSERT_TRUE(opened.ok()) << opened.status().to_string();
  program_ = (*opened)->program(inputs).value();
  EXPECT_EQ(try_run({{1}, data}).value()[1].numbers, want[1].numbers);
  program_ = (*opened)->program(larger).value();
  EXPECT_EQ(try_run({{1}, more}).value()[1].numbers, later[1].numbers);
  Graph other = graph_;
  other.nodes.back().bodies[1].nodes.back().attributes = ScalarAttributes{BinaryKind::kMul, 3};
  EXPECT_EQ(Model::load(other, {.device = GetParam().name, .input_sets = {inputs}, .fuse = GetParam().fuses},
                        UniqueFd(::dup(model_->packed_fd())))
                .status()
                .code(),
            StatusCode::kFailedPrecondition)
      << "another body";
}

TEST_P(Bodies, WhatFollowsFromConstantsIsFoldedInAndAroundBodies) {
  GraphBuilder branch;
  const ValueId x = branch.input("x"), w = branch.input("w");
  const ValueId halved = branch.scalar(BinaryKind::kMul, w, 0.5);  // of a constant that is found outside
  branch.output(branch.node("FullyConnected", {x, halved}, FullyConnectedAttributes{.num_hidden = 3}));
  GraphBuilder b;
  const ValueId condition = b.input("condition"), data = b.input("data");
  const ValueId doubled = b.scalar(BinaryKind::kMul, b.constant({3, 4}), 2);
  b.output(b.node_with_bodies("If", {condition, data, doubled}, {branch.graph(), branch.graph()}));
  use(b.graph(), {spec("condition", {1}), spec("data", {2, 4})});
  EXPECT_EQ(program_->step_count(), 1u) << "nothing is left to compute outside";
  run({{1}, numbers_of(testing::noise({2, 4}))});
}

/// Half-precision constants beside float32 data; half-precision data.
TEST_P(Bodies, ConstantsTakeTheTypeOfTheDataInBodiesToo) {
  GraphBuilder branch;
  const ValueId x = branch.input("x"), w = branch.input("w"), v = branch.input("v");
  branch.output(branch.add(branch.node("FullyConnected", {x, w}, FullyConnectedAttributes{.num_hidden = 3}), v));
  GraphBuilder b;
  const ValueId condition = b.input("condition"), data = b.input("data");
  const ValueId weights = b.constant({3, 4}), bias = b.constant({2, 3});
  Graph built = b.graph();
  for (const ValueId id : {weights, bias}) {
    Value& value = built.value(id);
    value.constant = convert_constant(*value.constant, DType::kFloat16);
    value.dtype = DType::kFloat16;
  }
  GraphBuilder whole(built);
  const ValueId computed = whole.scalar(BinaryKind::kMul, bias, 2);  // of the stored type until it meets data
  whole.output(whole.node_with_bodies("If", {condition, data, weights, computed}, {branch.graph(), branch.graph()}));
  use(whole.graph(), {spec("condition", {1}), spec("data", {2, 4})});
  run({{1}, numbers_of(testing::noise({2, 4}))});
  const std::vector<TensorSpec> halves{spec("condition", {1}), {"data", DType::kFloat16, {2, 4}}};
  const auto model = load(whole.graph(), halves);
  EXPECT_EQ(model->program(halves).value()->outputs()[0].dtype, DType::kFloat16);
}

/// A body with a value of 1 MB; alone, or as both branches.
Graph with_large_values(bool in_bodies) {
  GraphBuilder wide;
  const ValueId x = wide.input("x");
  const ValueId y =
      wide.node("FullyConnected", {x, wide.constant({1 << 17, 2})}, FullyConnectedAttributes{.num_hidden = 1 << 17});
  const ValueId z = wide.node("Unary", {y}, UnaryAttributes{UnaryKind::kSin});
  wide.output(wide.node("Reduce", {wide.add(y, z)}, ReduceAttributes{ReduceKind::kSum, {1}}));
  if (!in_bodies) return wide.graph();
  GraphBuilder b;
  const ValueId condition = b.input("condition"), data = b.input("x");
  b.output(b.node_with_bodies("If", {condition, data}, {wide.graph(), wide.graph()}));
  return b.graph();
}

TEST_P(Bodies, ShareOnePartOfTheArenaOfTheProgram) {
  const std::vector<TensorSpec> alone{spec("x", {2, 2})}, inputs{spec("condition", {1}), spec("x", {2, 2})};
  const auto model = load(with_large_values(false), alone);
  const std::size_t bytes = model->program(alone).value()->arena_bytes();
  EXPECT_GE(bytes, 1u << 20);
  use(with_large_values(true), inputs);
  EXPECT_GE(program_->arena_bytes(), bytes);
  EXPECT_LT(program_->arena_bytes(), bytes + 4096);
  EXPECT_GT(program_->resident_bytes(), 2 * model->program(alone).value()->resident_bytes());
}

TEST_P(Bodies, ValuesWithinABodyMayHaveSizesThatDependOnData) {
  test::register_dynamic_operators();
  GraphBuilder body;
  const ValueId row = body.input("row");
  const ValueId positions = body.node("_dynamic_nonzero", {row}, CustomAttributes{});
  const ValueId floats = body.node("Cast", {positions}, CastAttributes{DType::kFloat32});
  body.output(body.node("Reduce", {floats}, ReduceAttributes{ReduceKind::kSum, {}}));
  GraphBuilder b;
  b.output(b.node_with_bodies("Scan", {b.input("data")}, {body.graph()}, ScanAttributes{1, 0}));
  use(b.graph(), {spec("data", {3, 4})});
  EXPECT_EQ(try_run({{0, 1, 1, 0, 0, 0, 0, 0, 1, 1, 1, 1}}).value()[0].numbers, (Numbers{3, 0, 6}));
}

/// Ends a run at its `last` step.
TEST_P(Bodies, ALoopCanBeStoppedWithin) {
  GraphBuilder body;  // without an end
  body.input("turn");
  const ValueId x = body.input("x");
  body.output(body.number(1));
  body.output(body.scalar(BinaryKind::kAdd, x, 1));
  GraphBuilder b;
  b.output(b.node_with_bodies("Loop", {b.number(std::int64_t{1} << 60), b.number(1), b.input("data")}, {body.graph()},
                              LoopAttributes{}));
  use(b.graph(), {spec("data", {1})});
  testing::StopAt stop(1000);
  std::atomic<std::uint64_t> steps{0};
  Progress progress;
  progress.stop = &stop;
  progress.step_counter = &steps;
  context_.progress = &progress;
  EXPECT_EQ(try_run({{1}}).status().code(), StatusCode::kCancelled);
  EXPECT_EQ(steps, 999u) << "steps within bodies count";
  EXPECT_EQ(progress.step_name, nullptr);
}

INSTANTIATE_TEST_SUITE_P(, Bodies, ::testing::Values(Device{"cpu", true}, Device{"cpu", false}, Device{"cpu-reference", true}));

}  // namespace
}  // namespace shoal::worker
