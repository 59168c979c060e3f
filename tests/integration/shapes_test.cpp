// Many input shapes for one model: right answers, bounded memory, and no request waits for another shape's compilation.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <deque>
#include <random>
#include <thread>

#include "shoal/engine.hpp"
#include "tests/support/pool_fixture.hpp"
#include "tests/support/process_sample.hpp"

namespace shoal::test {
namespace {

constexpr std::uint64_t kMb = 1 << 20;
constexpr int kCacheMb = 4;  // some ten programs of this model

std::string model_directory() {
  const char* source = std::getenv("SHOAL_SOURCE_DIR");
  return std::string(source ? source : ".") + "/tools/shapes/model";
}

Tensor picture(std::int64_t height, std::int64_t width, unsigned seed = 1) {
  Tensor tensor = Tensor::create(DType::kFloat32, Shape{1, 3, height, width}).value();
  std::mt19937 generator(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::ranges::generate(tensor.values<float>(), [&] { return uniform(generator); });
  return tensor;
}

/// The n-th of many pictures of different sizes.
Tensor other_picture(int n) { return picture(33 + n % 25, 33 + n / 25, static_cast<unsigned>(n)); }

bool same_bits(const Tensors& a, const Tensors& b) {
  return std::ranges::equal(a[0].tensor.view().bytes(), b[0].tensor.view().bytes());
}

class ShapesTest : public testing::Test {
 protected:
  nlohmann::json programs() const { return daemon_.model("shapes")["workers"][0]["programs"]; }
  Result<Tensors> ask(const Tensor& tensor) { return pool_.predict("shapes", {{"data", tensor}}); }

  DaemonFixture daemon_{{.models = {"shapes=" + model_directory() + ",contexts=2,timeout_ms=0,cache_mb=" +
                                    std::to_string(kCacheMb) + ",input=data:?x3x32..128x32..128,shape=data:1x3x64x64"}}};
  Pool pool_ = daemon_.connect();
};

TEST_F(ShapesTest, AStreamOfShapesIsAnsweredRightInBoundedMemory) {
  const int count = std::getenv("SHOAL_TEST_LONG") ? 500 : 100;
  const pid_t worker = daemon_.workers("shapes").at(0);
  Engine reference = Engine::load(model_directory(), {.device = "cpu-reference",
                                                      .shapes = {{{"data", DType::kFloat32, Shape{1, 3, 64, 64}}},
                                                                 {{"data", DType::kFloat32, Shape{1, 3, 33, 33}}}}})
                         .value();
  const Tensor cached = picture(64, 64);
  const Tensors answer = ask(cached).value();

  std::atomic<bool> is_over{false};
  std::atomic<int> asked{0}, wrong{0};
  std::jthread steady([&] {
    for (; !is_over; ++asked) {
      const auto outputs = ask(cached);
      if (!outputs.ok() || !same_bits(*outputs, answer)) ++wrong;
    }
  });
  std::vector<Point> memory;
  std::deque<std::pair<int, Prediction>> under_way;
  const auto check_oldest = [&] {
    const auto [n, prediction] = std::move(under_way.front());
    under_way.pop_front();
    const Result<Tensors>& outputs = prediction.get();
    ASSERT_TRUE(outputs.ok()) << outputs.status().to_string();
    const Tensors want = reference.run({{"data", other_picture(n)}}).value();
    const auto got = outputs->front().tensor.values<float>(), expected = want.front().tensor.values<float>();
    ASSERT_EQ(got.size(), expected.size());
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-5) << "shape " << n;
  };
  for (int n = 0; n < count; ++n) {
    if (under_way.size() == 4) check_oldest();
    under_way.emplace_back(n, pool_.submit("shapes", {{"data", other_picture(n)}}));
    if (n > 0 && n % (count / 10) == 0)
      memory.push_back({static_cast<double>(n), static_cast<double>(sample_process(worker)->private_bytes)});
    EXPECT_LE(programs()["cached_bytes"], kCacheMb * kMb);
  }
  while (!under_way.empty()) check_oldest();
  is_over = true;
  steady.join();

  const nlohmann::json end = programs();
  std::printf("%d shapes, %d requests of a cached one meanwhile; programs: %s; private memory %.1f to %.1f MB\n", count,
              asked.load(), end.dump().c_str(), memory.front().y / 1e6, memory.back().y / 1e6);
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(asked, count);
  EXPECT_EQ(end["compiled"], count);
  EXPECT_EQ(end["pinned"], 1);
  EXPECT_GT(end["evicted"], count / 2);
  EXPECT_EQ(end["failed"], 0);
  EXPECT_GE(end["hits"], asked.load());
  EXPECT_LT(memory.back().y - memory[1].y, 6e6) << "the cache was full by then, and the worker went on growing";
  EXPECT_EQ(daemon_.workers("shapes").at(0), worker);
}

TEST_F(ShapesTest, OneCompilationServesAllFirstRequestsOfAShape) {
  std::vector<Prediction> predictions;
  for (int i = 0; i < 16; ++i) predictions.push_back(pool_.submit("shapes", {{"data", picture(48, 40)}}));
  const Tensors first = predictions[0].get().value();
  for (const Prediction& prediction : predictions) EXPECT_TRUE(same_bits(prediction.get().value(), first));
  EXPECT_EQ(programs()["compiled"], 1);
}

TEST(SeveralWorkers, CompileAShapeOnceEach) {
  DaemonFixture daemon(
      {.models = {"shapes=" + model_directory() + ",workers=3,contexts=2,timeout_ms=0,input=data:?x3x32..128x32..128"}});
  ASSERT_TRUE(daemon.wait_until_ready());
  Pool pool = daemon.connect();
  std::vector<Prediction> predictions;
  for (int i = 0; i < 48; ++i) predictions.push_back(pool.submit("shapes", {{"data", picture(48, 40)}}));
  const Tensors first = predictions[0].get().value();
  for (const Prediction& prediction : predictions) EXPECT_TRUE(same_bits(prediction.get().value(), first));
  int workers = 0;
  const nlohmann::json model = daemon.model("shapes");
  for (const auto& worker : model["workers"]) {
    EXPECT_LE(worker["programs"]["compiled"], 1) << worker;
    workers += worker["programs"]["compiled"] == 1;
  }
  EXPECT_GT(workers, 1) << "the requests were to go to several";
}

TEST_F(ShapesTest, ACachedShapeIsAnsweredWhileManyNewOnesAreCompiled) {
  const Tensor cached = picture(64, 64);
  ASSERT_TRUE(ask(cached).ok());
  std::vector<Prediction> predictions;
  for (int n = 0; n < 60; ++n) predictions.push_back(pool_.submit("shapes", {{"data", other_picture(n)}}));
  ASSERT_TRUE(ask(cached).ok());
  const auto waiting = std::ranges::count_if(predictions, [](const Prediction& prediction) { return !prediction.ready(); });
  EXPECT_GT(waiting, 20) << "it waited for what was asked before it";
  for (const Prediction& prediction : predictions) EXPECT_TRUE(prediction.get().ok());
}

TEST_F(ShapesTest, AKilledWorkersParkedRequestsAreAnsweredByTheNext) {
  std::vector<Prediction> predictions;
  for (int n = 0; n < 40; ++n) predictions.push_back(pool_.submit("shapes", {{"data", other_picture(n)}}));
  ASSERT_TRUE(predictions[0].get().ok());
  ::kill(daemon_.workers("shapes").at(0), SIGKILL);
  for (const Prediction& prediction : predictions) EXPECT_TRUE(prediction.get().ok()) << prediction.get().status().to_string();
  EXPECT_EQ(daemon_.model("shapes")["counts"]["ok"], 40);
}

TEST_F(ShapesTest, ASizeOutsideItsRangeIsRefusedByName) {
  for (const Tensor& tensor : {picture(31, 64), picture(64, 129)}) {
    const Status status = ask(tensor).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find("'data'"), std::string::npos) << status.message();
    EXPECT_NE(status.message().find("32..128"), std::string::npos) << status.message();
  }
  EXPECT_TRUE(ask(picture(32, 128)).ok());
  const ModelInfo info = pool_.describe("shapes").value();
  EXPECT_EQ(info.inputs[0].ranges.at(2), (DimRange{32, 128}));
}

}  // namespace
}  // namespace shoal::test
