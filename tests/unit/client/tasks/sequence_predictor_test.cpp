#include "shoal/sequence_predictor.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "client/tasks/padding.hpp"
#include "tests/support/fake_runner.hpp"
#include "tests/support/says.hpp"

namespace shoal {
namespace {

using test::FakeRunner;
using test::says;
using test::tensor_of;

/// A causal model over data (N, T), or (T, N): the sums so far. Its outputs are "sums" with the axes of data; "rows", one per
/// step and item; "pairs" (N, T, 2) or (T, N, 2), the sums twice; and "whole" (N), the sum.
class SumModel final : public FakeRunner {
 public:
  explicit SumModel(bool is_time_major) : is_time_major_(is_time_major) {
    info.name = "sums";
    const std::string layout = is_time_major ? "TN" : "NT";
    info.inputs = {{"data", DType::kFloat32, {-1, -1}, {}, layout}};
    info.outputs = {{"sums", DType::kFloat32, {-1, -1}},
                    {"rows", DType::kFloat32, {-1, 1}},
                    {"pairs", DType::kFloat32, {-1, -1, 2}},
                    {"whole", DType::kFloat32, {-1}}};
    answer = [this](const Tensors& inputs) { return sums(inputs.at(0).tensor); };
  }

  Result<Tensors> sums(const Tensor& data) const {
    const Shape shape = data.shape();
    const std::int64_t items = shape[is_time_major_ ? 1 : 0], steps = shape[is_time_major_ ? 0 : 1];
    Tensor sums = Tensor::create(DType::kFloat32, shape).value(),
           rows = Tensor::create(DType::kFloat32, {items * steps, 1}).value(),
           pairs = Tensor::create(DType::kFloat32, {shape[0], shape[1], 2}).value(),
           whole = Tensor::create(DType::kFloat32, {items}).value();
    for (std::int64_t item = 0; item < items; ++item) {
      float sum = 0;
      for (std::int64_t step = 0; step < steps; ++step) {
        const auto at = static_cast<std::size_t>(is_time_major_ ? step * items + item : item * steps + step);
        sum += data.values<float>()[at];
        sums.values<float>()[at] = rows.values<float>()[at] = pairs.values<float>()[2 * at] = pairs.values<float>()[2 * at + 1] =
            sum;
      }
      whole.values<float>()[static_cast<std::size_t>(item)] = sum;
    }
    return Tensors{{"sums", sums}, {"rows", rows}, {"pairs", pairs}, {"whole", whole}};
  }

 private:
  const bool is_time_major_;
};

void expect_equal(const Tensors& got, const Tensors& want) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].tensor.shape(), want[i].tensor.shape()) << want[i].name;
    EXPECT_TRUE(std::ranges::equal(got[i].tensor.values<float>(), want[i].tensor.values<float>())) << want[i].name;
  }
}

TEST(SequencePredictor, PadsToTheNextBucketAndCutsBack) {
  for (const bool is_time_major : {false, true}) {
    SumModel model(is_time_major);
    auto predictor = SequencePredictor::create(model, "sums", {.buckets = {4, 8}}).value();
    std::mt19937 random(3);
    for (const std::int64_t items : {1, 3}) {
      for (std::int64_t steps = 0; steps < 11; ++steps) {
        Tensor data = Tensor::create(DType::kFloat32, is_time_major ? Shape{steps, items} : Shape{items, steps}).value();
        for (float& value : data.values<float>()) value = static_cast<float>(random() % 100);
        const Tensors outputs = predictor.predict(data).value();
        expect_equal(outputs, model.sums(data).value());
        const std::int64_t ran = model.requests.back()[0].tensor.shape()[is_time_major ? 0 : 1];
        EXPECT_EQ(ran, steps <= 4 ? 4 : steps <= 8 ? 8 : steps) << "longer ones run as they are";
      }
    }
  }
}

TEST(SequencePredictor, FillsTheEndWithWhatTheUserSays) {
  SumModel model(false);
  auto predictor = SequencePredictor::create(model, "sums", {.buckets = {4}, .padding = 9}).value();
  EXPECT_EQ(predictor.predict(tensor_of({1, 2}, {1, 1})).value()[3].tensor.values<float>()[0], 20)
      << "an output without time is not cut";
  model.info.inputs[0].dtype = DType::kInt32;
  auto whole = SequencePredictor::create(model, "sums", {.buckets = {4}, .padding = 0.5}).value();
  EXPECT_TRUE(says(whole.predict(Tensor::create(DType::kInt32, {1, 2}).value()).status().message(),
                   {"padding of 'data'", "0.5", "int32"}));
}

TEST(SequencePredictor, OfAModelWithOneLengthFillsThatUp) {
  SumModel model(false);
  model.info.inputs[0].shape = {-1, 6};
  model.info.outputs[0].shape = {-1, 6};
  model.info.outputs[2].shape = {-1, 6, 2};
  auto predictor = SequencePredictor::create(model, "sums").value();
  const Tensor data = tensor_of({2, 3}, {1, 2, 3, 4, 5, 6});
  Tensors want = model.sums(data).value();
  want[3] = {"whole", want[3].tensor};
  expect_equal(predictor.predict(data).value(), want);
  EXPECT_EQ(model.requests.back()[0].tensor.shape(), (Shape{2, 6}));
  EXPECT_EQ(predictor.predict(std::vector<int>(6)).value()[0].tensor.shape(), (Shape{1, 6}))
      << "a flat array is one of that length";
  EXPECT_TRUE(
      says(SequencePredictor::create(model, "sums", {.buckets = {3, 6}}).status().message(), {"'data'", "?x6", "bucket of 3"}));
}

