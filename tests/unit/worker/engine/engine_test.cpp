// What an engine loads, describes, answers and refuses.
#include "shoal/engine.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <map>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/custom_operator.hpp"
#include "tests/support/recurrent_model.hpp"
#include "tests/support/says.hpp"
#include "tests/unit/worker/engine/engine_fixture.hpp"
#include "worker/engine/model_loader.hpp"
#include "worker/import/mxnet/mxnet_lowering.hpp"

namespace shoal {
namespace {

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

TEST_F(EngineTest, AnEngineThatWasMovedFromSaysSo) {
  Engine first = Engine::load(directory_).value();
  Engine second = std::move(first);
  EXPECT_EQ(first.run({}).status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(first.submit("net", {}).get().status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(first.describe().status().code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(first.warnings().empty());
  EXPECT_EQ(first.packed_bytes() + first.arena_bytes(), 0u);
  EXPECT_TRUE(second.describe("net").ok());
}

TEST_F(EngineTest, DescribesOutputsWithTheDimensionsThatFollowFromTheInputsOpen) {
  const ModelInfo info = Engine::load(directory_).value().describe().value();
  EXPECT_EQ(info.inputs.at(0), (TensorSpec{"data", DType::kFloat32, Shape{-1, 2}}));
  EXPECT_EQ(info.outputs.at(0), (TensorSpec{"times3_output", DType::kFloat32, Shape{-1, 2}}));
}

// Four layers that halve: one pixel more changes nothing behind them.
TEST_F(EngineTest, DescribesDimensionsOpenThatFewerPixelsDoNotChange) {
  std::vector<test::ChainNode> chain;
  for (int i = 0; i < 4; ++i) {
    chain.push_back(
        {"Pooling", "pool" + std::to_string(i), {{"kernel", "(2, 2)"}, {"stride", "(2, 2)"}, {"pool_type", "max"}}, {}});
  }
  const auto described = [&](const std::string& shape, const std::string& line) {
    test::write_checkpoint(directory_, "net", chain, shape);
    std::ofstream(directory_ / "model.toml", std::ios::app) << line;
    return Engine::load(directory_).value().describe().value().outputs.at(0).shape;
  };
  const std::string compiled = "shapes = [{data = [1, 3, 64, 32]}]\n";
  EXPECT_EQ(described("[-1, 3, -1, -1]", compiled), (Shape{-1, 3, -1, -1}));
  EXPECT_EQ(described("[-1, 3, -1, 32]", compiled), (Shape{-1, 3, -1, 2}));
  EXPECT_EQ(described(R"([1, 3, "32..64", "32..47"])", compiled), (Shape{1, 3, -1, 2})) << "within the ranges";
}

// Twice the size is more than the layer behind takes; one more is not.
TEST_F(EngineTest, DescribesWhatStaysThatWayWhereLargerInputsAreRefused) {
  const std::map<std::string, std::string> halving{{"kernel", "(2, 2)"}, {"stride", "(2, 2)"}, {"pool_type", "max"}};
  test::write_checkpoint(directory_, "net",
                         {{"Pooling", "pool", halving, {}}, {"broadcast_add", "sum", {}, {{"row", {1, 2, 3, 4}}}}},
                         "[-1, 3, 8, -1]");
  std::ofstream(directory_ / "model.toml", std::ios::app) << "shapes = [{data = [1, 3, 8, 8]}]\n";
  EXPECT_EQ(Engine::load(directory_).value().describe().value().outputs.at(0).shape, (Shape{-1, 3, 4, 4}));
}

// The layer that refuses them may be far from the input.
TEST_F(EngineTest, SizesThatALayerRefusesAreNamed) {
  const std::map<std::string, std::string> halving{{"kernel", "(2, 2)"}, {"stride", "(2, 2)"}, {"pool_type", "max"}};
  test::write_checkpoint(directory_, "net", {{"Pooling", "pool0", halving, {}}, {"Pooling", "pool1", halving, {}}},
                         R"([1, 3, "2..64", "2..64"])");
  EXPECT_TRUE(test::says(Engine::load(directory_).status().message(), {"'net'", "data 1x3x2x2", "'pool1'"}));
  std::ofstream(directory_ / "model.toml", std::ios::app) << "shapes = [{data = [1, 3, 8, 8]}]\n";
  const Status refused =
      Engine::load(directory_).value().run({{"data", Tensor::create(DType::kFloat32, {1, 3, 2, 2}).value()}}).status();
  EXPECT_TRUE(test::says(refused.message(), {"'net'", "data 1x3x2x2", "'pool1'"}));
}

TEST_F(EngineTest, MistakesAreNamed) {
  Engine engine = Engine::load(directory_).value();
  const Tensor good = tensor_of(Shape{1, 2}, {1, 2});
  EXPECT_EQ(engine.run({{"dato", good}}).status().message(), "model 'net' has no input 'dato' (it has: data)");
  EXPECT_EQ(engine.run({}).status().message(), "model 'net': input 'data' is missing");
  EXPECT_EQ(engine.run({{"data", good}, {"data", good}}).status().message(), "model 'net': input 'data' is given twice");
  EXPECT_EQ(engine.run({{"data", Tensor::create(DType::kInt32, Shape{1, 2}).value()}}).status().code(),
            StatusCode::kInvalidArgument);
  const Tensor without_bytes({DType::kFloat32, Shape{1, 2}, nullptr}, nullptr);
  EXPECT_EQ(engine.run({{"data", without_bytes}}).status().message(), "model 'net': input 'data': its tensor has no bytes");
  EXPECT_EQ(engine.submit("other", {{"data", good}}).get().status().code(), StatusCode::kNotFound);
  EXPECT_EQ(Engine::load("/nowhere").status().code(), StatusCode::kNotFound);
}

TEST_F(EngineTest, ACheckpointThatLacksAParameterIsNotLoaded) {
  const std::string graph = R"json({"nodes": [{"op": "null", "name": "data", "inputs": []},
      {"op": "null", "name": "fc_weight", "attrs": {"__shape__": "(2, 2)"}, "inputs": []},
      {"op": "FullyConnected", "name": "fc", "attrs": {"num_hidden": "2", "no_bias": "True"}, "inputs": [[0, 0, 0], [1, 0, 0]]}],
    "arg_nodes": [0, 1], "heads": [[2, 0, 0]]})json";
  std::ofstream(directory_ / "net-symbol.json") << graph;
  const auto refused = Engine::load(directory_);
  ASSERT_FALSE(refused.ok());
  for (const char* part : {"net-0000.params holds no 'fc_weight'", "FullyConnected 'fc' reads as its weight"})
    EXPECT_NE(refused.status().message().find(part), std::string::npos) << refused.status().to_string();
  std::ofstream(directory_ / "model.toml", std::ios::app) << "shapes = [{data = [1, 2], fc_weight = [2, 2]}]\n";
  EXPECT_TRUE(Engine::load(directory_).ok()) << "a model whose weights come with the request";
}

// SageMaker's files name the label, as training binds it.
TEST_F(EngineTest, SettingsOfALabelAreIgnored) {
  const std::string graph = R"json({"nodes": [{"op": "null", "name": "data", "inputs": []},
      {"op": "null", "name": "softmax_label", "inputs": []},
      {"op": "SoftmaxOutput", "name": "softmax", "inputs": [[0, 0, 0], [1, 0, 0]]}], "arg_nodes": [0, 1], "heads": [[2, 0, 0]]})json";
  std::ofstream(directory_ / "net-symbol.json") << graph;
  std::ofstream(directory_ / "model.toml")
      << "inputs = [{name = \"data\", shape = [-1, 2]}, {name = \"softmax_label\", shape = [-1]}]\n"
         "shapes = [{data = [4, 2], softmax_label = [4]}]\n";
  auto engine = Engine::load(directory_);
  ASSERT_TRUE(engine.ok()) << engine.status().to_string();
  EXPECT_EQ(engine->describe().value().inputs, (std::vector<TensorSpec>{{"data", DType::kFloat32, {-1, 2}}}));
  ASSERT_EQ(engine->warnings().size(), 1u);
  EXPECT_NE(engine->warnings()[0].find("'softmax_label' is a label"), std::string::npos) << engine->warnings()[0];
}

