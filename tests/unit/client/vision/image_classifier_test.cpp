#include "shoal/image_classifier.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <type_traits>
#include <utility>

#include "shm/base/errors.hpp"
#include "shoal/predictor.hpp"
#include "tests/support/function_client.hpp"

namespace shoal {
namespace {

// What a temporary gives away is a value: a reference to it would dangle.
static_assert(!std::is_reference_v<decltype(std::declval<ImageClassifier>().info())>);
static_assert(!std::is_reference_v<decltype(std::declval<ImageClassifier>().preprocess())>);
static_assert(!std::is_reference_v<decltype(std::declval<ImageClassifier>().warnings())>);
static_assert(!std::is_reference_v<decltype(std::declval<Predictor>().info())>);

/// A model whose score of class c is the mean of channel c.
///   Threads  thread-bound
class ColorModel {
 public:
  ColorModel()
      : core_(std::make_shared<test::FunctionClient>(ModelInfo(), [this](const Tensors& inputs) { return run(inputs); })) {
    info.name = "colors";
    info.inputs = {{"data", DType::kFloat32, {-1, 3, 4, 4}}};
    info.outputs = {{"scores", DType::kFloat32, {-1, 3}}};
    info.labels = {"red", "green", "blue"};
    info.preprocess = Preprocess{};
  }
  operator Client() const { return Client(core_); }  // NOLINT(google-explicit-constructor): as a Pool

 private:
  Result<Tensors> run(const Tensors& inputs) {
    const Tensor& input = inputs.at(0).tensor;
    batches.push_back(input.shape()[0]);
    if (!failure.ok()) return failure;
    Tensor scores = Tensor::create(DType::kFloat32, {input.shape()[0], input.shape()[1]}).value();
    const std::size_t plane = input.values<float>().size() / scores.values<float>().size();
    for (std::size_t i = 0; i < scores.values<float>().size(); ++i) {
      for (const float value : input.values<float>().subspan(i * plane, plane))
        scores.values<float>()[i] += value / static_cast<float>(plane);
    }
    Tensors outputs;
    outputs.push_back({"scores", std::move(scores)});
    return outputs;
  }

  const std::shared_ptr<test::FunctionClient> core_;

