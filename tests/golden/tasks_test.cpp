// The tasks of the client library give the known results of real checkpoints and of whole networks, in this process.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "shm/model/model_config.hpp"
#include "shm/tensor/npy.hpp"
#include "shoal/engine.hpp"
#include "shoal/image_classifier.hpp"
#include "shoal/object_detector.hpp"
#include "tests/golden/network_case.hpp"
#include "tests/support/function_client.hpp"
#include "tests/support/vectors.hpp"

namespace shoal::testing {
namespace {

namespace fs = std::filesystem;

constexpr double kTolerance = 1e-4;  // of max|ref|, as for all real checkpoints
constexpr double kProbabilityTolerance =
    2e-3;  // the known results are rounded, and another decoder of JPEG may differ by 1 of 255
constexpr double kPixelTolerance = 0.05;

nlohmann::json cases_of(const std::string& folder) {
  std::ifstream file(test_data() / "models" / folder / "expected" / "expected.json");
  return file ? nlohmann::json::parse(file) : nlohmann::json::array();
}

fs::path array_file(const std::string& folder, const nlohmann::json& array) {
  return test_data() / "models" / folder / "expected" / array.at("file").get<std::string>();
}

Engine load(const std::string& path, std::vector<Shape> shapes) {
  std::vector<std::vector<TensorSpec>> sets;
  for (const Shape& shape : shapes) sets.push_back({{"data", DType::kFloat32, shape}});
  return Engine::load(path, {.threads = 2, .tuning_ms = 0, .shapes = std::move(sets)}).value();
}

void expect_outputs(const std::string& folder, const nlohmann::json& expected, const Tensors& outputs) {
  ASSERT_EQ(outputs.size(), expected.size());
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const Tensor want = read_npy(array_file(folder, expected[i])).value();
    EXPECT_EQ(outputs[i].tensor.shape(), want.shape());
    EXPECT_EQ(outputs[i].name, expected[i].at("name").get<std::string>() + "_output");
    const std::vector<double> values = as_doubles(want.view());
    EXPECT_TRUE(values_close(as_doubles(outputs[i].tensor.view()), values, kTolerance * largest_magnitude(values)));
  }
}

// Three networks in a row. The first takes pictures of any size, the others batches of small ones.
TEST(Tasks, EachStageOfMtcnnAnswersFlatArrays) {
  const nlohmann::json cases = cases_of("mtcnn");
  if (cases.empty()) GTEST_SKIP() << "no models in " << test_data() << "; set SHOAL_TEST_DATA";
  for (const auto& [prefix, shapes] :
       std::initializer_list<std::pair<const char*, std::vector<Shape>>>{{"det1", {{1, 3, 37, 32}, {1, 3, 12, 12}}},
                                                                         {"det2", {{1, 3, 24, 24}, {3, 3, 24, 24}}},
                                                                         {"det3", {{1, 3, 48, 48}, {3, 3, 48, 48}}}}) {
    Engine engine = load((test_data() / "models" / "mtcnn" / prefix).string() + "@1", shapes);
    const bool is_any_size = std::string(prefix) == "det1";
    const Predictor predictor =
        Predictor::create(engine, "", {.inputs = {{"data", DType::kFloat32, Shape::any(), {}, "NCHW"}}}).value();
    int count = 0;
    for (const auto& each : cases) {
      if (each.at("model") != prefix) continue;
      SCOPED_TRACE(each.at("case").get<std::string>());
      const Tensor input = read_npy(array_file("mtcnn", each.at("inputs")[0])).value();
      const std::vector<double> flat = Numbers(input.view()).as<double>().value();
      // The number of pictures follows from the array; a size that is open, too, must be said.
      const auto outputs = is_any_size ? predictor.predict({{"data", flat, input.shape()}}) : predictor.predict(flat);
      ASSERT_TRUE(outputs.ok()) << outputs.status().to_string();
      expect_outputs("mtcnn", each.at("outputs"), *outputs);
      ++count;
    }
    EXPECT_GE(count, is_any_size ? 1 : 3);
  }
}

TEST(Tasks, TheHeadsOfLffdAreFound) {
  const nlohmann::json cases = cases_of("lffd-head");
  if (cases.empty()) GTEST_SKIP() << "no models in " << test_data() << "; set SHOAL_TEST_DATA";
  Engine engine = load((test_data() / "models" / "lffd-head" / "lffd-head").string(), {{1, 3, 250, 500}, {1, 3, 76, 65}});
  const Predictor predictor = Predictor::create(engine, "").value();
  const std::map<std::string, float> best{{"frisbee_team_half", 0.976f}, {"hopper_x0125", 0.983f}};
  for (const auto& each : cases) {
    SCOPED_TRACE(each.at("case").get<std::string>());
    const Tensor input = read_npy(array_file("lffd-head", each.at("inputs")[0])).value();
    const auto outputs = predictor.predict({{"data", input.values<float>(), input.shape()}});
    ASSERT_TRUE(outputs.ok()) << outputs.status().to_string();
    expect_outputs("lffd-head", each.at("outputs"), *outputs);
    const auto scores = outputs->at(2).tensor.values<float>();  // of stride 8
    EXPECT_NEAR(*std::ranges::max_element(scores), best.at(each.at("case")), 5e-3f);
  }
}

TEST(Tasks, SqueezenetClassifiesPictures) {
  const nlohmann::json cases = cases_of("squeezenet11-mxnet-derived");
  if (cases.empty()) GTEST_SKIP() << "no models in " << test_data() << "; set SHOAL_TEST_DATA";
  Engine engine = load((test_data() / "models" / "squeezenet11-mxnet-derived" / "squeezenet11@0").string(),
                       {{1, 3, 224, 224}, {4, 3, 224, 224}});
  const auto classifier =
      ImageClassifier::create(engine, "", {.preprocess = preprocess_preset("imagenet-bgr-caffe").value(), .top_k = 5, .batch = 4})
          .value();
  std::vector<fs::path> files;
  std::vector<nlohmann::json> wanted;
  for (const auto& each : cases) {
    if (each.value("note", "").find("subtract mean") == std::string::npos) continue;
    files.push_back(test_data() / "images" / each.at("image").get<std::string>());
    wanted.push_back(each.at("top5"));
  }
  ASSERT_GE(files.size(), 7u);
  const auto all = classifier.classify(files);
  ASSERT_TRUE(all.ok()) << all.status().to_string();
  for (std::size_t i = 0; i < files.size(); ++i) {
    SCOPED_TRACE(files[i].filename().string());
    EXPECT_EQ((*all)[i][0].index, wanted[i][0][0].get<std::int64_t>());
    EXPECT_EQ((*all)[i][0].label, wanted[i][0][1].get<std::string>());
    for (const auto& row : wanted[i]) {
      const auto found = std::ranges::find((*all)[i], row[0].get<std::int64_t>(), &ClassScore::index);
      if (row[2].get<double>() < 0.01) continue;  // their order may differ
      ASSERT_NE(found, (*all)[i].end()) << row;
      EXPECT_NEAR(found->probability, row[2].get<double>(), kProbabilityTolerance) << row;
    }
  }
  const Classes alone = classifier.classify(Image::read(files[0]).value()).value();
  EXPECT_EQ(alone[0].index, (*all)[0][0].index);
}

TEST(Tasks, CifarsScoresGoThroughASoftmax) {
  const nlohmann::json cases = cases_of("cifar-resnet20-v1");
  if (cases.empty()) GTEST_SKIP() << "no models in " << test_data() << "; set SHOAL_TEST_DATA";
  Engine engine =
      load((test_data() / "models" / "cifar-resnet20-v1" / "cifar_resnet20_v1").string(), {{1, 3, 32, 32}, {3, 3, 32, 32}});
  const auto classifier = Classifier::create(engine, "", {.top_k = 3}).value();
  for (const auto& each : cases) {
    if (!each.contains("top_softmax")) continue;
    SCOPED_TRACE(each.at("case").get<std::string>());
    const Tensor input = read_npy(array_file("cifar-resnet20-v1", each.at("inputs")[0])).value();
    const Classes classes = classifier.classify(input.values<float>()).value().at(0);
    for (std::size_t k = 0; k < 3; ++k) {
      EXPECT_EQ(classes[k].label, each.at("top_softmax")[k][1].get<std::string>());
      EXPECT_NEAR(classes[k].probability, each.at("top_softmax")[k][2].get<double>(), 1e-4);
    }
  }
}

TEST(Tasks, LenetReadsDigits) {
  const fs::path images = test_data() / "images";
  if (!fs::exists(images)) GTEST_SKIP() << "no pictures in " << images << "; set SHOAL_TEST_DATA";
  Engine engine =
      load((test_data() / "models" / "mnist-lenet-mx05" / "mnist-lenet-0@10").string(), {{1, 1, 28, 28}, {5, 1, 28, 28}});
  const auto classifier =
      ImageClassifier::create(engine, "", {.preprocess = preprocess_preset("mnist").value(), .top_k = 1, .batch = 5}).value();
  const std::vector<fs::path> files{images / "mnist_0.jpg", images / "mnist_3.jpg", images / "mnist_4.png",
                                    images / "mnist_5.jpg", images / "mnist_7.jpg"};
  const auto all = classifier.classify(files).value();
  const char* digits[] = {"0", "3", "4", "5", "7"};
  for (std::size_t i = 0; i < files.size(); ++i) {
    EXPECT_EQ(all[i][0].label, digits[i]);
    EXPECT_GT(all[i][0].probability, 0.9999f);
  }
}

/// Runs the engine with the inputs of a network's case, whatever picture comes: they are noise, which no picture holds.
Client with_inputs(Engine& engine, const Tensors& inputs) {
  return Client(std::make_shared<shoal::test::FunctionClient>(
      engine.describe().value(), [&engine, inputs](const Tensors&, const SubmitOptions&) { return engine.run(inputs); }));
}

struct Row {
  float id, score, x0, y0, x1, y1;
};

/// MXNet's rows above the threshold, the best first.
std::vector<Row> best_rows(std::vector<Row> rows, float threshold) {
  std::erase_if(rows, [&](const Row& row) { return row.id < 0 || row.score < threshold; });
  std::ranges::stable_sort(rows, std::ranges::greater(), &Row::score);
  return rows;
}

void expect_detections(const Detections& found, const std::vector<Row>& rows, double scale_x, double scale_y,
                       const Image& image) {
  ASSERT_EQ(found.size(), rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    SCOPED_TRACE(i);
    EXPECT_EQ(found[i].index, static_cast<std::int64_t>(rows[i].id));
    EXPECT_NEAR(found[i].score, rows[i].score, 1e-4);
    const auto within = [](double value, int size) { return std::clamp(value, 0.0, static_cast<double>(size)); };
    EXPECT_NEAR(found[i].box.x0, within(rows[i].x0 * scale_x, image.width()), kPixelTolerance);
    EXPECT_NEAR(found[i].box.y0, within(rows[i].y0 * scale_y, image.height()), kPixelTolerance);
    EXPECT_NEAR(found[i].box.x1, within(rows[i].x1 * scale_x, image.width()), kPixelTolerance);
    EXPECT_NEAR(found[i].box.y1, within(rows[i].y1 * scale_y, image.height()), kPixelTolerance);
  }
}

/// A network of the data, loaded with its weights made by the rule.
struct LoadedNetwork {
  explicit LoadedNetwork(const nlohmann::json& network)
      : checkpoint(network),
        inputs(network_inputs(network, 1)),
        expected(read_arrays(network.at("stem").get<std::string>() + "-io.params", "out:").value()),
        engine(load(checkpoint.prefix(), {inputs[0].tensor.shape()})) {}
  std::span<const float> wanted(std::size_t output) const { return expected.at(output).tensor.values<float>(); }

