#include "shoal/object_detector.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <type_traits>
#include <utility>

#include "tests/support/fake_runner.hpp"
#include "tests/support/says.hpp"
#include "tests/unit/client/vision/test_data.hpp"

namespace shoal {
namespace {

using test::FakeRunner;
using test::says;
using test::tensor_of;
using vision::pixel;

static_assert(!std::is_reference_v<decltype(std::declval<ObjectDetector>().info())>);

constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInfinity = std::numeric_limits<float>::infinity();

/// A detector with an input of 100 x 200 that answers with rows of (class, score, x0, y0, x1, y1), the same for every picture.
struct RowsModel : FakeRunner {
  RowsModel() {
    info.name = "ssd";
    info.inputs = {{"data", DType::kFloat32, {-1, 3, 100, 200}}};
    info.outputs = {{"cls_prob", DType::kFloat32, {-1, 21, 8732}}, {"detection_output", DType::kFloat32, {-1, -1, 6}}};
    info.labels = {"cat", "dog", "fish"};
    info.preprocess = Preprocess{};
    answer = [this](const Tensors& inputs) -> Result<Tensors> {
      std::vector<float> all;
      const std::int64_t pictures = inputs.at(0).tensor.shape()[0];
      for (std::int64_t i = 0; i < pictures; ++i) all.insert(all.end(), rows.begin(), rows.end());
      const Tensor output = tensor_of({pictures, static_cast<std::int64_t>(rows.size() / 6), 6}, all);
      return Tensors{{"cls_prob", tensor_of({1}, {0})}, {info.outputs[1].name, output}};
    };
  }
  std::vector<float> rows;
};

Image blank(int height, int width) {
  return Image::from_rgb(height, width, std::vector<std::uint8_t>(static_cast<std::size_t>(height * width) * 3)).value();
}

void expect_box(const Box& got, const Box& want) {
  EXPECT_NEAR(got.x0, want.x0, 1e-3f);
  EXPECT_NEAR(got.y0, want.y0, 1e-3f);
  EXPECT_NEAR(got.x1, want.x1, 1e-3f);
  EXPECT_NEAR(got.y1, want.y1, 1e-3f);
}

TEST(ObjectDetector, ReadsTheRowsOfMultiBoxDetection) {
  RowsModel model;
  model.rows = {1, 0.6f, 0.1f, 0.2f, 0.5f, 0.6f, -1, 0.99f, 0, 0, 1, 1, 0, 0.9f, 0, 0, 1, 1, 2, 0.4f, 0, 0, 1, 1};
  const auto detector = ObjectDetector::create(model, "ssd").value();
  EXPECT_TRUE(detector.warnings().empty());
  const Detections found = detector.detect(blank(300, 400)).value();
  ASSERT_EQ(found.size(), 2u) << "one row is no detection, and one has a low score";
  EXPECT_EQ(found[0].label, "cat");
  EXPECT_EQ(found[0].score, 0.9f);
  expect_box(found[0].box, {0, 0, 400, 300});
  EXPECT_EQ(found[1].index, 1);
  expect_box(found[1].box, {40, 60, 200, 180});
  EXPECT_EQ(ObjectDetector::create(model, "ssd", {.threshold = 0.1f, .top_k = 1}).value().detect(blank(300, 400)).value().size(),
            1u);
  EXPECT_EQ(ObjectDetector::create(model, "ssd", {.threshold = 0.1f}).value().detect(blank(300, 400)).value().size(), 3u);
  for (const float wrong : {2.0f, std::nanf("")}) {
    const Status refused = ObjectDetector::create(model, "ssd", {.threshold = wrong}).status();
    EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
    EXPECT_TRUE(says(refused.message(), {"'ssd'", "threshold is", "at most 1"}));
  }
}

TEST(ObjectDetector, BoxesOfNmsAreInPixelsOfTheInput) {
  RowsModel model;
  model.rows = {1, 0.6f, 20, 20, 100, 60};
  model.info.outputs[1].name = "box_nms0_output";
  expect_box(ObjectDetector::create(model, "ssd").value().detect(blank(300, 400)).value().at(0).box, {40, 60, 200, 180});
  model.info.outputs[1].name = "boxes";
  const Status status = ObjectDetector::create(model, "ssd").value().detect(blank(300, 400)).status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(says(status.message(), {"'boxes'", "(20, 20, 100, 60)", "kNmsRows"})) << "a guess that is wrong is told";
  const auto told = ObjectDetector::create(model, "ssd", {.format = DetectionFormat::kNmsRows}).value();
  expect_box(told.detect(blank(300, 400)).value().at(0).box, {40, 60, 200, 180});
}

/// GluonCV's three outputs.
struct SplitModel : FakeRunner {
  SplitModel() {
    info.name = "yolo";
    info.inputs = {{"data", DType::kFloat32, {-1, 3, 100, 200}}};
    info.outputs = {
        {"ids", DType::kFloat32, {-1, 2, 1}}, {"scores", DType::kFloat32, {-1, 2, 1}}, {"boxes", DType::kFloat32, {-1, 2, 4}}};
    info.preprocess = Preprocess{};
    answer = [](const Tensors& inputs) -> Result<Tensors> {
      const std::int64_t pictures = inputs.at(0).tensor.shape()[0];
      std::vector<float> ids, scores, boxes;
      for (std::int64_t i = 0; i < pictures; ++i) {
        ids.insert(ids.end(), {7, -1});
        scores.insert(scores.end(), {0.75f, -1});
        boxes.insert(boxes.end(), {20, 20, 100, 60, -1, -1, -1, -1});
      }
      return Tensors{{"ids", tensor_of({pictures, 2, 1}, ids)},
                     {"scores", tensor_of({pictures, 2, 1}, scores)},
                     {"boxes", tensor_of({pictures, 2, 4}, boxes)}};
    };
  }
};

TEST(ObjectDetector, ReadsTheThreeOutputsOfGluonCv) {
  SplitModel model;
  const auto detector = ObjectDetector::create(model, "yolo").value();
  const Detections found = detector.detect(blank(300, 400)).value();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].index, 7);
  EXPECT_EQ(found[0].label, "") << "the model has no labels";
  expect_box(found[0].box, {40, 60, 200, 180});
  std::swap(model.info.outputs[0], model.info.outputs[2]);  // boxes first; ids stand behind scores
  const auto named = ObjectDetector::create(model, "yolo", {.detections = {"ids", "scores", "boxes"}});
  EXPECT_TRUE(named.ok()) << named.status().to_string();
}

