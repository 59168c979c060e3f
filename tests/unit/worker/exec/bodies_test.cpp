// Nodes with bodies: the devices run If, Loop and Scan alike, over programs of their own.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/says.hpp"
#include "tests/unit/worker/exec/graph_builder.hpp"
#include "worker/exec/content_hash.hpp"
#include "worker/exec/planned_program.hpp"
#include "worker/ops/control_flow.hpp"
#include "worker/ops/fully_connected.hpp"
#include "worker/passes/infer.hpp"

namespace shoal::worker {
namespace {

using test::says;
using testing::GraphBuilder;
using testing::spec;

ValueId add_node(Graph& graph, Node node, int outputs) {
  const auto first = static_cast<ValueId>(graph.values.size());
  for (int i = 0; i < outputs; ++i) {
    node.outputs.push_back(
        graph.add_value({.name = node.name + "_" + std::to_string(i), .producer = static_cast<NodeId>(graph.nodes.size())}));
  }
  graph.nodes.push_back(std::move(node));
  return first;
}

ValueId add_number(Graph& graph, const std::string& name, std::int64_t number) {
  const auto owner = std::make_shared<std::int64_t>(number);
  const Constant constant{DType::kInt64, Shape{1}, std::as_bytes(std::span(owner.get(), 1)), owner};
  return graph.add_value({.name = name, .dtype = DType::kInt64, .shape = Shape{1}, .constant = constant});
}

/// Runs on that device: float32 inputs by name, and the outputs as numbers.
class OnDevice {
 public:
  OnDevice(const Graph& graph, std::vector<TensorSpec> specs, std::string device, int threads = 1)
      : model_(Model::load(graph, {.device = std::move(device), .threads = threads, .input_sets = {specs}}).value()),
        program_(model_->program(specs).value()) {}

  std::vector<std::vector<float>> operator()(const std::vector<std::vector<float>>& inputs) {
    std::vector<Tensor> tensors;
    std::vector<TensorView> src, dst;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      tensors.push_back(Tensor::create(program_->inputs()[i].dtype, program_->inputs()[i].shape).value());
      std::ranges::copy(inputs[i], tensors.back().values<float>().begin());
    }
    for (const TensorSpec& output : program_->outputs()) tensors.push_back(Tensor::create(output.dtype, output.shape).value());
    for (std::size_t i = 0; i < tensors.size(); ++i) (i < inputs.size() ? src : dst).push_back(tensors[i].view());
    const Status ran = program_->run(context_, src, dst);
    EXPECT_TRUE(ran.ok()) << ran.to_string();
    std::vector<std::vector<float>> numbers;
    for (std::size_t i = inputs.size(); i < tensors.size(); ++i) {
      const auto values = tensors[i].values<float>();
      numbers.emplace_back(values.begin(), values.end());
    }
    return numbers;
  }
  const Program& program() const { return *program_; }

  Context context_;