TEST_F(EngineTest, AStateThatIsLeftOutIsZeros) {
  test::write_recurrent_model(directory_ / "rnn");
  Engine engine = Engine::load(directory_ / "rnn").value();
  EXPECT_EQ(engine.describe().value().state, (std::vector<StatePair>{{"h_out_output", "h_in", {-1, 8}}}));
  const Tensor data = tensor_of({2, 4}, {1, 2, 3, 4, 5, 6, 7, 8});
  const Tensors left_out = engine.run({{"data", data}}).value();
  const Tensors zeros = engine.run({{"h_in", Tensor::create(DType::kFloat32, {2, 8}).value()}, {"data", data}}).value();
  const Tensors next = engine.submit("", {{"data", data}, {"h_in", left_out[1].tensor}}).get().value();
  ASSERT_EQ(left_out[0].tensor.shape(), (Shape{2, 8}));
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_TRUE(std::ranges::equal(left_out[i].tensor.view().bytes(), zeros[i].tensor.view().bytes()));
    EXPECT_FALSE(std::ranges::equal(left_out[i].tensor.view().bytes(), next[i].tensor.view().bytes()));
  }
  EXPECT_EQ(engine.run({{"h_in", data}}).status().message(), "model 'rnn': input 'data' is missing");
  EXPECT_TRUE(test::says(engine.run({}).status().message(), {"'rnn'", "'h_in'"}));
}