/// SplitModel with its outputs in another order, under other names.
struct RenamedModel : SplitModel {
  RenamedModel(const std::vector<std::size_t>& order, const std::vector<std::string>& names) {
    const auto arranged = [=](const auto& outputs) {
      auto made = outputs;
      for (std::size_t i = 0; i < order.size(); ++i) {
        made[i] = outputs[order[i]];
        made[i].name = names[i];
      }
      return made;
    };
    info.outputs = arranged(info.outputs);
    answer = [arranged, gluon = answer](const Tensors& inputs) -> Result<Tensors> { return arranged(gluon(inputs).value()); };
  }
};

TEST(ObjectDetector, ClassesAndScoresAreFoundByTheirNames) {
  const std::vector<std::size_t> as_gluon{0, 1, 2}, boxes_first{2, 1, 0}, scores_first{1, 0, 2};
  for (const auto& [order, names] : std::vector<std::pair<std::vector<std::size_t>, std::vector<std::string>>>{
           {boxes_first, {"bbox", "score", "id"}},
           {boxes_first, {"ssd0_bboxes_output", "ssd0_class_probs_output", "ssd0_slice0_output"}},
           {scores_first, {"class_scores", "ClassIds", "boxes"}},
           {scores_first, {"sigmoid0", "labels", "boxes"}},
           {scores_first, {"box_confidence", "x", "boxes"}},
           {{1, 2, 0}, {"x", "coordinates", "box_cls0"}},
           {{0, 2, 1}, {"x", "coordinates", "PROB"}},
           {as_gluon, {"yolov30_slice_axis1_output", "yolov30_slice_axis2_output", "yolov30_slice_axis3_output"}},
           {as_gluon, {"probe0_slice_axis0_output", "probe0_slice_axis1_output", "probe0_slice_axis2_output"}},
           {as_gluon, {"license_id_axis0", "license_id_axis1", "license_id_axis2"}},
           {as_gluon, {"grid", "sigmoid", "sliding"}}}) {  // "id" within a word says nothing
    RenamedModel model(order, names);
    const auto found = ObjectDetector::create(model, "yolo").value().detect(blank(300, 400));
    ASSERT_TRUE(found.ok() && found->size() == 1) << names[0] << found.status().to_string();
    EXPECT_EQ(found->at(0).index, 7) << names[0];
    EXPECT_EQ(found->at(0).score, 0.75f) << names[0];
    expect_box(found->at(0).box, {40, 60, 200, 180});
  }
}