 private:
  std::unique_ptr<Model> model_;
  std::shared_ptr<const Program> program_;
};

const char* const kDevices[] = {"cpu", "cpu-reference"};

/// Doubles `data` and adds `added`, which is captured, until the sum is 100 or more; at most ten times.
Graph doubling_loop() {
  GraphBuilder body;
  body.input("turn");
  const ValueId x = body.input("x"), y = body.input("y");
  const ValueId next = body.add(body.scalar(BinaryKind::kMul, x, 2), y);
  body.output(body.scalar(BinaryKind::kLesser, next, 100));
  body.output(next);
  GraphBuilder b;
  const ValueId data = b.input("data"), go = b.input("go"), added = b.input("added");
  Graph graph = b.graph();
  const ValueId turns = add_number(graph, "turns", 10);
  Node loop{.op = &ops::kLoop,
            .name = "loop0",
            .attributes = LoopAttributes{.states = 1, .condition = DType::kFloat32},
            .inputs = {turns, go, data, added},
            .bodies = {body.graph()}};
  graph.outputs = {{"out", add_node(graph, std::move(loop), 1)}};
  return graph;
}

const std::vector<TensorSpec> kLoopInputs{spec("data", {1}), spec("go", {1}), spec("added", {1})};

TEST(Bodies, ALoopCarriesItsStateUntilItsConditionFails) {
  for (const char* device : kDevices) {
    OnDevice run(doubling_loop(), kLoopInputs, device);
    EXPECT_EQ(run({{3}, {1}, {1}})[0][0], 127) << device;   // 7 15 31 63 127
    EXPECT_EQ(run({{60}, {1}, {0}})[0][0], 120) << device;  // one turn: an odd number of them
    EXPECT_EQ(run({{3}, {0}, {1}})[0][0], 3) << device << ": no turn";
    EXPECT_EQ(run({{0.001F}, {1}, {0}})[0][0], 0.001F * 1024) << device << ": ten turns are the most";
  }
}

TEST(Bodies, AScanStacksWhatEachRowGivesAndCarriesItsState) {
  GraphBuilder body;
  const ValueId row = body.input("row"), state = body.input("state"), weight = body.input("weight");
  const ValueId sum =
      body.add(body.node("FullyConnected", {row, weight}, FullyConnectedAttributes{.num_hidden = 3}), state);
  body.output(body.activation(sum, ActivationKind::kRelu));
  body.output(sum);
  GraphBuilder b;
  const ValueId data = b.input("data"), first = b.input("first"), weights = b.constant({3, 4});
  Graph graph = b.graph();
  Node scan{.op = &ops::kScan,
            .name = "scan0",
            .attributes = ScanAttributes{.scanned = 1, .states = 1},
            .inputs = {data, first, weights},
            .bodies = {body.graph()}};
  const ValueId stacked = add_node(graph, std::move(scan), 2);
  graph.outputs = {{"stacked", stacked}, {"last", stacked + 1}};
  const std::vector<TensorSpec> inputs{spec("data", {5, 2, 4}), spec("first", {2, 3})};
  const Tensor data_tensor = testing::noise({5, 2, 4}), first_tensor = testing::noise({2, 3}, 7);
  const auto numbers = [](const Tensor& tensor) {
    const auto values = tensor.values<float>();
    return std::vector<float>(values.begin(), values.end());
  };
  const auto* const weight_bytes = reinterpret_cast<const float*>(graph.value(weights).constant->bytes.data());
  std::vector<float> want_rows, carried = numbers(first_tensor);
  for (int turn = 0; turn < 5; ++turn) {
    for (int i = 0; i < 2; ++i) {
      for (int j = 0; j < 3; ++j) {
        for (int k = 0; k < 4; ++k)
          carried[static_cast<std::size_t>(i * 3 + j)] +=
              numbers(data_tensor)[static_cast<std::size_t>((turn * 2 + i) * 4 + k)] * weight_bytes[j * 4 + k];
      }
    }
    for (const float x : carried) want_rows.push_back(std::max(x, 0.0F));
  }
  for (const char* device : kDevices) {
    OnDevice run(graph, inputs, device);
    for (int again = 0; again < 2; ++again) {
      const auto got = run({numbers(data_tensor), numbers(first_tensor)});
      for (std::size_t i = 0; i < want_rows.size(); ++i) EXPECT_NEAR(got[0][i], want_rows[i], 1e-5) << device << " " << i;
      for (std::size_t i = 0; i < carried.size(); ++i) EXPECT_NEAR(got[1][i], carried[i], 1e-5) << device << " " << i;
    }
  }
  EXPECT_EQ(OnDevice(graph, inputs, "cpu").program().step_count(), 1u) << "the constant was moved into the body";
}

/// condition, x: 2x or x + a constant, within a branch that has an If of its own.
TEST(Bodies, BranchesMayHaveBranches) {
  const auto branch = [](double factor) {
    GraphBuilder b;
    b.input("c");
    b.output(b.scalar(BinaryKind::kMul, b.input("x"), factor));
    return b.graph();
  };
  GraphBuilder outer;
  const ValueId c = outer.input("c"), x = outer.input("x");
  Graph nested = outer.graph();
  nested.outputs = {
      {"o", add_node(nested, {.op = &ops::kIf, .name = "inner", .inputs = {c, c, x}, .bodies = {branch(2), branch(3)}}, 1)}};
  GraphBuilder b;
  const ValueId condition = b.input("condition"), other = b.input("other"), data = b.input("data");
  Graph graph = b.graph();
  Node node{.op = &ops::kIf, .name = "if0", .inputs = {condition, other, data}, .bodies = {nested, branch(5)}};
  graph.outputs = {{"out", add_node(graph, std::move(node), 1)}};
  const std::vector<TensorSpec> inputs{spec("condition", {1}), spec("other", {1}), spec("data", {2})};
  for (const char* device : kDevices) {
    OnDevice run(graph, inputs, device);
    EXPECT_EQ(run({{1}, {1}, {1, 10}})[0], (std::vector<float>{2, 20})) << device;
    EXPECT_EQ(run({{1}, {0}, {1, 10}})[0], (std::vector<float>{3, 30})) << device;
    EXPECT_EQ(run({{0}, {1}, {1, 10}})[0], (std::vector<float>{5, 50})) << device;
  }
  int graphs = 0;
  Graph named = graph;
  name_scopes(named);
  std::vector<std::string> scopes;
  for_each_graph(named, [&](const Graph& each) {
    ++graphs;
    scopes.push_back(each.scope);
  });
  EXPECT_EQ(graphs, 5);
  EXPECT_EQ(scopes, (std::vector<std::string>{"", "n0.0/", "n0.0/n0.0/", "n0.0/n0.1/", "n0.1/"}));
  Graph changed = graph;
  changed.nodes[0].bodies[0].nodes[0].bodies[1] = branch(4);
  EXPECT_NE(hash_graph(graph), hash_graph(changed)) << "packed weights of another body must not be taken";
}

TEST(Bodies, WhatDoesNotFitIsRefusedWithTheNodeAndTheBody) {
  Graph graph = doubling_loop();
  EXPECT_TRUE(says(infer(graph, std::vector<TensorSpec>{spec("data", {2}), spec("go", {1}), spec("added", {1})}).message(),
                   {"Loop 'loop0'", "body"}));
  graph = doubling_loop();
  graph.nodes[0].bodies.clear();
  EXPECT_TRUE(says(infer(graph, kLoopInputs).message(), {"Loop 'loop0'", "0 bodies; 1"}));
  graph = doubling_loop();
  graph.nodes[0].inputs.pop_back();
  EXPECT_TRUE(says(infer(graph, kLoopInputs).message(), {"Loop 'loop0'", "body 0 has 3 inputs and is given 2"}));
}

/// Ends a run at its third step.
class Stop final : public StopCondition {
 public:
  bool should_stop() override { return ++asked_ == 3; }

 private:
  int asked_ = 0;
};

TEST(Bodies, ALoopCanBeStoppedWithin) {
  for (const char* device : kDevices) {
    OnDevice run(doubling_loop(), kLoopInputs, device);
    Stop stop;
    Progress progress;
    progress.stop = &stop;
    run.context_.progress = &progress;
    std::vector<Tensor> tensors;
    std::vector<TensorView> src, dst;
    for (int i = 0; i < 4; ++i) tensors.push_back(Tensor::create(DType::kFloat32, Shape{1}).value());
    tensors[1].values<float>()[0] = 1;
    for (int i = 0; i < 4; ++i) (i < 3 ? src : dst).push_back(tensors[static_cast<std::size_t>(i)].view());
    EXPECT_EQ(run.program().run(run.context_, src, dst).code(), StatusCode::kCancelled) << device;
  }
}

}  // namespace
}  // namespace shoal::worker
