#include "shoal/image_classifier.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <type_traits>
#include <utility>

#include "shm/base/errors.hpp"
#include "shoal/predictor.hpp"
#include "tests/support/fake_runner.hpp"
#include "tests/support/says.hpp"
#include "tests/support/scratch_directory.hpp"

namespace shoal {
namespace {

// What a temporary gives away is a value: a reference to it would dangle.
static_assert(!std::is_reference_v<decltype(std::declval<ImageClassifier>().info())>);
static_assert(!std::is_reference_v<decltype(std::declval<ImageClassifier>().preprocess())>);
static_assert(!std::is_reference_v<decltype(std::declval<ImageClassifier>().warnings())>);

/// A model whose score of class c is the mean of channel c.
///   Threads  thread-bound
class ColorModel final : public test::FakeRunner {
 public:
  ColorModel() {
    info.name = "colors";
    info.inputs = {{"data", DType::kFloat32, {-1, 3, 4, 4}}};
    info.outputs = {{"scores", DType::kFloat32, {-1, 3}}};
    info.labels = {"red", "green", "blue"};
    info.preprocess = Preprocess{};
    answer = [this](const Tensors& inputs) { return scores(inputs.at(0).tensor); };
  }

  Result<Tensors> scores(const Tensor& input) {
    batches.push_back(input.shape()[0]);
    if (!failure.ok()) return failure;
    const bool is_interleaved = info.inputs[0].layout == "NHWC";
    const auto channels = static_cast<std::size_t>(input.shape()[is_interleaved ? 3 : 1]), pixels = std::size_t{4} * 4;
    Tensor scores = Tensor::create(DType::kFloat32, {input.shape()[0], static_cast<std::int64_t>(channels)}).value();
    for (std::size_t i = 0; i < input.values<float>().size(); ++i) {
      const std::size_t item = i / (channels * pixels), channel = is_interleaved ? i % channels : i / pixels % channels;
      scores.values<float>()[item * channels + channel] += input.values<float>()[i] / static_cast<float>(pixels);
    }
    return Tensors{{"scores", scores}};
  }

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

TEST(ImageClassifier, ASideThatIsOpenIsNotTakenForTheChannels) {
  ColorModel model;
  model.info.inputs[0].shape = {-1, -1, -1, 3};
  model.answer = [](const Tensors&) -> Result<Tensors> { return Tensors{{"scores", test::tensor_of({1, 3}, {1, 0, 0})}}; };
  const auto last = ImageClassifier::create(model, "colors", {.preprocess = Preprocess{.crop_height = 5, .crop_width = 7}});
  EXPECT_EQ(last.value().classify(plain(200, 0, 0)).value().at(0).label, "red");
  EXPECT_EQ(model.requests.at(0).at(0).tensor.shape(), (Shape{1, 5, 7, 3}));
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
  const Status refused = ImageClassifier::create(model, "colors").status();
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

TEST(ImageClassifier, ReadsFilesAndNamesTheOneThatFails) {
  ColorModel model;
  const test::ScratchDirectory files;
  const auto classifier = ImageClassifier::create(model, "colors", {.top_k = 1, .batch = 4}).value();
  std::vector<std::filesystem::path> paths;
  for (int i = 0; i < 30; ++i) {
    paths.push_back(files.path(std::to_string(i) + ".png"));
    ASSERT_TRUE(plain(i % 3 == 0 ? 200 : 0, i % 3 == 1 ? 200 : 0, i % 3 == 2 ? 200 : 0).write(paths.back()).ok());
  }
  const auto all = classifier.classify(paths).value();
  ASSERT_EQ(all.size(), 30u);
  for (int i = 0; i < 30; ++i) EXPECT_EQ(all[static_cast<std::size_t>(i)][0].index, i % 3);
  EXPECT_EQ(classifier.classify(paths[1]).value()[0].label, "green");
  EXPECT_EQ(classifier.classify(paths[1].string()).value()[0].label, "green");
  files.write("9.png", "no picture");
  files.write("12.png", "no picture");
  EXPECT_TRUE(test::says(classifier.classify(paths).status().message(), {paths[9].string()})) << "the first of them";
  EXPECT_EQ(classifier.classify(files.path("none.png")).status().code(), StatusCode::kNotFound);
}

TEST(ImageClassifier, TakesModelsWithTheChannelsLast) {
  ColorModel model;
  model.info.inputs[0] = {"data", DType::kFloat32, {-1, 4, 4, 3}, {}, "NHWC"};
  const auto classifier = ImageClassifier::create(model, "colors", {.top_k = 1}).value();
  EXPECT_EQ(classifier.classify(plain(0, 0, 200)).value()[0].label, "blue");
  EXPECT_EQ(model.requests.back()[0].tensor.shape(), (Shape{1, 4, 4, 3}));
  model.info.inputs[0].layout.clear();  // its sizes say so, too
  EXPECT_TRUE(ImageClassifier::create(model, "colors").ok());
  model.info.inputs[0].layout = "NCHW";
  EXPECT_TRUE(test::says(ImageClassifier::create(model, "colors").status().message(), {"?x4x4x3 NCHW"}));
}

TEST(ImageClassifier, LabelsMayBeGiven) {
  ColorModel model;
  const auto classifier = ImageClassifier::create(model, "colors", {.top_k = 0, .labels = {"a", "b", "c"}}).value();
  const Classes classes = classifier.classify(plain(0, 200, 0)).value();
  ASSERT_EQ(classes.size(), 3u);
  EXPECT_EQ(classes[1].label, "b") << "without k in the model's order";
  EXPECT_EQ(ImageClassifier::create(model, "colors", {.labels = {"a"}}).status().code(), StatusCode::kFailedPrecondition);
}

TEST(ImageClassifier, AnAnswerForAnotherNumberOfPicturesIsAnError) {
  ColorModel model;
  const auto classifier = ImageClassifier::create(model, "colors").value();
  model.answer = [](const Tensors&) -> Result<Tensors> {
    return Tensors{{"scores", Tensor::create(DType::kFloat32, {2, 3}).value()}};
  };
  EXPECT_EQ(classifier.classify(plain(1, 2, 3)).status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(classifier.classify(Image()).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(ImageClassifier::create(model, "colors", {.batch = 0}).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace shoal