TEST_F(EngineTest, AStateThatDoesNotFitTheModelIsRefusedByName) {
  const auto refusal = [&](const std::string& state) {
    test::write_recurrent_model(directory_ / "rnn", 8, state);
    const auto engine = Engine::load(directory_ / "rnn");
    EXPECT_EQ(engine.status().code(), StatusCode::kInvalidArgument) << state;
    EXPECT_TRUE(test::says(engine.status().message(), {"'rnn'", "'state'"}));
    return engine.status().message();
  };
  EXPECT_TRUE(test::says(refusal(R"([{out = "h_out", in = "h_in"}])"), {"output 'h_out'", "y_output, h_out_output"}));
  EXPECT_TRUE(test::says(refusal(R"([{out = "h_out_output", in = "h"}])"), {"input 'h'", "data, h_in"}));
  EXPECT_TRUE(test::says(refusal(R"([{out = "h_out_output", in = "data"}])"), {"'h_out_output'", "1x8", "'data'", "1x4"}));
  EXPECT_TRUE(test::says(refusal(R"([{out = "h_out_output", in = "h_in", shape = [-1, 9]}])"), {"'h_in'", "?x9", "1x8"}));
}

Status throw_it(const worker::Node&, std::span<const TensorView> src, std::span<TensorView> dst) {
  if (src[0].values<float>()[0] < 0) throw std::runtime_error("a negative number");
  std::ranges::copy(src[0].bytes(), dst[0].bytes().begin());
  return {};
}

// No exception may leave a thread of the engine, and none may cost it a context.
TEST_F(EngineTest, AnExceptionInARunIsThatRunsError) {
  test::register_custom_mxnet_operator({.name = "_throw_it", .oracle = throw_it});
  test::write_checkpoint(directory_, "throwing", {{"_throw_it", "it", {}, {}}}, "[-1, 2]");
  Engine engine = Engine::load(directory_ / "throwing").value();
  const Tensors good{{"data", tensor_of(Shape{1, 2}, {1, 2})}}, bad{{"data", tensor_of(Shape{1, 2}, {-1, 2})}};
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(engine.run(bad).status(), Status(StatusCode::kInternal, "model 'throwing': a negative number"));
    const Prediction submitted = engine.submit("", bad), misnamed = engine.submit("", {{"dato", good[0].tensor}});
    EXPECT_EQ(submitted.get().status().code(), StatusCode::kInternal);
    EXPECT_EQ(submitted.outcome().ran, Ran::kMaybe) << "a worker says so, too";
    EXPECT_EQ(misnamed.get().status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(misnamed.outcome().ran, Ran::kNo);
    EXPECT_EQ(engine.run(good).value()[0].tensor.values<float>()[1], 2);
  }
}