 public:
  ModelInfo& info = core_->info;
  Status failure;
  std::vector<std::int64_t> batches;
};

Image plain(std::uint8_t red, std::uint8_t green, std::uint8_t blue) {
  std::vector<std::uint8_t> rgb;
  for (int i = 0; i < 8 * 8; ++i) rgb.insert(rgb.end(), {red, green, blue});
  return Image::from_rgb(8, 8, std::move(rgb)).value();
}

TEST(ImageClassifier, NamesTheClassesOfAPicture) {
  ColorModel model;
  const auto classifier = ImageClassifier::create(model, "colors", {.top_k = 2}).value();
  EXPECT_TRUE(classifier.warnings().empty());
  const Classes classes = classifier.classify(plain(0, 50, 49)).value();
  ASSERT_EQ(classes.size(), 2u);
  EXPECT_EQ(classes[0].label, "green");
  EXPECT_EQ(classes[1].label, "blue");
  EXPECT_NEAR(classes[0].probability, 0.731f, 1e-3f);  // softmax of 50, 49
}

TEST(ImageClassifier, ThatWasMovedFromIsAnError) {
  ColorModel model;
  auto classifier = ImageClassifier::create(model, "colors").value();
  const ImageClassifier moved_to = std::move(classifier);
  const Status status = classifier.classify(plain(0, 50, 49)).status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(moved_to.classify(plain(0, 50, 49)).ok());
}

TEST(ImageClassifier, ManyPicturesTravelInBatchesAndComeBackInOrder) {
  ColorModel model;
  const auto classifier = ImageClassifier::create(model, "colors", {.top_k = 1, .batch = 4}).value();
  std::vector<Image> images;
  for (int i = 0; i < 90; ++i) images.push_back(plain(i % 3 == 0 ? 200 : 0, i % 3 == 1 ? 200 : 0, i % 3 == 2 ? 200 : 0));
  const auto all = classifier.classify(images).value();
  ASSERT_EQ(all.size(), 90u);
  for (int i = 0; i < 90; ++i) EXPECT_EQ(all[static_cast<std::size_t>(i)][0].index, i % 3);
  EXPECT_EQ(model.batches.size(), 23u);
  EXPECT_EQ(model.batches.back(), 2);
  EXPECT_TRUE(classifier.classify(std::span<const Image>()).value().empty());
}

TEST(ImageClassifier, WithoutAWordAboutPreprocessingItWarns) {
  ColorModel model;
  model.info.preprocess.reset();
  const auto classifier = ImageClassifier::create(model, "colors").value();
  ASSERT_EQ(classifier.warnings().size(), 1u);
  EXPECT_NE(classifier.warnings()[0].find("colors"), std::string::npos);
  EXPECT_EQ(classifier.preprocess().crop_width, 4);
  model.info.inputs[0].shape[1] = 1;
  EXPECT_EQ(ImageClassifier::create(model, "colors").value().preprocess().order, "GRAY");
}

TEST(ImageClassifier, GivenPreprocessingReplacesTheModels) {
  ColorModel model;
  const auto classifier = ImageClassifier::create(model, "colors", {.preprocess = Preprocess{.order = "BGR"}}).value();
  EXPECT_EQ(classifier.classify(plain(200, 0, 0)).value()[0].index, 2);
}

TEST(ImageClassifier, ModelsAndPreprocessingThatDoNotFitAreRefused) {
  ColorModel model;
  const auto refused = [&] { return ImageClassifier::create(model, "colors").status(); };
  EXPECT_EQ(ImageClassifier::create(model, "sounds").status().code(), StatusCode::kNotFound);
  model.info.preprocess = Preprocess{.crop_height = 5, .crop_width = 4};
  EXPECT_EQ(refused().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(refused().message().find("?x3x4x4"), std::string::npos) << refused().message();
  model.info.preprocess = Preprocess{.order = "GRAY", .mean = {0}, .scale = {1}};
  EXPECT_EQ(refused().code(), StatusCode::kInvalidArgument);
  model.info.preprocess = Preprocess{};
  model.info.inputs[0].shape = {-1, 10};
  EXPECT_EQ(refused().code(), StatusCode::kFailedPrecondition);
  model.info.inputs.clear();
  EXPECT_EQ(refused().code(), StatusCode::kFailedPrecondition);
}

TEST(ImageClassifier, LabelsThatAreNotAsManyAsTheClassesAreRefused) {
  ColorModel model;
  model.info.labels.pop_back();
  const Status refused = ImageClassifier::create(model, "colors").value().classify(plain(1, 2, 3)).status();
  EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(refused.message().find("'scores' has 3 classes, but its labels file has 2 lines"), std::string::npos)
      << refused.message();
  model.info.labels.clear();
  EXPECT_EQ(ImageClassifier::create(model, "colors").value().classify(plain(9, 2, 3)).value()[0].label, "");
}

TEST(ImageClassifier, AFailedRequestIsTheCallersError) {
  ColorModel model;
  const auto classifier = ImageClassifier::create(model, "colors").value();
  model.failure = overloaded("the queue is full");
  EXPECT_EQ(classifier.classify(plain(1, 2, 3)).status().code(), StatusCode::kOverloaded);
}

TEST(Predictor, RunsTheOneModel) {
  ColorModel model;
  const Predictor predictor = Predictor::create(model, "colors").value();
  const Tensor input = Tensor::create(DType::kFloat32, {2, 3, 4, 4}).value();
  EXPECT_EQ(predictor.predict(input).value()[0].tensor.shape(), (Shape{2, 3}));
  EXPECT_EQ(Predictor::create(model, "sounds").status().code(), StatusCode::kNotFound);
  model.info.inputs.push_back(model.info.inputs[0]);
  EXPECT_EQ(Predictor::create(model, "colors").value().predict(input).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace shoal