TEST(ObjectDetector, ClassesAndScoresThatCannotBeToldAreAnError) {
  for (const auto& names : std::vector<std::vector<std::string>>{
           {"out0", "out1", "out2"}, {"boxes", "score0", "score1"}, {"boxes", "class_id", "label"}}) {
    RenamedModel model({2, 1, 0}, names);
    const Status status = ObjectDetector::create(model, "yolo").status();
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << names[1];
    EXPECT_TRUE(says(status.message(), {"'yolo'", "'" + names[0] + "'", "'" + names[1] + "'", "'" + names[2] + "'", "`outputs`",
                                        "classes, scores, boxes"}));
    const auto told = ObjectDetector::create(model, "yolo", {.detections = {names[2], names[1], names[0]}}).value();
    EXPECT_EQ(told.detect(blank(300, 400)).value().at(0).index, 7);
    EXPECT_EQ(ObjectDetector::create(model, "yolo", {.detections = {names[0], names[1], names[2]}}).status().code(),
              StatusCode::kFailedPrecondition)
        << "boxes cannot be classes";
  }
}

TEST(ObjectDetector, NumbersInAnotherOrderAreAnErrorAndNoWrongLabels) {
  SplitModel split;
  const auto swapped = ObjectDetector::create(split, "yolo", {.detections = {"scores", "ids", "boxes"}}).value();
  EXPECT_TRUE(
      says(swapped.detect(blank(300, 400)).status().message(), {"'scores'", "0.75", "a class", "classes, scores, boxes"}));
  RowsModel rows;
  rows.rows = {0.25f, 0.5f, 0.75f, 1, 0.9f, 2};  // x0, y0, x1, y1, score, class
  const Status status = ObjectDetector::create(rows, "ssd").value().detect(blank(300, 400)).status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(says(status.message(), {"'detection_output'", "0.25", "(class, score, x0, y0, x1, y1)"}));
}

TEST(ObjectDetector, MapsBoxesBackHoweverThePictureWasPrepared) {
  RowsModel model;
  // The input is 200 wide and 100 high. A letterbox shows a square picture in its columns 50 to 150.
  model.info.preprocess = Preprocess{.letterbox = true};
  model.rows = {0, 1, 0.25f, 0, 0.75f, 1, 1, 0.9f, 0.5f, 0.5f, 0.75f, 1, 2, 0.8f, 0, 0, 0.2f, 1};
  const Detections boxed = ObjectDetector::create(model, "ssd").value().detect(blank(400, 400)).value();
  ASSERT_EQ(boxed.size(), 2u) << "a box in the border is none";
  expect_box(boxed[0].box, {0, 0, 400, 400});
  expect_box(boxed[1].box, {200, 200, 400, 400});
  // The shorter side becomes 200, and the crop shows the middle.
  model.info.preprocess = Preprocess{.resize = 200};
  model.rows = {0, 1, 0, 0, 1, 1, 1, 0.9f, 0.5f, 0.5f, 1, 1};
  const Detections cropped = ObjectDetector::create(model, "ssd").value().detect(blank(400, 800)).value();
  expect_box(cropped.at(0).box, {200, 100, 600, 300});
  expect_box(cropped.at(1).box, {400, 200, 600, 300});
}

