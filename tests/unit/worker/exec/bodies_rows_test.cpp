// The rows that loops stack where a framework wants them padded, or of at least one axis.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/support/interpreter.hpp"
#include "tests/unit/worker/exec/graph_builder.hpp"
#include "tests/unit/worker/exec/shaped_numbers.hpp"
#include "worker/ops/control_flow.hpp"
#include "worker/ops/reduce.hpp"

namespace shoal::worker {
namespace {

using testing::float_tensor;
using testing::GraphBuilder;
using testing::shaped_numbers_of;
using testing::ShapedNumbers;

/// Runs the graph on both devices and by the interpreter, which must agree.
std::vector<ShapedNumbers> run_everywhere(const Graph& graph, const Tensors& inputs) {
  std::vector<TensorSpec> specs;
  std::vector<TensorView> src;
  for (const NamedTensor& input : inputs) {
    specs.push_back({input.name, input.tensor.dtype(), input.tensor.shape()});
    src.push_back(input.tensor.view());
  }
  std::vector<ShapedNumbers> want;
  for (const NamedTensor& output : shoal::testing::interpret(graph, inputs).value())
    want.push_back(shaped_numbers_of(output.tensor));
  for (const char* const device : {"cpu", "cpu-reference"}) {
    const auto model = testing::load(graph, specs, device);
    const auto program = model->program(specs).value();
    for (int again = 0; again < 2; ++again) {
      std::vector<Tensor> outputs;
      std::vector<TensorView> dst;
      for (const TensorSpec& output : program->outputs()) {
        Tensor& tensor = outputs.emplace_back(Tensor::create(output.dtype, output.shape).value());
        std::ranges::fill(tensor.values<float>(), -1.0F);
        dst.push_back(tensor.view());
      }
      Context context;
      EXPECT_TRUE(program->run(context, src, dst).ok());
      std::vector<ShapedNumbers> got;
      for (const Tensor& tensor : outputs) got.push_back(shaped_numbers_of(tensor));
      EXPECT_EQ(got, want) << device;
    }
  }
  return want;
}

TEST(RowsOfBodies, ALoopMayPadThem) {
  GraphBuilder body;
  body.input("turn");
  const ValueId next = body.scalar(BinaryKind::kMul, body.input("x"), 2);
  body.output(body.node("Reduce", {body.scalar(BinaryKind::kLesser, next, 100)}, ReduceAttributes{ReduceKind::kMin, {}}));
  body.output(next);
  body.output(body.scalar(BinaryKind::kAdd, next, 0.5));
  GraphBuilder b;
  const ValueId go = b.input("go"), data = b.input("data");
  const ValueId last =
      b.node_with_bodies("Loop", {b.number(100), go, data}, {body.graph()}, LoopAttributes{.most_turns = 4, .pads = true}, 2);
  b.output(last);
  b.output(last + 1);
  b.output(b.scalar(BinaryKind::kMul, last + 1, 10));
  const auto all = run_everywhere(b.graph(), {{"go", float_tensor({1}, {1})}, {"data", float_tensor({2}, {1, 2})}});
  EXPECT_EQ(all[1], (ShapedNumbers{{4, 2}, {2.5F, 4.5F, 4.5F, 8.5F, 8.5F, 16.5F, 16.5F, 32.5F}}));
  const auto two = run_everywhere(b.graph(), {{"go", float_tensor({1}, {1})}, {"data", float_tensor({2}, {30, 1})}});
  EXPECT_EQ(two[0], (ShapedNumbers{{2}, {120, 4}}));
  EXPECT_EQ(two[2], (ShapedNumbers{{4, 2}, {605, 25, 1205, 45, 0, 0, 0, 0}}));
  const auto none = run_everywhere(b.graph(), {{"go", float_tensor({1}, {0})}, {"data", float_tensor({2}, {30, 1})}});
  EXPECT_EQ(none[0], (ShapedNumbers{{2}, {30, 1}}));
  EXPECT_EQ(none[1], (ShapedNumbers{{4, 2}, {0, 0, 0, 0, 0, 0, 0, 0}}));
}

TEST(RowsOfBodies, OfAVectorMayHaveOneAxis) {
  for (const std::int64_t least_rank : {0, 1}) {
    GraphBuilder body;
    const ValueId row = body.input("row"), sum = body.add(row, body.input("state"));
    body.output(sum);
    body.output(sum);
    GraphBuilder b;
    const ValueId data = b.input("data"), first = b.input("first");
    const ValueId last = b.node_with_bodies("Scan", {data, first}, {body.graph()},
                                            ScanAttributes{.scanned = 1, .states = 1, .least_rank = least_rank}, 2);
    b.output(last);
    b.output(last + 1);
    const Shape of_state = least_rank == 0 ? Shape() : Shape{1}, of_rows = least_rank == 0 ? Shape{3} : Shape{3, 1};
    const auto sums =
        run_everywhere(b.graph(), {{"data", float_tensor({3}, {1, 2, 3})}, {"first", float_tensor(of_state, {10})}});
    EXPECT_EQ(sums[0], (ShapedNumbers{of_state, {16}}));
    EXPECT_EQ(sums[1], (ShapedNumbers{of_rows, {11, 13, 16}}));
  }
}

}  // namespace
}  // namespace shoal::worker
