// A program of release 0.3. It is not changed when the interface grows.
//   program MODEL   a classifier of 64 x 64 pictures; the daemon of $SHOAL_DIR has the model "echo"
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <future>
#include <string>
#include <vector>

#include "shoal/classifier.hpp"
#include "shoal/completion_queue.hpp"
#include "shoal/engine.hpp"
#include "shoal/image_classifier.hpp"
#include "shoal/object_detector.hpp"
#include "shoal/pool.hpp"
#include "shoal/predictor.hpp"

namespace {

using namespace std::chrono_literals;

void expect(bool is_true, const char* what) {
  if (is_true) return;
  std::printf("wrong: %s\n", what);
  std::exit(1);
}

shoal::Tensor numbers(shoal::Client client) {
  shoal::Tensor tensor = client.loan(shoal::DType::kFloat32, {1, 4}).value();
  for (int i = 0; i < 4; ++i) tensor.values<float>()[static_cast<std::size_t>(i)] = static_cast<float>(i);
  return tensor;
}

void use_client(shoal::Client client, const char* name) {
  const shoal::Tensor x = numbers(client);
  // Behind each struct of options lies what an older library or a newer one would take for a member.
  struct {
    shoal::SubmitOptions options{.timeout = 10s};
    std::array<unsigned char, 256> garbage;
  } submit;
  submit.garbage.fill(0xfe);
  const shoal::Tensors y = client.predict(name, {{"data", x}}, submit.options).value();
  expect(y.size() == 1 && y[0].tensor.values<float>()[3] == 3, "predict");

  const shoal::Model model = client.model(name).value();
  const shoal::ModelInfo info = client.describe(name).value();
  expect(info.name == model.name() && info.inputs.size() == 1 && info.version == model.info()->version, "describe");

  shoal::CompletionQueue queue(client);
  std::vector<shoal::Request> requests(8, shoal::Request(model));
  for (std::size_t i = 0; i < requests.size(); ++i) {
    requests[i] = shoal::Request(model);
    expect(requests[i].set_input("data", x).ok(), "set_input");
    expect(queue.submit(requests[i], i).ok(), "submit");
  }
  std::array<shoal::Completion, 3> completions;
  std::size_t tags = 0;
  while (const std::size_t count = queue.next(completions, std::chrono::steady_clock::now() + 20s)) {
    for (std::size_t i = 0; i < count; ++i) {
      const shoal::Outcome& outcome = completions[i].request.outcome();
      expect(outcome.outputs.ok() && outcome.ran == shoal::Ran::kYes && outcome.attempts == 1, "outcome");
      tags += completions[i].tag;
    }
  }
  expect(tags == 28, "completions");

  std::promise<float> answered;
  const shoal::Prediction prediction = model.submit({{"data", x}}, submit.options);
  expect(prediction
             .then([&](const shoal::Outcome& outcome) {
               const shoal::Outcome copy = outcome;
               answered.set_value(copy.outputs.value()[0].tensor.values<float>()[2]);
             })
             .ok(),
         "then");
  expect(answered.get_future().get() == 2, "callback");

  const auto predictor = shoal::Predictor::create(client, name, {.inputs = {{"data", shoal::DType::kFloat32, {-1, 4}}}});
  expect(predictor.ok(), predictor.status().message().c_str());
  expect(predictor->predict(std::vector<int>{1, 2, 3, 4}).value()[0].tensor.values<float>()[1] == 2, "flat array");
}

void classify(const std::string& path) {
  struct {
    shoal::EngineOptions options{.device = "cpu", .threads = 1, .tuning_ms = 0};
    std::array<unsigned char, 256> garbage;
  } engine_options;
  engine_options.garbage.fill(0xfe);
  shoal::Engine engine = shoal::Engine::load(path, engine_options.options).value();
  const shoal::ModelInfo info = engine.describe().value();
  expect(info.preprocess && info.preprocess->order == "RGB" && info.preprocess->mean.size() == 3, "preprocess");
  const shoal::Preprocess preprocess = *info.preprocess;
  struct {
    shoal::ImageClassifierOptions options;
    std::array<unsigned char, 256> garbage;
  } given{{.preprocess = preprocess, .top_k = 2, .batch = 2, .labels = info.labels}, {}};
  given.garbage.fill(0xfe);
  const auto classifier = shoal::ImageClassifier::create(engine, "", given.options).value();
  const std::vector<shoal::Image> pictures(3, shoal::Image::from_rgb(64, 64, std::vector<std::uint8_t>(64 * 64 * 3, 90)).value());
  const std::vector<shoal::Classes> classes = classifier.classify(pictures, {.timeout = 20s}).value();
  expect(classes.size() == 3 && classes[2].size() == 2 && classes[2][0].probability == classes[0][0].probability, "classes");
  expect(classifier.preprocess() == preprocess, "the preprocessing that was given");
  shoal::ObjectDetectorOptions wrong{.detections = {"none"}};
  expect(shoal::ObjectDetector::create(engine, "", wrong).status().code() == shoal::StatusCode::kNotFound, "ObjectDetector");
}

void use_pool() {
  struct {
    shoal::PoolOptions options{.directory = std::getenv("SHOAL_DIR"), .in_flight_limit = 64};
    std::array<unsigned char, 256> garbage;
  } given;
  given.garbage.fill(0xfe);
  shoal::Pool pool = shoal::Pool::connect(given.options).value();
  use_client(pool, "echo");
  const shoal::ModelChange change = pool.reload("echo", {}, true).value();
  expect(change.outcome == "reloaded" && change.workers == 1, "reload");
  expect(pool.list().value() == std::vector<std::string>{"echo"}, "list");
  expect(pool.usage().inputs.copied == 0, "usage");
}

}  // namespace

int main(int argc, char** argv) {
  expect(argc == 2, "usage: program MODEL");
  try {
    use_client(shoal::Engine::load("builtin:identity").value(), "builtin:identity");
  } catch (const shoal::Error& error) {
    std::printf("wrong: an Engine: %s\n", error.what());
    return 1;
  }
  try {
    use_pool();
    classify(argv[1]);
  } catch (const shoal::Error& error) {
    std::printf("wrong: %s\n", error.what());
    return 1;
  }
  std::puts("right");
  return 0;
}