TEST(ObjectDetector, FindsObjectsInManyPicturesInOrder) {
  RowsModel model;
  model.rows = {1, 0.6f, 0, 0, 1, 1};
  const auto detector = ObjectDetector::create(model, "ssd", {.batch = 3}).value();
  std::vector<Image> images;
  for (int i = 1; i <= 20; ++i) images.push_back(blank(10 * i, 20 * i));
  const auto all = detector.detect(images).value();
  ASSERT_EQ(all.size(), 20u);
  for (std::size_t i = 0; i < 20; ++i)
    expect_box(all[i].at(0).box, {0, 0, 20 * (static_cast<float>(i) + 1), 10 * (static_cast<float>(i) + 1)});
  EXPECT_EQ(model.requests.size(), 7u);
  EXPECT_TRUE(detector.detect(std::span<const Image>()).value().empty());
}

TEST(ObjectDetector, OutputsOfNoSenseAreNoDetectionsAndNoCrash) {
  RowsModel model;
  model.rows = {kNan,
                0.9f,
                0,
                0,
                1,
                1,  // no class
                0,
                kNan,
                0,
                0,
                1,
                1,  // no score
                0,
                kInfinity,
                0,
                0,
                1,
                1,  //
                kInfinity,
                0.9f,
                0,
                0,
                1,
                1,  //
                1e30f,
                0.9f,
                0,
                0,
                1,
                1,  // a class beyond all integers
                0,
                0.9f,
                kNan,
                0,
                1,
                1,  // no box
                0,
                0.9f,
                0,
                0,
                kInfinity,
                1,  //
                0,
                0.9f,
                1,
                1,
                0,
                0,  // its corners are exchanged
                0,
                0.9f,
                0.5f,
                0.5f,
                0.5f,
                1,  // empty
                0,
                0.9f,
                1.1f,
                0,
                1.5f,
                1,  // beside the picture
                2,
                0.9f,
                -0.5f,
                0.5f,
                1.5f,
                1,  //
                2147483520.0f,
                0.8f,
                0,
                0,
                1,
                1};  // without a label
  const Detections found = ObjectDetector::create(model, "ssd").value().detect(blank(300, 400)).value();
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].index, 2);
  expect_box(found[0].box, {0, 150, 400, 300});
  EXPECT_EQ(found[1].index, 2147483520);
  EXPECT_EQ(found[1].label, "");
  std::mt19937 random(17);
  const std::vector<float> odd{kNan, kInfinity, -kInfinity, -1, 0, 1, 2, 3e38f, -3e38f, 1e-40f, 0.5f, 2147483648.0f};
  const auto told = ObjectDetector::create(model, "ssd", {.threshold = 0, .format = DetectionFormat::kMultiBoxRows}).value();
  for (int round = 0; round < 2000; ++round) {
    model.rows.resize(6 * (random() % 5));
    for (float& value : model.rows) value = odd[random() % odd.size()];
    const auto detections = told.detect(blank(30, 40));
    if (!detections.ok()) continue;  // a class that is no whole number
    for (const Detection& each : *detections) {
      EXPECT_TRUE(each.box.x0 >= 0 && each.box.x0 < each.box.x1 && each.box.x1 <= 40 && each.box.y0 >= 0 &&
                  each.box.y0 < each.box.y1 && each.box.y1 <= 30);
      EXPECT_TRUE(std::isfinite(each.score) && each.index >= 0);
    }
    EXPECT_TRUE(draw_detections(blank(30, 40), *detections).ok());
  }
}