// Nor may one leave the loading: who loads a model goes on without it.
TEST_F(EngineTest, AnExceptionInLoadingIsItsError) {
  worker::register_mxnet_operator(
      {.name = "_no_memory", .min_inputs = 1, .max_inputs = 1, .lower = [](auto&) -> std::vector<worker::ValueId> {
         throw std::bad_alloc();
       }});
  test::write_checkpoint(directory_, "large", {{"_no_memory", "it", {}, {}}}, "[-1, 2]");
  EXPECT_EQ(
      Engine::load(directory_ / "large").status(),
      Status(StatusCode::kFailedPrecondition, "model 'large': out of memory: loading it needs more than this machine has left"));
}

Status find_no_memory(const worker::Node&, std::span<const TensorView>, std::span<TensorView>) { throw std::bad_alloc(); }

// As a worker answers it.
TEST_F(EngineTest, ARunWithoutMemoryIsAnsweredAsInThePool) {
  test::register_custom_mxnet_operator({.name = "_find_no_memory", .oracle = find_no_memory});
  test::write_checkpoint(directory_, "hungry", {{"_find_no_memory", "it", {}, {}}}, "[-1, 2]");
  Engine engine = Engine::load(directory_ / "hungry", {.tuning_ms = 0}).value();
  const Tensors inputs{{"data", tensor_of(Shape{1, 2}, {1, 2})}};
  const Status as_in_a_worker(StatusCode::kFailedPrecondition,
                              "model 'hungry': out of memory: the request needs more than this machine has left");
  EXPECT_EQ(engine.run(inputs).status(), as_in_a_worker);
  const Prediction submitted = engine.submit("", inputs);
  EXPECT_EQ(submitted.get().status(), as_in_a_worker);
  EXPECT_EQ(submitted.outcome().ran, Ran::kMaybe);
  const std::int64_t many = std::int64_t{1} << 43;  // more bytes than there are addresses for
  EXPECT_EQ(Tensor::create(DType::kFloat32, Shape{many}).status().code(), StatusCode::kFailedPrecondition);
}

TEST_F(EngineTest, TheHashChangesWithTheFiles) {
  const worker::ModelSource source{
      .name = "net", .path = directory_, .files = {directory_ / "net-symbol.json", directory_ / "net-0000.params"}};
  const std::string before = worker::hash_files(source).value();
  EXPECT_EQ(worker::hash_files(source).value(), before);
  std::ofstream(source.files[1], std::ios::app) << 'x';
  EXPECT_NE(worker::hash_files(source).value(), before);
}

// A zygote is compared with the one before it, which may be of another build.
TEST_F(EngineTest, TheHashOfFilesStaysTheSame) {
  const worker::ModelSource source{.name = "net", .files = {directory_ / "a", directory_ / "b"}};
  std::ofstream(source.files[0]) << "a short one";
  std::ofstream(source.files[1]) << std::string(700'001, 'x');
  EXPECT_EQ(worker::hash_files(source).value(), "9d4e36db6aa3f018");
}

// Whoever opens a pipe waits for its other end; a device never ends.
TEST_F(EngineTest, OnlyFilesAreHashed) {
  worker::ModelSource source{.name = "net", .files = {directory_ / "pipe", directory_ / "net-0000.params"}};
  ASSERT_EQ(::mkfifo(source.files[0].c_str(), 0600), 0);
  EXPECT_EQ(worker::hash_files(source).status().code(), StatusCode::kInvalidArgument);
  source.files[0] = "/dev/zero";
  EXPECT_EQ(worker::hash_files(source).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace shoal
