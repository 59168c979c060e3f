#include "shoal/predictor.hpp"

#include <gtest/gtest.h>

#include <array>
#include <type_traits>
#include <utility>

#include "tests/support/fake_runner.hpp"
#include "tests/support/says.hpp"

namespace shoal {
namespace {

using test::FakeRunner;
using test::says;
using test::tensor_of;

// What a temporary gives away is a value: a reference to it would dangle.
static_assert(!std::is_reference_v<decltype(std::declval<Predictor>().info())>);

/// Adds 1 to every number of its inputs, which are its outputs.
Result<Tensors> add_one(const Tensors& inputs) {
  Tensors outputs;
  for (const auto& [name, tensor] : inputs) {
    std::vector<double> numbers = Numbers(tensor.view()).as<double>().value();
    for (double& number : numbers) ++number;
    Tensor output = Tensor::create(tensor.dtype(), tensor.shape()).value();
    EXPECT_TRUE(Numbers(numbers).copy_to(output.view()).ok());
    outputs.push_back({name, output});
  }
  return outputs;
}

ModelInfo one_input(DataDesc input) {
  ModelInfo info{.name = "m"};
  info.inputs = {std::move(input)};
  info.outputs = {{"y", DType::kFloat32, {-1, 2}}};
  return info;
}

std::vector<double> doubles(const Tensor& tensor) { return Numbers(tensor.view()).as<double>().value(); }

TEST(Predictor, TakesFlatArraysOfAnyTypeAsABatch) {
  FakeRunner runner(one_input({"x", DType::kFloat32, {-1, 2}}), add_one);
  const Predictor predictor = Predictor::create(runner, "m").value();
  const auto ask = [&](const auto& array) { return predictor.predict(Numbers(array)).value()[0].tensor; };
  EXPECT_EQ(ask(std::vector<std::uint8_t>{1, 2, 3, 4}).shape(), (Shape{2, 2}));
  EXPECT_EQ(doubles(ask(std::array<double, 2>{0.5, 1})), (std::vector<double>{1.5, 2}));
  EXPECT_EQ(doubles(predictor.predict(std::vector<std::int64_t>{-7, 1}).value()[0].tensor), (std::vector<double>{-6, 2}));
  EXPECT_EQ(predictor.predict(std::vector<float>()).value()[0].tensor.shape(), (Shape{0, 2})) << "an empty batch";
  const float in_c[] = {1, 2};
  EXPECT_EQ(predictor.predict(in_c).value()[0].tensor.shape(), (Shape{1, 2}));
}

TEST(Predictor, ArraysThatDoNotFitAreNamedWithWhatIsWanted) {
  FakeRunner runner(one_input({"x", DType::kInt32, {-1, 3, 2}}), add_one);
  const Predictor predictor = Predictor::create(runner, "m").value();
  EXPECT_TRUE(says(predictor.predict(std::vector<int>(7)).status().message(),
                   {"model 'm'", "'x'", "int32 ?x3x2", "7", "a multiple of 6"}));
  EXPECT_TRUE(says(predictor.predict(std::vector<double>(6, 0.5)).status().message(), {"model 'm'", "'x'", "0.5", "int32"}));
  runner.info.inputs[0].shape = {-1, -1};
  const Predictor open = Predictor::create(runner, "m").value();
  EXPECT_TRUE(says(open.predict(std::vector<int>(6)).status().message(), {"2 open dimensions", "shape"}));
  EXPECT_EQ(open.predict({{"x", std::vector<int>(6), {3, 2}}}).value()[0].tensor.shape(), (Shape{3, 2}));
  EXPECT_TRUE(says(open.predict({{"x", std::vector<int>(6), {3, 3}}}).status().message(), {"6 numbers", "3x3"}));
  runner.info.inputs[0].shape = {2, 2};
  EXPECT_TRUE(says(Predictor::create(runner, "m").value().predict(std::vector<int>(6)).status().message(), {"there must be 4"}));
  runner.info.inputs[0].shape = {0, -1};
  EXPECT_FALSE(Predictor::create(runner, "m").value().predict(std::vector<int>(6)).ok());
  runner.info.inputs[0].shape = Shape();
  EXPECT_EQ(Predictor::create(runner, "m").value().predict(std::vector<int>(1)).value()[0].tensor.shape(), Shape());
  runner.info.inputs[0].shape = Shape::any();
  EXPECT_EQ(Predictor::create(runner, "m").value().predict(std::vector<int>(5)).value()[0].tensor.shape(), (Shape{5}));
  EXPECT_TRUE(runner.requests.size() == 3) << "what does not fit is never sent";
}

TEST(Predictor, SeveralInputsAreNamed) {
  ModelInfo info = one_input({"x", DType::kFloat32, {-1, 2}});
  info.inputs.push_back({"mask", DType::kUInt8, {-1}});
  FakeRunner runner(info, add_one);
  const Predictor predictor = Predictor::create(runner, "m").value();
  const Tensors outputs = predictor.predict({{"mask", std::array{1, 0}}, {"x", std::array{1.5, 2.5, 3.5, 4.5}}}).value();
  EXPECT_EQ(doubles(outputs[0].tensor), (std::vector<double>{2, 1}));
  EXPECT_EQ(outputs[1].tensor.shape(), (Shape{2, 2}));
  EXPECT_TRUE(says(predictor.predict(std::array{1.0, 2.0}).status().message(), {"several inputs", "x, mask"}));
  EXPECT_TRUE(says(predictor.predict(tensor_of({1, 2}, {1, 2})).status().message(), {"several inputs", "x, mask"}));
  EXPECT_TRUE(says(predictor.predict({{"y", std::array{1}}}).status().message(), {"no input 'y'", "x, mask"}));
}

TEST(Predictor, StatesAreNotCountedAsInputs) {
  ModelInfo info = one_input({"x", DType::kFloat32, {-1, 2}});
  info.inputs.push_back({"h", DType::kFloat32, {-1, 4}});
  info.state = {{"h_out", "h", {-1, 4}}};
  FakeRunner runner(info, add_one);
  EXPECT_TRUE(Predictor::create(runner, "m").value().predict(std::array{1.0, 2.0}).ok());
}

TEST(Predictor, DescriptorsThatAreGivenAreCheckedAndNarrow) {
  FakeRunner runner(one_input({"x", DType::kFloat32, {-1, 3, -1, -1}}), add_one);
  const Status refused = Predictor::create(runner, "m", {.inputs = {{"x", DType::kUInt8, {-1, 3, 4, 4}}}}).status();
  EXPECT_TRUE(says(refused.message(), {"model 'm'", "input 'x'", "float32", "uint8"}));
  const Status output = Predictor::create(runner, "m", {.outputs = {{"y", DType::kFloat32, {-1, 10}}}}).status();
  EXPECT_TRUE(says(output.message(), {"output 'y'", "?x2", "?x10"}));
  const Predictor predictor = Predictor::create(runner, "m", {.inputs = {{"x", DType::kFloat32, {-1, 3, 2, 2}}}}).value();
  EXPECT_EQ(predictor.inputs()[0].shape, (Shape{-1, 3, 2, 2}));
  EXPECT_EQ(predictor.predict(std::vector<float>(24)).value()[0].tensor.shape(), (Shape{2, 3, 2, 2}));
  const Status narrow = predictor.predict(Tensor::create(DType::kFloat32, {1, 3, 4, 4}).value()).status();
  EXPECT_TRUE(says(narrow.message(), {"'x'", "1x3x4x4", "?x3x2x2"}))
      << "a size that the model takes, and the program has excluded";
}

TEST(Predictor, AsksForItsVersion) {
  FakeRunner runner(one_input({"x", DType::kFloat32, {-1, 2}}), add_one);
  const Predictor predictor = Predictor::create(runner, "m", {.version = 3}).value();
  EXPECT_TRUE(predictor.predict(std::array{1, 2}).ok());
  EXPECT_EQ(runner.last_options.version, 3u);
  EXPECT_TRUE(predictor.predict(std::array{1, 2}, {.version = 5}).ok());
  EXPECT_EQ(runner.last_options.version, 5u);
  EXPECT_EQ(Predictor::create(runner, "other").status().code(), StatusCode::kNotFound);
}

TEST(Predictor, ManyRequestsAreAnsweredInOrderUntilOneFails) {
  FakeRunner runner(one_input({"x", DType::kFloat32, {-1, 2}}), add_one);
  const Predictor predictor = Predictor::create(runner, "m").value();
  std::vector<Tensors> requests;
  for (int i = 0; i < 40; ++i) requests.push_back({{"x", tensor_of({1, 2}, {static_cast<float>(i), 0})}});
  const auto all = predictor.predict_all(requests).value();
  ASSERT_EQ(all.size(), 40u);
  for (std::size_t i = 0; i < 40; ++i) EXPECT_EQ(all[i][0].tensor.values<float>()[0], static_cast<float>(i) + 1);
  EXPECT_TRUE(predictor.predict_all({}).value().empty());
  runner.answer = [&](const Tensors& inputs) -> Result<Tensors> {
    if (inputs[0].tensor.values<float>()[0] == 7) return overloaded("the queue is full");
    return add_one(inputs);
  };
  EXPECT_EQ(predictor.predict_all(requests).status().code(), StatusCode::kOverloaded);
}

TEST(Predictor, MemoryForAnInputFitsIt) {
  FakeRunner runner(one_input({"x", DType::kFloat16, {-1, 2}}), add_one);
  const Predictor predictor = Predictor::create(runner, "m").value();
  const Tensor tensor = predictor.allocate("x", {3, 2}).value();
  EXPECT_EQ(tensor.dtype(), DType::kFloat16);
  EXPECT_EQ(predictor.allocate("x", {3, 3}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(predictor.allocate("y", {3, 2}).status().code(), StatusCode::kInvalidArgument);
}

TEST(Predictor, WithoutAModelIsAnErrorAndNoCrash) {
  FakeRunner runner(one_input({"x", DType::kFloat32, {-1, 2}}), add_one);
  Predictor first = Predictor::create(runner, "m").value();
  const Predictor second = std::move(first);
  for (const Predictor& empty : {first, Predictor()}) {  // NOLINT(bugprone-use-after-move)
    EXPECT_EQ(empty.predict(std::array{1, 2}).status().code(), StatusCode::kFailedPrecondition);
    EXPECT_EQ(empty.predict(Tensors()).status().code(), StatusCode::kFailedPrecondition);
    EXPECT_EQ(empty.submit({}).get().status().code(), StatusCode::kFailedPrecondition);
    EXPECT_EQ(empty.allocate("x", {1, 2}).status().code(), StatusCode::kFailedPrecondition);
    EXPECT_TRUE(empty.inputs().empty() && empty.outputs().empty() && empty.info().name.empty());
  }
  EXPECT_TRUE(second.predict(std::array{1, 2}).ok());
}

}  // namespace
}  // namespace shoal
