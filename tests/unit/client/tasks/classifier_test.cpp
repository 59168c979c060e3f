#include "shoal/classifier.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/support/fake_runner.hpp"
#include "tests/support/says.hpp"

namespace shoal {
namespace {

using test::FakeRunner;
using test::says;
using test::tensor_of;

/// A model whose scores are its inputs.
FakeRunner echo() {
  ModelInfo info{.name = "m"};
  info.inputs = {{"x", DType::kFloat32, {-1, 3}}};
  info.outputs = {{"extra", DType::kFloat32, {-1, 8, 8}}, {"scores", DType::kFloat32, {-1, 3}}};
  info.labels = {"cat", "dog", "fish"};
  return FakeRunner(info, [](const Tensors& inputs) -> Result<Tensors> {
    return Tensors{{"extra", tensor_of({1}, {0})}, {"scores", inputs[0].tensor}};
  });
}

std::vector<std::int64_t> indices(const Classes& classes) {
  std::vector<std::int64_t> all;
  for (const ClassScore& each : classes) all.push_back(each.index);
  return all;
}

TEST(Classifier, ListsAllClassesInTheModelsOrderWithoutK) {
  FakeRunner runner = echo();
  const auto classifier = Classifier::create(runner, "m", {.output = "scores"}).value();
  const auto rows = classifier.classify(std::vector<double>{0.25, 0.5, 0.25, 1, 0, 0}).value();
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(indices(rows[0]), (std::vector<std::int64_t>{0, 1, 2}));
  EXPECT_EQ(rows[0][1].label, "dog");
  EXPECT_EQ(rows[0][1].probability, 0.5f) << "probabilities stay as they are";
  EXPECT_EQ(rows[1][0].probability, 1);
}

TEST(Classifier, ListsTheKMostProbable) {
  FakeRunner runner = echo();
  const auto classifier = Classifier::create(runner, "m", {.top_k = 2, .output = "scores"}).value();
  const auto rows = classifier.classify(tensor_of({1, 3}, {1, 2, 3})).value();
  EXPECT_EQ(indices(rows.at(0)), (std::vector<std::int64_t>{2, 1}));
  EXPECT_NEAR(rows[0][0].probability, 1 / (1 + std::exp(-1.0) + std::exp(-2.0)), 1e-6) << "scores go through a softmax";
  EXPECT_EQ(indices(Classifier::create(runner, "m", {.top_k = 9, .output = "scores"})
                        .value()
                        .classify(tensor_of({1, 3}, {1, 2, 3}))
                        .value()[0])
                .size(),
            3u);
}

TEST(Classifier, LabelsMayBeGivenAndMustBeAsManyAsTheClasses) {
  FakeRunner runner = echo();
  const auto given = Classifier::create(runner, "m", {.labels = {"a", "b", "c"}, .output = "scores"}).value();
  EXPECT_EQ(given.classify(std::array{1, 0, 0}).value()[0][0].label, "a");
  const Status few = Classifier::create(runner, "m", {.labels = {"a", "b"}, .output = "scores"}).status();
  EXPECT_EQ(few.code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(says(few.message(), {"'scores' has 3 classes", "2 labels"}));
  runner.info.labels.pop_back();
  EXPECT_TRUE(says(Classifier::create(runner, "m", {.output = "scores"}).status().message(), {"labels file has 2 lines"}));
  runner.info.outputs[1].shape = Shape::any();  // not known before an answer
  EXPECT_EQ(Classifier::create(runner, "m", {.output = "scores"}).value().classify(std::array{1, 0, 0}).status().code(),
            StatusCode::kFailedPrecondition);
  runner.info.labels.clear();
  EXPECT_EQ(Classifier::create(runner, "m", {.output = "scores"}).value().classify(std::array{1, 0, 0}).value()[0][0].label, "");
}

TEST(Classifier, AModelThatListsNoScoresIsNone) {
  FakeRunner runner = echo();
  const Status map = Classifier::create(runner, "m").status();  // the first output
  EXPECT_EQ(map.code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(says(map.message(), {"'m'", "'extra'", "?x8x8", "not a list of classes"}));
  EXPECT_EQ(Classifier::create(runner, "m", {.output = "nothing"}).status().code(), StatusCode::kNotFound);
  const auto classifier = Classifier::create(runner, "m", {.output = "scores"}).value();
  for (const Shape& shape : {Shape{}, Shape{1, 2, 2}, Shape{1, 0}, Shape{1, 1, 2, 2}}) {
    const Tensors outputs{{"extra", tensor_of({1}, {0})}, {"scores", Tensor::create(DType::kFloat32, shape).value()}};
    EXPECT_EQ(classifier.read(outputs).status().code(), StatusCode::kFailedPrecondition) << shape.to_string();
  }
  EXPECT_EQ(classifier.read({}).status().code(), StatusCode::kFailedPrecondition);
  runner.info.outputs.clear();
  EXPECT_EQ(Classifier::create(runner, "m").status().code(), StatusCode::kNotFound);
}

TEST(Classifier, ReadsOutputsOfAnyFloatsAndOfOneItem) {
  FakeRunner runner = echo();
  const auto classifier = Classifier::create(runner, "m", {.top_k = 1, .output = "scores"}).value();
  for (const DType dtype : {DType::kFloat16, DType::kFloat64, DType::kInt8}) {
    for (const Shape& shape : {Shape{1, 3}, Shape{3}, Shape{1, 3, 1, 1}}) {
      Tensor scores = Tensor::create(dtype, shape).value();
      ASSERT_TRUE(Numbers(std::array{1, 3, 2}).copy_to(scores.view()).ok());
      EXPECT_EQ(classifier.read({{"extra", {}}, {"scores", scores}}).value().at(0).at(0).index, 1) << dtype_name(dtype);
    }
  }
  EXPECT_TRUE(classifier.read({{"extra", {}}, {"scores", Tensor::create(DType::kFloat32, {0, 3}).value()}}).value().empty());
}

TEST(Classifier, NumbersThatAreNoneDoNotMatter) {
  FakeRunner runner = echo();
  const auto classifier = Classifier::create(runner, "m", {.top_k = 3, .output = "scores"}).value();
  const float nan = std::nanf(""), infinity = std::numeric_limits<float>::infinity();
  const Classes classes = classifier.classify(tensor_of({1, 3}, {nan, 1, 2})).value()[0];
  EXPECT_EQ(indices(classes), (std::vector<std::int64_t>{2, 1, 0}));
  EXPECT_NEAR(classes[0].probability, 1 / (1 + std::exp(-1.0)), 1e-6);
  for (const std::vector<float>& row :
       {std::vector<float>{nan, nan, nan}, {infinity, 0, 1}, {-infinity, -infinity, -infinity}, {infinity, nan, -infinity}})
    EXPECT_EQ(classifier.classify(tensor_of({1, 3}, row)).value()[0].size(), 3u);
}

TEST(Classifier, ThatWasMovedFromIsAnError) {
  FakeRunner runner = echo();
  auto classifier = Classifier::create(runner, "m", {.output = "scores"}).value();
  const Classifier moved_to = std::move(classifier);
  EXPECT_EQ(classifier.classify(std::array{1, 0, 0}).status().code(),
            StatusCode::kFailedPrecondition);  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(classifier.read({}).status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(classifier.predictor().info().name, "");
  EXPECT_EQ(moved_to.predictor().info().name, "m");
}

}  // namespace
}  // namespace shoal