  NetworkCheckpoint checkpoint;
  Tensors inputs, expected;
  Engine engine;
};

const Image& street() {
  static const Image image = Image::read(test_data() / "images" / "dog_bicycle_truck.jpg").value();
  return image;
}

TEST(Tasks, SsdsRowsBecomeBoxesInThePicture) {
  const nlohmann::json network = find_network("ssd300-vgg16");
  if (network.is_null()) GTEST_SKIP() << "no networks in " << networks_folder() << "; set SHOAL_TEST_DATA";
  LoadedNetwork ssd(network);
  const Client runner = with_inputs(ssd.engine, ssd.inputs);
  // The data have the first rows only. They are the best ones, so a threshold that some of them do not reach shows the same.
  std::vector<Row> rows;
  for (std::size_t i = 0; i + 6 <= ssd.wanted(0).size(); i += 6)
    rows.push_back({ssd.wanted(0)[i], ssd.wanted(0)[i + 1], ssd.wanted(0)[i + 2], ssd.wanted(0)[i + 3], ssd.wanted(0)[i + 4],
                    ssd.wanted(0)[i + 5]});
  const float threshold = (rows[rows.size() / 2].score + rows[rows.size() / 2 - 1].score) / 2;
  const std::vector<Row> best = best_rows(rows, threshold);
  ASSERT_GE(best.size(), 5u);
  const auto detector =
      ObjectDetector::create(runner, "", {.preprocess = preprocess_preset("mxnet-ssd").value(), .threshold = threshold}).value();
  const auto found = detector.detect(street());
  ASSERT_TRUE(found.ok()) << found.status().to_string();
  expect_detections(*found, best, street().width(), street().height(), street());
}

TEST(Tasks, ThePictureItselfRunsThroughSsd) {
  const nlohmann::json network = find_network("ssd300-vgg16");
  if (network.is_null()) GTEST_SKIP() << "no networks in " << networks_folder() << "; set SHOAL_TEST_DATA";
  LoadedNetwork ssd(network);
  const Preprocess preprocess = preprocess_preset("mxnet-ssd").value();
  const auto detector = ObjectDetector::create(ssd.engine, "", {.preprocess = preprocess, .threshold = 0}).value();
  const auto found = detector.detect(street());
  ASSERT_TRUE(found.ok()) << found.status().to_string();
  const auto drawn = draw_detections(street(), std::span(*found).first(std::min<std::size_t>(found->size(), 20)));
  EXPECT_TRUE(drawn.ok());
  // A classifier's model is no detector, and a detector none of one list of classes.
  EXPECT_EQ(ImageClassifier::create(ssd.engine, "", {.preprocess = preprocess}).status().code(), StatusCode::kFailedPrecondition);
}

TEST(Tasks, YolosThreeOutputsBecomeBoxesInThePicture) {
  const nlohmann::json network = find_network("yolov3-darknet53");
  if (network.is_null()) GTEST_SKIP() << "no networks in " << networks_folder() << "; set SHOAL_TEST_DATA";
  LoadedNetwork yolo(network);
  const Client runner = with_inputs(yolo.engine, yolo.inputs);
  std::vector<Row> rows;
  for (std::size_t i = 0; i < yolo.wanted(0).size(); ++i) {
    const auto box = yolo.wanted(2).subspan(4 * i, 4);
    rows.push_back({yolo.wanted(0)[i], yolo.wanted(1)[i], box[0], box[1], box[2], box[3]});
  }
  const std::vector<Row> best = best_rows(rows, 0);
  ASSERT_GE(best.size(), 5u);
  const auto detector =
      ObjectDetector::create(runner, "", {.preprocess = preprocess_preset("gluoncv-detector").value(), .threshold = 0}).value();
  const auto found = detector.detect(street());
  ASSERT_TRUE(found.ok()) << found.status().to_string();
  std::vector<Row> within = best;
  const double scale_x = street().width() / 320.0, scale_y = street().height() / 320.0;
  std::erase_if(within, [&](const Row& row) { return row.x1 <= 0 || row.y1 <= 0 || row.x0 >= 320 || row.y0 >= 320; });
  expect_detections(*found, within, scale_x, scale_y, street());
}

}  // namespace
}  // namespace shoal::testing
