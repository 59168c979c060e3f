// Scalars, empty tensors, and outputs whose size depends on data, through the pool.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <set>

#include "shoal/engine.hpp"
#include "tests/support/checkpoint.hpp"
#include "tests/support/pool_fixture.hpp"
#include "tests/support/scratch_directory.hpp"

namespace shoal::test {
namespace {

/// Inputs: data (n, 3), a scalar, and more rows (m, 3). Outputs: the rows of data times the scalar, then the other rows; and the
/// scalar doubled.
constexpr const char* kScaledRows = R"json({"nodes": [
  {"op": "null", "name": "data", "inputs": []}, {"op": "null", "name": "scale", "inputs": []},
  {"op": "null", "name": "more", "inputs": []},
  {"op": "broadcast_mul", "name": "scaled", "inputs": [[0, 0, 0], [1, 0, 0]]},
  {"op": "Concat", "name": "joined", "attrs": {"dim": "0", "num_args": "2"}, "inputs": [[3, 0, 0], [2, 0, 0]]},
  {"op": "_mul_scalar", "name": "twice", "attrs": {"scalar": "2"}, "inputs": [[1, 0, 0]]}],
 "arg_nodes": [0, 1, 2], "node_row_ptr": [0, 1, 2, 3, 4, 5, 6], "heads": [[4, 0, 0], [5, 0, 0]],
 "attrs": {"mxnet_version": ["int", 10901], "is_np_shape": ["int", 1]}})json";

class RanksTest : public testing::Test {
 protected:
  RanksTest() {
    write_graph(models_.path("rows"), "rows", kScaledRows,
                R"([{name = "data", shape = [-1, 3]}, {name = "scale", shape = []}, {name = "more", shape = [-1, 3]}])");
  }
  struct Case {
    std::int64_t rows, more;
    float scale;
  };
  static Tensors inputs_of(const Case& c) {
    return {{"data", counting({c.rows, 3})}, {"scale", counting({}, c.scale)}, {"more", counting({c.more, 3}, 100)}};
  }
  static void expect_right(const Tensors& outputs, const Case& c) {
    ASSERT_EQ(outputs.size(), 2u);
    const Tensor &joined = outputs[0].tensor, &twice = outputs[1].tensor;
    ASSERT_EQ(joined.shape(), (Shape{c.rows + c.more, 3}));
    const auto values = joined.values<float>();
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto own = static_cast<std::size_t>(c.rows * 3);
      EXPECT_EQ(values[i], i < own ? static_cast<float>(i) * c.scale : 100 + static_cast<float>(i - own)) << i;
    }
    ASSERT_EQ(twice.shape(), Shape());
    EXPECT_EQ(twice.values<float>()[0], 2 * c.scale);
  }
  static constexpr Case kCases[] = {{2, 1, 3}, {0, 2, -1}, {3, 0, 0.5f}, {0, 0, 7}, {1, 1, 0}};

  ScratchDirectory models_;
};

TEST_F(RanksTest, ScalarsAndEmptyTensorsPassTheEngine) {
  for (const char* const device : {"cpu", "cpu-reference"}) {
    Engine engine = Engine::load(models_.path("rows"), {.device = device}).value();
    const ModelInfo info = engine.describe("").value();
    EXPECT_EQ(info.inputs[1].shape, Shape());
    EXPECT_EQ(info.outputs[0].shape, (Shape{-1, 3}));
    EXPECT_EQ(info.outputs[1].shape, Shape());
    for (const Case& c : kCases) {
      const auto outputs = engine.run(inputs_of(c));
      ASSERT_TRUE(outputs.ok()) << device << ": " << outputs.status().to_string();
      expect_right(*outputs, c);
    }
  }
}

TEST_F(RanksTest, ScalarsAndEmptyTensorsPassThePool) {
  const DaemonFixture daemon({.models = {"rows=" + models_.path("rows") + ",workers=2,contexts=2"}});
  Pool pool = daemon.connect();
  const ModelInfo info = pool.describe("rows").value();
  EXPECT_EQ(info.inputs[1].shape, Shape());
  std::vector<Prediction> batch;
  for (int round = 0; round < 20; ++round) {
    for (const Case& c : kCases) batch.push_back(pool.submit("rows", inputs_of(c)));
  }
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const Result<Tensors>& outputs = batch[i].get();
    ASSERT_TRUE(outputs.ok()) << outputs.status().to_string();
    expect_right(*outputs, kCases[i % std::size(kCases)]);
  }
  const auto refused = pool.predict("rows", {{"data", counting({2, 3})}, {"scale", counting({1})}, {"more", counting({1, 3})}});
  EXPECT_NE(refused.status().message().find("'scale' has shape 1 (wants scalar)"), std::string::npos)
      << refused.status().to_string();
}

TEST_F(RanksTest, AnEmptyBatchOfANetworkGivesEmptyAnswers) {
  const char* const source = std::getenv("SHOAL_SOURCE_DIR");
  const std::string model = std::string(source ? source : ".") + "/tools/shapes/model";
  Engine engine = Engine::load(model).value();
  const auto outputs = engine.run({{"data", counting({0, 3, 64, 64})}});
  ASSERT_TRUE(outputs.ok()) << outputs.status().to_string();
  EXPECT_EQ(outputs->front().tensor.shape()[0], 0);
  EXPECT_EQ(outputs->front().tensor.size_bytes(), 0u);
}

