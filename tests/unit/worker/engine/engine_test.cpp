#include "shoal/engine.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "tests/support/checkpoint.hpp"
#include "tests/support/scratch_directory.hpp"
#include "worker/engine/model_loader.hpp"
#include "worker/exec/reference/reference_kernels.hpp"
#include "worker/graph/operators.hpp"
#include "worker/import/mxnet/mxnet_lowering.hpp"

namespace shoal {
namespace {

Tensor tensor_of(const Shape& shape, std::vector<float> values) {
  Tensor tensor = Tensor::create(DType::kFloat32, shape).value();
  std::ranges::copy(values, tensor.values<float>().begin());
  return tensor;
}

class EngineTest : public ::testing::Test {
 protected:
  EngineTest() { test::write_checkpoint(directory_, "net", {{"_mul_scalar", "times3", {{"scalar", "3"}}, {}}}, "[-1, 2]"); }
  const test::ScratchDirectory scratch_;
  const std::filesystem::path directory_ = scratch_.path();
};

TEST_F(EngineTest, RunsOnTheCallersThreadAndOnItsOwn) {
  Engine engine = Engine::load(directory_, {.contexts = 2}).value();
  const Tensors inputs{{"data", tensor_of(Shape{2, 2}, {1, 2, 3, 4})}};
  const auto outputs = engine.run(inputs).value();
  EXPECT_EQ(outputs.at(0).name, "times3_output");
  EXPECT_EQ(outputs[0].tensor.values<float>()[3], 12);
  std::vector<Prediction> predictions;
  for (int i = 0; i < 50; ++i) predictions.push_back(engine.submit("net", inputs));
  for (const Prediction& prediction : predictions) EXPECT_EQ(prediction.get().value()[0].tensor.values<float>()[2], 9);
}

TEST_F(EngineTest, DescribesOutputsWithTheDimensionsThatFollowFromTheInputsOpen) {
  const ModelInfo info = Engine::load(directory_).value().describe().value();
  EXPECT_EQ(info.inputs.at(0), (TensorSpec{"data", DType::kFloat32, Shape{-1, 2}}));
  EXPECT_EQ(info.outputs.at(0), (TensorSpec{"times3_output", DType::kFloat32, Shape{-1, 2}}));
}

TEST_F(EngineTest, MistakesAreNamed) {
  Engine engine = Engine::load(directory_).value();
  const Tensor good = tensor_of(Shape{1, 2}, {1, 2});
  EXPECT_EQ(engine.run({{"dato", good}}).status().message(), "model 'net' has no input 'dato'");
  EXPECT_EQ(engine.run({}).status().message(), "model 'net': input 'data' is missing");
  EXPECT_EQ(engine.run({{"data", good}, {"data", good}}).status().message(), "model 'net': input 'data' is given twice");
  EXPECT_EQ(engine.run({{"data", Tensor::create(DType::kInt32, Shape{1, 2}).value()}}).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(engine.submit("other", {{"data", good}}).get().status().code(), StatusCode::kNotFound);
  EXPECT_EQ(Engine::load("/nowhere").status().code(), StatusCode::kNotFound);
}

Status throw_it(const worker::Node&, std::span<const TensorView> src, std::span<TensorView> dst) {
  if (src[0].values<float>()[0] < 0) throw std::runtime_error("a negative number");
  std::ranges::copy(src[0].bytes(), dst[0].bytes().begin());
  return {};
}

// No exception may leave a thread of the engine, and none may cost it a context.
TEST_F(EngineTest, AnExceptionInARunIsThatRunsError) {
  worker::register_operator({.name = "_throw_it", .infer = [](const worker::Node&, auto src, auto dst) {
                               dst[0]->dtype = src[0]->dtype;
                               dst[0]->shape = src[0]->shape;
                               return Status();
                             }});
  worker::register_reference_kernel("_throw_it", throw_it);
  worker::register_mxnet_operator({.name = "_throw_it", .min_inputs = 1, .max_inputs = 1, .lower = [](auto& lowering) {
                                     return lowering.add(lowering.node.op, worker::CustomAttributes{});
                                   }});
  test::write_checkpoint(directory_, "throwing", {{"_throw_it", "it", {}, {}}}, "[-1, 2]");
  Engine engine = Engine::load(directory_ / "throwing").value();
  const Tensors good{{"data", tensor_of(Shape{1, 2}, {1, 2})}}, bad{{"data", tensor_of(Shape{1, 2}, {-1, 2})}};
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(engine.run(bad).status(), Status(StatusCode::kInternal, "model 'throwing': a negative number"));
    EXPECT_EQ(engine.submit("", bad).get().status().code(), StatusCode::kInternal);
    EXPECT_EQ(engine.run(good).value()[0].tensor.values<float>()[1], 2);
  }
}

TEST_F(EngineTest, WhatWaitsWhenItIsDestroyedIsCancelled) {
  std::vector<Prediction> predictions;
  {
    Engine engine = Engine::load("builtin:identity").value();
    for (int i = 0; i < 1000; ++i) predictions.push_back(engine.submit("", {{"data", tensor_of(Shape{2}, {1, 2})}}));
  }
  for (const Prediction& prediction : predictions) {
    const auto& outputs = prediction.get();
    EXPECT_TRUE(outputs.ok() || outputs.status().code() == StatusCode::kCancelled);
  }
}

TEST_F(EngineTest, TheHashChangesWithTheFiles) {
  const worker::ModelSource source{.name = "net",
                                   .path = directory_,
                                   .symbol_file = directory_ / "net-symbol.json",
                                   .params_file = directory_ / "net-0000.params"};
  const std::string before = worker::hash_files(source).value();
  EXPECT_EQ(worker::hash_files(source).value(), before);
  std::ofstream(source.params_file, std::ios::app) << 'x';
  EXPECT_NE(worker::hash_files(source).value(), before);
}

}  // namespace
}  // namespace shoal
