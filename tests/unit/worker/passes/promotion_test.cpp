// Casts that infer() inserts where operands of different types meet.
#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "tests/unit/worker/exec/graph_builder.hpp"
#include "worker/ops/arithmetic.hpp"
#include "worker/ops/movement.hpp"
#include "worker/passes/infer.hpp"

namespace shoal::worker {
namespace {

using testing::GraphBuilder;

const BinaryAttributes kSum{BinaryKind::kAdd, true, Promotion::kCommon};

TEST(PromotedOperands, GetCastsForTheTypesOfEachInfer) {
  GraphBuilder b;
  const ValueId x = b.input("x"), y = b.input("y"), sum = b.node("Binary", {x, y}, kSum);
  b.output(sum);
  Graph graph = b.graph();
  struct Types {
    DType x, y, sum;
  };
  const Types all[] = {{DType::kFloat32, DType::kFloat64, DType::kFloat64}, {DType::kInt32, DType::kFloat16, DType::kFloat16},
                       {DType::kBool, DType::kInt8, DType::kInt8},          {DType::kInt32, DType::kFloat16, DType::kFloat16},
                       {DType::kFloat32, DType::kFloat32, DType::kFloat32}, {DType::kBool, DType::kBool, DType::kBool}};
  for (const Types& types : all) {
    const std::array specs{TensorSpec{"x", types.x, {2, 3}}, TensorSpec{"y", types.y, {3}}};
    const Status inferred = infer(graph, specs);
    ASSERT_TRUE(inferred.ok()) << inferred.to_string();
    EXPECT_EQ(graph.value(sum).dtype, types.sum);
    const std::vector<ValueId>& read = graph.nodes.back().inputs;
    for (const ValueId id : read) EXPECT_EQ(graph.value(id).dtype, types.sum);
    EXPECT_EQ(read[0] == x, types.x == types.sum) << "no Cast where none is needed";
    EXPECT_EQ(read[1] == y, types.y == types.sum);
  }
  const std::array none{TensorSpec{"x", DType::kInt8, {3}}, TensorSpec{"y", DType::kUInt8, {3}}};
  EXPECT_FALSE(infer(graph, none).ok());
}

TEST(PromotedOperands, MayBeConstantsOfIntegers) {
  const auto one = std::make_shared<std::int32_t>(1);
  const auto bytes = std::as_bytes(std::span(one.get(), 1));
  Graph graph;
  const ValueId data = graph.add_value({.name = "data"});
  const ValueId number = graph.add_value(
      {.name = "one", .dtype = DType::kInt32, .shape = {1}, .constant = Constant{DType::kInt32, {1}, bytes, one}});
  const ValueId sum = graph.add_value({.name = "sum"});
  graph.inputs = {data};
  graph.nodes.push_back({.op = &ops::kBinary, .name = "n", .attributes = kSum, .inputs = {data, number}, .outputs = {sum}});
  graph.outputs = {{"out", sum}};
  for (const DType dtype : {DType::kFloat32, DType::kInt64, DType::kFloat16, DType::kInt32}) {
    const std::array specs{TensorSpec{"data", dtype, {2, 3}}};
    const Status inferred = infer(graph, specs);
    ASSERT_TRUE(inferred.ok()) << inferred.to_string();
    EXPECT_EQ(graph.value(sum).dtype, dtype);
  }
}

// Of float16, float32 and a parameter of float32 the result is float32, and the parameter's numbers do not go through float16.
TEST(PromotedOperands, ThatAreConstantsKeepTheirNumbers) {
  GraphBuilder b;
  const ValueId half = b.input("half"), single = b.input("single"), weight = b.constant({4});
  const ValueId joined = b.node("Concat", {half, single, weight}, ConcatAttributes{0, Promotion::kCommon});
  b.output(joined);
  Graph graph = b.graph();
  for (const DType first : {DType::kFloat16, DType::kFloat32, DType::kFloat16}) {
    const std::array specs{TensorSpec{"half", first, {2}}, TensorSpec{"single", DType::kFloat32, {3}}};
    const Status inferred = infer(graph, specs);
    ASSERT_TRUE(inferred.ok()) << inferred.to_string();
    EXPECT_EQ(graph.value(joined).dtype, DType::kFloat32);
    EXPECT_EQ(graph.nodes.back().inputs[2], weight);
  }
}

}  // namespace
}  // namespace shoal::worker