/// Input: boxes (n, 5). Outputs: those that remain, their numbers doubled, the sum of each column, and the positions of the
/// numbers of data that are not 0. The first, second and last have sizes that depend on data.
constexpr const char* kBoxes = R"json({"nodes": [
  {"op": "null", "name": "data", "inputs": []},
  {"op": "_dynamic_nms", "name": "kept", "attrs": {"scalar": "0.5"}, "inputs": [[0, 0, 0]]},
  {"op": "_mul_scalar", "name": "twice", "attrs": {"scalar": "2"}, "inputs": [[1, 0, 0]]},
  {"op": "sum", "name": "sums", "attrs": {"axis": "0"}, "inputs": [[1, 0, 0]]},
  {"op": "_dynamic_nonzero", "name": "found", "inputs": [[0, 0, 0]]}],
 "arg_nodes": [0], "node_row_ptr": [0, 1, 2, 3, 4, 5], "heads": [[1, 0, 0], [2, 0, 0], [3, 0, 0], [4, 0, 0]],
 "attrs": {"mxnet_version": ["int", 10901]}})json";

/// Boxes beside each other, some of them twice.
Tensor boxes(std::int64_t count, unsigned seed) {
  Tensor tensor = Tensor::create(DType::kFloat32, {count, 5}).value();
  std::mt19937 random(seed);
  const auto values = tensor.values<float>();
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    const auto corner = static_cast<float>(random() % 6 * 10);
    const float box[] = {static_cast<float>(random() % 1000) / 1000, corner, corner, corner + 9, corner + 9};
    std::ranges::copy(box, values.begin() + static_cast<std::ptrdiff_t>(5 * i));
  }
  return tensor;
}

class DynamicOutputs : public testing::Test {
 protected:
  std::string write_model() const {
    write_graph(models_.path("boxes"), "boxes", kBoxes, "[{name = \"data\", shape = [\"0..100\", 5]}]");
    return models_.path("boxes");
  }

  const ScratchDirectory models_;
  DaemonFixture daemon_{{.models = {"boxes=" + write_model() + ",workers=3,contexts=2"}, .worker = "shoal-worker-faulty"}};
  Pool pool_ = daemon_.connect();
};

TEST_F(DynamicOutputs, AreDescribedWithARange) {
  const ModelInfo info = pool_.describe("boxes").value();
  EXPECT_EQ(info.outputs[0].shape, (Shape{-1, 5}));
  EXPECT_EQ(info.outputs[0].ranges, (std::vector<DimRange>{{0, 100}, {}}));
  EXPECT_EQ(info.outputs[2].shape, Shape{5});
  EXPECT_TRUE(info.outputs[2].ranges.empty());
  EXPECT_EQ(info.outputs[3].dtype, DType::kInt64);
  EXPECT_EQ(info.outputs[3].ranges, (std::vector<DimRange>{{0, 500}, {}}));
}

TEST_F(DynamicOutputs, HaveTheSameBitsInAllWorkers) {
  constexpr int kRounds = 30, kSeeds = 4;
  std::vector<Prediction> asked;
  for (int i = 0; i < kRounds * kSeeds; ++i)
    asked.push_back(pool_.submit("boxes", {{"data", boxes(40, static_cast<unsigned>(i % kSeeds))}}));
  std::set<std::int64_t> lengths;
  for (std::size_t i = 0; i < asked.size(); ++i) {
    const Result<Tensors>& outputs = asked[i].get();
    ASSERT_TRUE(outputs.ok()) << outputs.status().to_string();
    const Tensors& first = *asked[i % kSeeds].get();
    for (std::size_t k = 0; k < first.size(); ++k) {
      const TensorView got = (*outputs)[k].tensor.view(), want = first[k].tensor.view();
      ASSERT_EQ(got.shape, want.shape);
      EXPECT_TRUE(std::ranges::equal(got.bytes(), want.bytes())) << i << ", output " << k;
    }
    const Tensor &kept = first[0].tensor, &twice = first[1].tensor;
    lengths.insert(kept.shape()[0]);
    ASSERT_EQ(twice.shape(), kept.shape());
    for (std::size_t k = 0; k < kept.values<float>().size(); ++k)
      EXPECT_EQ(twice.values<float>()[k], 2 * kept.values<float>()[k]);
  }
  EXPECT_LE(*lengths.rbegin(), 6) << "there are six places";
  for (const auto& worker : daemon_.model("boxes").at("workers")) {
    std::int64_t completed = 0;
    for (const auto& lane : worker.at("lanes")) completed += lane.at("completed").get<std::int64_t>();
    EXPECT_GT(completed, 0);
  }
}

TEST_F(DynamicOutputs, MayBeEmptyOrAsLargeAsTheyCan) {
  const auto none = pool_.predict("boxes", {{"data", boxes(0, 0)}}).value();
  EXPECT_EQ(none[0].tensor.shape(), (Shape{0, 5}));
  EXPECT_EQ(none[3].tensor.shape(), (Shape{0, 2}));
  Tensor ones = Tensor::create(DType::kFloat32, {100, 5}).value();
  std::ranges::fill(ones.values<float>(), 1.f);
  const auto all = pool_.predict("boxes", {{"data", ones}}).value();
  EXPECT_EQ(all[0].tensor.shape(), (Shape{100, 5}));
  ASSERT_EQ(all[3].tensor.shape(), (Shape{500, 2}));
  EXPECT_EQ(all[3].tensor.values<std::int64_t>()[999], 4);
}

}  // namespace
}  // namespace shoal::test