TEST(ObjectDetector, AClassBeyondTheLabelsHasNone) {
  RowsModel model;
  model.rows = {3, 0.9f, 0, 0, 1, 1, 1, 0.8f, 0, 0, 1, 1};
  const auto labels = [&](ObjectDetectorOptions options = {}) {
    std::vector<std::string> all;
    for (const Detection& each : ObjectDetector::create(model, "ssd", options).value().detect(blank(30, 40)).value())
      all.push_back(each.label);
    return all;
  };
  using Labels = std::vector<std::string>;
  EXPECT_EQ(labels(), (Labels{"", "dog"}));
  EXPECT_EQ(labels({.labels = {"a", "b", "c", "d"}}), (Labels{"d", "b"}));
  model.info.labels.clear();
  EXPECT_EQ(labels(), (Labels{"", ""}));
}

TEST(ObjectDetector, AModelThatIsNoDetectorIsRefused) {
  RowsModel model;
  const auto refused = [&](ObjectDetectorOptions options = {}) {
    return ObjectDetector::create(model, "ssd", std::move(options)).status();
  };
  EXPECT_EQ(refused({.detections = {"nothing"}}).code(), StatusCode::kNotFound);
  EXPECT_EQ(refused({.detections = {"cls_prob", "detection_output"}}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(refused({.format = DetectionFormat::kIdsScoresBoxes}).code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(ObjectDetector::create(model, "other").status().code(), StatusCode::kNotFound);
  model.info.outputs = {{"prob", DType::kFloat32, {-1, 1000}}};
  EXPECT_EQ(refused().code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(says(refused().message(), {"'ssd'", "'prob' float32 ?x1000", "batch x rows x 6"}));
  model.info.outputs = {{"a", DType::kFloat32, {-1, 5, 6}}, {"b", DType::kFloat32, {-1, 5, 6}}};
  EXPECT_EQ(refused().code(), StatusCode::kFailedPrecondition) << "which one?";
  EXPECT_TRUE(refused({.detections = {"b"}}).ok());
  model.info.outputs.clear();
  EXPECT_EQ(refused().code(), StatusCode::kFailedPrecondition);
  model.info.inputs[0].dtype = DType::kInt32;
  EXPECT_TRUE(says(refused().message(), {"int32", "float32"}));
  model.info.inputs[0] = {"data", DType::kFloat32, {-1, 10}};
  EXPECT_EQ(refused().code(), StatusCode::kFailedPrecondition);
}

TEST(ObjectDetector, AnswersOfOtherShapesAreErrors) {
  SplitModel model;
  const auto detector = ObjectDetector::create(model, "yolo").value();
  const Tensor ids = tensor_of({1, 2, 1}, {1, 1}), boxes = tensor_of({1, 2, 4}, {0, 0, 1, 1, 0, 0, 1, 1});
  const auto answer_of = [&](Tensors outputs) {
    model.answer = [outputs](const Tensors&) -> Result<Tensors> { return outputs; };
    return detector.detect(blank(30, 40)).status().code();
  };
  EXPECT_EQ(answer_of({{"ids", ids}, {"scores", ids}, {"boxes", boxes}}), StatusCode::kOk);
  EXPECT_EQ(answer_of({}), StatusCode::kFailedPrecondition);
  EXPECT_EQ(answer_of({{"ids", ids}, {"scores", ids}, {"boxes", ids}}), StatusCode::kFailedPrecondition) << "boxes of one number";
  EXPECT_EQ(answer_of({{"ids", ids}, {"scores", tensor_of({1, 1, 1}, {1})}, {"boxes", boxes}}), StatusCode::kFailedPrecondition);
  EXPECT_EQ(answer_of({{"ids", tensor_of({2, 1, 1}, {1, 1})}, {"scores", ids}, {"boxes", boxes}}),
            StatusCode::kFailedPrecondition);
  EXPECT_EQ(answer_of({{"ids", Tensor()}, {"scores", ids}, {"boxes", boxes}}), StatusCode::kFailedPrecondition);
  EXPECT_EQ(
      answer_of({{"ids", tensor_of({1, 0, 1}, {})}, {"scores", tensor_of({1, 0, 1}, {})}, {"boxes", tensor_of({1, 0, 4}, {})}}),
      StatusCode::kOk);
}

TEST(ObjectDetector, OutputsWithoutKnownShapesAreLookedAtWhenTheyCome) {
  RowsModel model;
  model.rows = {1, 0.6f, 0, 0, 1, 1};
  model.info.outputs[1].shape = Shape::any();
  EXPECT_EQ(ObjectDetector::create(model, "ssd").value().detect(blank(30, 40)).value().size(), 1u);
}

TEST(ObjectDetector, WithoutAWordAboutPreprocessingItWarns) {
  RowsModel model;
  model.info.preprocess.reset();
  const auto detector = ObjectDetector::create(model, "ssd").value();
  ASSERT_EQ(detector.warnings().size(), 1u);
  EXPECT_EQ(detector.preprocess().resize, 0) << "nothing of the picture is cut off";
  EXPECT_EQ(detector.preprocess().crop_width, 200);
  model.info.inputs[0].shape = {-1, 3, -1, -1};
  EXPECT_TRUE(says(ObjectDetector::create(model, "ssd").status().message(), {"?x3x?x?", "crop"}));
  EXPECT_TRUE(ObjectDetector::create(model, "ssd", {.preprocess = Preprocess{.crop_height = 64, .crop_width = 64}}).ok());
}

TEST(ObjectDetector, ThatWasMovedFromIsAnError) {
  RowsModel model;
  auto detector = ObjectDetector::create(model, "ssd").value();
  const ObjectDetector moved_to = std::move(detector);
  EXPECT_EQ(detector.detect(blank(3, 4)).status().code(), StatusCode::kFailedPrecondition);  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(detector.info().name, "");
  EXPECT_EQ(moved_to.info().name, "ssd");
  EXPECT_EQ(moved_to.detect(Image()).status().code(), StatusCode::kInvalidArgument);
}

TEST(DrawDetections, DrawsFramesOnACopy) {
  const Image image = blank(100, 200);
  const Detection detection{.index = 1, .label = "dog", .score = 0.5f, .box = {20, 40, 120, 90}};
  const Image drawn = draw_detections(image, {&detection, 1}).value();
  const std::vector<std::uint8_t> black{0, 0, 0};
  EXPECT_EQ(pixel(image, 40, 20), black) << "the picture itself stays";
  EXPECT_NE(pixel(drawn, 90, 70), black);
  EXPECT_NE(pixel(drawn, 60, 20), black);
  EXPECT_NE(pixel(drawn, 36, 22), black) << "the label stands above the frame";
  EXPECT_EQ(pixel(drawn, 65, 70), black) << "inside";
  EXPECT_EQ(pixel(drawn, 97, 180), black) << "outside";
  const Detection other{.index = 2, .label = "cat", .score = 0.5f, .box = {20, 40, 120, 90}};
  EXPECT_NE(pixel(draw_detections(image, {&other, 1}).value(), 90, 70), pixel(drawn, 90, 70)) << "a color per class";
  const Image plain = draw_detections(image, {}).value();
  EXPECT_TRUE(std::ranges::equal(plain.rgb(), image.rgb()));
}

TEST(DrawDetections, WithoutSenseCrashNothing) {
  std::vector<Detection> odd;
  for (const float value : {kNan, kInfinity, -kInfinity, 1e30f, -5.0f})
    odd.push_back({.index = -3, .label = std::string(500, 'x') + "\xff\n", .score = value, .box = {value, 0, 5, value}});
  odd.push_back({.index = std::numeric_limits<std::int64_t>::max(), .label = "", .score = 1, .box = {5, 5, 1, 1}});
  for (const auto& [height, width] : {std::pair{1, 1}, std::pair{1, 500}, std::pair{500, 1}, std::pair{40, 40}})
    EXPECT_TRUE(draw_detections(blank(height, width), odd).ok());
  EXPECT_EQ(draw_detections(Image(), odd).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace shoal