TEST(SequencePredictor, ADimensionOfTheSizeOfABucketIsNotCutIfItIsNoTime) {
  SumModel model(false);
  model.info.outputs[0].shape = {-1, 4};  // the model says that it is always 4
  auto predictor = SequencePredictor::create(model, "sums", {.buckets = {4}}).value();
  EXPECT_EQ(predictor.predict(tensor_of({2, 3}, {1, 2, 3, 4, 5, 6})).value()[0].tensor.shape(), (Shape{2, 4}));
}

TEST(SequencePredictor, InputsOfOneSequenceHaveOneLength) {
  SumModel model(false);
  model.info.inputs.push_back({"mask", DType::kFloat32, {-1, -1}, {}, "NT"});
  model.info.inputs.push_back({"speed", DType::kFloat32, {-1}});
  auto predictor = SequencePredictor::create(model, "sums", {.buckets = {4}}).value();
  const Tensor two = tensor_of({1, 2}, {1, 1}), three = tensor_of({1, 3}, {1, 1, 1}), speed = tensor_of({1}, {5});
  const Status status = predictor.predict({{"data", two}, {"mask", three}, {"speed", speed}}).status();
  EXPECT_TRUE(says(status.message(), {"'data' has 2 steps", "'mask' 3"}));
  EXPECT_TRUE(predictor.predict({{"mask", two}, {"data", two}, {"speed", speed}}).ok());
  EXPECT_EQ(model.requests.back()[0].tensor.shape(), (Shape{1, 4}));
  EXPECT_EQ(model.requests.back()[2].tensor.shape(), (Shape{1})) << "an input without time stays";
  EXPECT_TRUE(says(predictor.predict({{"data", tensor_of({2}, {1, 1})}}).status().message(), {"'data'", "shape 2", "?x?"}));
}

TEST(SequencePredictor, BucketsMustFitTheModel) {
  SumModel model(false);
  model.info.inputs[0].ranges = {{}, {1, 100}};
  for (const std::vector<std::int64_t>& buckets : {std::vector<std::int64_t>{0}, {4, 4}, {8, 4}, {101}})
    EXPECT_EQ(SequencePredictor::create(model, "sums", {.buckets = buckets}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(SequencePredictor::create(model, "sums", {.buckets = {4}, .time_axis = 5}).status().code(),
            StatusCode::kFailedPrecondition);
  model.info.state = {{"sums", "data"}};
  const Status states = SequencePredictor::create(model, "sums", {.buckets = {4}, .time_axis = 1}).status();
  EXPECT_FALSE(states.ok());
}

/// h_out = h + the sum of data; both are outputs.
ModelInfo summing_state() {
  ModelInfo info{.name = "m"};
  info.inputs = {{"data", DType::kFloat32, {-1, -1}}, {"h", DType::kFloat32, {-1, 1}}};
  info.outputs = {{"h_out", DType::kFloat32, {-1, 1}}};
  info.state = {{"h_out", "h", {-1, 1}}};
  return info;
}

Result<Tensors> add_to_state(const Tensors& inputs) {
  float sum = 0;
  for (const auto& [name, tensor] : inputs) {
    for (const float value : tensor.values<float>()) sum += value;
  }
  return Tensors{{"h_out", tensor_of({1, 1}, {sum})}};
}

TEST(SequencePredictor, GoesOnFromTheStatesOfTheLastPiece) {
  FakeRunner runner(summing_state(), add_to_state);
  auto predictor = SequencePredictor::create(runner, "m").value();
  const auto step = [&](const Tensors& inputs) { return predictor.predict(inputs).value()[0].tensor.values<float>()[0]; };
  EXPECT_EQ(predictor.predict(std::vector<float>{}).status().code(), StatusCode::kInvalidArgument) << "two open dimensions";
  EXPECT_EQ(step({{"data", tensor_of({1, 2}, {1, 2})}}), 3);
  EXPECT_EQ(step({{"data", tensor_of({1, 1}, {4})}}), 7);
  runner.answer = [](const Tensors&) -> Result<Tensors> { return overloaded("the queue is full"); };
  EXPECT_FALSE(predictor.predict(tensor_of({1, 1}, {100})).ok());
  runner.answer = add_to_state;
  EXPECT_EQ(step({{"data", tensor_of({1, 1}, {1})}}), 8) << "a piece that failed changed nothing";
  EXPECT_EQ(step({{"data", tensor_of({1, 1}, {1})}, {"h", tensor_of({1, 1}, {50})}}), 51) << "a state that is given counts";
  EXPECT_TRUE(predictor.reset().ok());
  EXPECT_EQ(step({{"data", tensor_of({1, 1}, {1})}}), 1);
  EXPECT_TRUE(says(SequencePredictor::create(runner, "m", {.buckets = {4}}).status().message(), {"states", "padding"}));
}

TEST(SequencePredictor, ThatWasMovedFromIsAnError) {
  FakeRunner runner(summing_state(), add_to_state);
  auto first = SequencePredictor::create(runner, "m").value();
  const SequencePredictor second = std::move(first);
  EXPECT_EQ(first.predict(Tensors()).status().code(), StatusCode::kFailedPrecondition);  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(first.reset().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(second.predictor().info().name, "m");
}

TEST(Padding, OfOnePieceIsCutWithoutACopy) {
  const Tensor tensor = tensor_of({4, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
  const Tensor part = tasks::cut(tensor, tasks::steps_of(tensor.view(), 0), 3, {3, 2}).value();
  EXPECT_EQ(part.view().data, tensor.view().data);
  EXPECT_EQ(part.owner(), tensor.owner());
}

}  // namespace
}  // namespace shoal
