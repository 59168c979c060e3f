// The cpu device, with all its fusing, layouts and writing in place, against the reference device.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/worker/exec/device_networks.hpp"
#include "tests/unit/worker/exec/graph_builder.hpp"
#include "worker/exec/backend.hpp"
#include "worker/exec/model.hpp"
#include "worker/exec/planned_program.hpp"
#include "worker/ops/activation.hpp"
#include "worker/ops/arithmetic.hpp"
#include "worker/ops/softmax.hpp"
#include "worker/passes/infer.hpp"

namespace shoal::worker {
namespace {

using testing::GraphBuilder;
using testing::kInfinity;
using testing::kNan;
using testing::load;
using testing::spec;

class Devices : public ::testing::TestWithParam<testing::NetworkCase> {};
INSTANTIATE_TEST_SUITE_P(Networks, Devices, ::testing::ValuesIn(testing::device_networks()),
                         [](const auto& info) { return std::string(info.param.name); });

void expect_equal_answers(const Graph& graph, const Shape& shape) {
  SCOPED_TRACE(shape.to_string());
  const std::vector<TensorSpec> inputs = {spec("data", shape)};
  const auto fast = load(graph, inputs), slow = load(graph, inputs, "cpu-reference");
  Context fast_context, slow_context;
  const auto program = fast->program(inputs).value();
  const auto got = testing::run(*program, fast_context), want = testing::run(**slow->program(inputs), slow_context);
  EXPECT_TRUE(testing::alike(got, want));
  EXPECT_TRUE(testing::same_bits(got, testing::run(*program, fast_context))) << "a second run differs";

  const auto unfused = load(graph, inputs, "cpu", 1, /*fuse=*/false);
  Context unfused_context;
  const auto apart = testing::run(**unfused->program(inputs), unfused_context);
  EXPECT_TRUE(testing::alike(got, apart)) << "the unfused form";
}

TEST_P(Devices, AnswerTheSameForOneAndForThree) {
  GraphBuilder builder;
  GetParam().build(builder);
  expect_equal_answers(builder.graph(), GetParam().shape);
  if (std::string(GetParam().name) == "ResidualThatIsConstant") return;  // its shape is fixed
  Shape three = GetParam().shape;
  three[0] = 3;
  expect_equal_answers(builder.graph(), three);
}

TEST_P(Devices, FuseWhatTheyCan) {
  GraphBuilder builder;
  GetParam().build(builder);
  const std::vector<TensorSpec> inputs = {spec("data", GetParam().shape)};
  const auto model = load(builder.graph(), inputs);
  EXPECT_LE((*model->program(inputs))->step_count(), static_cast<std::size_t>(GetParam().steps));
}

std::unique_ptr<Model> load_channels_last(const Graph& graph, const std::vector<TensorSpec>& inputs, int threads = 1) {
  return Model::load(graph, {.threads = threads, .input_sets = {inputs}, .choices = Choices{.layout = "channels_last"}}).value();
}

TEST_P(Devices, AnswerTheSameWithChannelsLast) {
  GraphBuilder builder;
  GetParam().build(builder);
  Shape shape = GetParam().shape;
  for (const std::int64_t batch : {1, 3}) {
    if (batch > 1 && std::string(GetParam().name) == "ResidualThatIsConstant") break;  // its shape is fixed
    shape[0] = batch;
    const std::vector<TensorSpec> inputs = {spec("data", shape)};
    const auto fast = load_channels_last(builder.graph(), inputs), slow = load(builder.graph(), inputs, "cpu-reference");
    Context fast_context, slow_context;
    const auto program = fast->program(inputs).value();
    const auto got = testing::run(*program, fast_context);
    EXPECT_TRUE(testing::alike(got, testing::run(**slow->program(inputs), slow_context))) << shape.to_string();
    EXPECT_TRUE(testing::same_bits(got, testing::run(*program, fast_context))) << "a second run differs";
  }
}

/// As in MXNet, whose sums carry it: a row with NaN or infinity in it, or of minus infinity alone, is NaN from end to end. Rows
/// beside it are not touched, and minus infinity among numbers is a probability of 0.
TEST(Devices, SoftmaxOfARowThatIsNotFiniteIsNan) {
  struct Case {
    Shape shape;
    std::size_t size, inner;  // of a row, and how far its elements lie apart
    SoftmaxAttributes attributes;
  };
  for (const Case& one :
       {Case{{6, 37}, 37, 1, {}}, Case{{6, 7, 5, 3}, 7, 15, {.axis = 1}}, Case{{6, 5, 9}, 45, 1, {.flatten_rest = true}}}) {
    const std::size_t size = one.size, inner = one.inner;
    for (const SoftmaxKind kind : {SoftmaxKind::kSoftmax, SoftmaxKind::kLogSoftmax}) {
      GraphBuilder b;
      SoftmaxAttributes attributes = one.attributes;
      attributes.kind = kind;
      b.output(b.node("Softmax", {b.input("data")}, attributes));
      Tensor data = testing::noise(one.shape);
      const auto element = [&](std::size_t row, std::size_t i) -> float& {  // the first row of each image
        return data.values<float>()[row * size * inner + i * inner];
      };
      element(1, 0) = element(2, size - 1) = kNan;
      element(3, size / 2) = kInfinity;
      for (std::size_t i = 0; i < size; ++i) element(4, i) = -kInfinity;
      element(5, 1) = -kInfinity;
      for (const char* device : {"cpu-reference", "cpu"}) {
        const Tensor output = testing::answer(b.graph(), {data}, device)[0];
        const auto got = output.values<float>();
        for (std::size_t at = 0; at < got.size(); ++at) {
          const std::size_t row = at / (size * inner), i = at / inner % size;
          const bool is_bad = row >= 1 && row <= 4 && at % inner == 0;
          ASSERT_EQ(std::isnan(got[at]), is_bad)
              << device << ", " << one.shape.to_string() << ", row " << row << ", element " << i;
          const float none = kind == SoftmaxKind::kSoftmax ? 0 : -kInfinity;
          if (row == 5 && i == 1 && at % inner == 0) {
            ASSERT_EQ(got[at], none) << device << ", " << one.shape.to_string();
          }
        }
      }
    }
  }
}

TEST(Devices, BatchesLargerThanTheCacheAnswerAsImages) {
  GraphBuilder b;
  ValueId x = b.activation(b.conv(b.input("data"), 3, 32, 3));
  x = b.add(x, b.batch_norm(b.conv(x, 32, 32, 3, 1, /*group=*/32), 32));
  for (int i = 0; i < 3; ++i) {  // of which the last run for the whole batch
    const std::int64_t channels = 32 << i;
    x = b.concat({b.activation(b.conv(x, channels, channels, 1)), b.activation(b.conv(x, channels, channels, 3))});
    x = b.pool(x, {.kernel = {2, 2}, .stride = {2, 2}, .pad = {0, 0}});
    if (i == 0) b.output(b.add(x, x));
  }
  b.output(x);
  b.output(b.fully_connected(b.global_average(x), 256, 10));
  expect_equal_answers(b.graph(), {2, 3, 96, 96});
}

TEST(Devices, ImagesOfABatchShareWhatAPlanPacksForItself) {
  GraphBuilder b;
  ValueId x = b.activation(b.conv(b.input("data"), 3, 32, 3));
  for (int i = 0; i < 2; ++i) {
    x = b.node("LeakyReLU", {x, b.constant({32})}, LeakyAttributes{.kind = LeakyKind::kPrelu});
    x = b.concat({b.conv(x, 32, 16, 1), b.conv(x, 32, 16, 3)});
  }
  b.output(b.global_average(b.conv(x, 32, 32, 1)));
  const auto backend = make_backends({}).value().front();
  const auto compile = [&](std::int64_t batch, WeightStore& weights, const char* layout) {
    Graph graph = b.graph();
    EXPECT_TRUE(infer(graph, std::vector{spec("data", {batch, 3, 96, 96})}).ok());
    return backend->prepare(graph, weights, {.layout = layout}).value();
  };
  WeightStore weights{WeightIdentity{}};
  (void)compile(1, weights, "blocked");
  ASSERT_TRUE(weights.seal().ok());
  const Plan plan = compile(4, weights, "channels_last");  // the slopes are packed otherwise there
  ASSERT_FALSE(plan.privates.empty());
  std::set<std::pair<std::string, WeightForm>> different;
  for (const Plan::Private& constant : plan.privates) different.emplace(constant.key, constant.form);
  EXPECT_EQ(plan.privates.size(), different.size());
}

TEST(Devices, SlopesPerImageAreNotSplit) {
  GraphBuilder b;
  const ValueId x = b.conv(b.conv(b.input("data"), 3, 32, 3), 32, 32, 3, 1, /*group=*/32);
  const ValueId y = b.node("LeakyReLU", {x, b.constant({2})}, LeakyAttributes{.kind = LeakyKind::kPrelu});
  b.output(b.pool(b.activation(b.conv(y, 32, 32, 1)), {.kernel = {2, 2}, .stride = {2, 2}, .pad = {0, 0}}));
  expect_equal_answers(b.graph(), {2, 3, 96, 96});
}

TEST(Devices, OperandsWithoutABatchAxisAreNotSplit) {
  GraphBuilder b;
  // As many channels as images: {4, 4, 96, 96} plus {4, 96, 96}, which is laid along the channels.
  const ValueId x = b.conv(b.input("data"), 4, 4, 3, 1, /*group=*/4), y = b.input("rows");
  const ValueId sum = b.binary(BinaryKind::kAdd, b.activation(x), b.activation(y), /*broadcast=*/true);
  b.output(b.pool(b.activation(b.conv(sum, 4, 32, 1)), {.kernel = {2, 2}, .stride = {2, 2}, .pad = {0, 0}}));
  const std::vector<TensorSpec> inputs = {spec("data", {4, 4, 96, 96}), spec("rows", {4, 96, 96})};
  const auto fast = load(b.graph(), inputs), slow = load(b.graph(), inputs, "cpu-reference");
  Context fast_context, slow_context;
  const auto got = testing::run(**fast->program(inputs), fast_context),
             want = testing::run(**slow->program(inputs), slow_context);
  EXPECT_TRUE(testing::alike(got, want));
}

TEST(Devices, ConcatenationsInLargeBatchesCostNoStep) {
  GraphBuilder b;
  ValueId x = b.activation(b.conv(b.input("data"), 3, 32, 3));
  for (int i = 0; i < 2; ++i) x = b.concat({b.conv(x, 32, 16, 1), b.conv(x, 32, 16, 3)});
  b.output(b.global_average(b.conv(x, 32, 32, 1)));
  const std::vector<TensorSpec> inputs = {spec("data", {4, 3, 96, 96})};
  const auto model = load(b.graph(), inputs);
  EXPECT_LE((*model->program(inputs))->step_count(), 4U * 6 + 1);  // six convolutions per image, one mean
}

TEST(Devices, AChainOfConcatenationsWithChannelsLastCopiesOnlyWhatIsAdded) {
  GraphBuilder b;
  ValueId x = b.activation(b.conv(b.input("data"), 3, 64, 3));
  for (int i = 0; i < 5; ++i) {
    const std::int64_t channels = 64 + 32 * i;
    const ValueId narrow = b.conv(b.activation(b.batch_norm(x, channels)), channels, 32, 1);
    x = b.concat({x, b.conv(narrow, 32, 32, 3)});
  }
  b.output(b.conv(x, 224, 32, 1));
  const std::vector<TensorSpec> inputs = {spec("data", {2, 3, 20, 30})};
  const auto model = load_channels_last(b.graph(), inputs);
  std::map<std::string, int> counts;
  for (const auto& step : dynamic_cast<const PlannedProgram&>(**model->program(inputs)).plan().steps)
    ++counts[step->name().substr(0, step->name().find(' '))];
  // Two images by themselves, which are then put together for the last convolution. The pictures and the output are reordered.
  const std::map<std::string, int> expected = {
      {"Convolution", 2 * 11 + 1}, {"BatchNorm", 2 * 5}, {"Concat", 2 * 6}, {"image", 2}, {"reorder", 2 + 1}};
  EXPECT_EQ(counts, expected);
}

TEST(Devices, ABottleneckNetworkNeedsOneStepPerConvolution) {
  const std::vector<TensorSpec> inputs = {spec("data", {1, 3, 64, 64})};
  const auto model = load(testing::make_bottleneck_network(16), inputs);
  EXPECT_LE((*model->program(inputs))->step_count(),
            1U + 1U + 28U + 2U);  // stem, pool, 4 * (4 + 3) convolutions, average, product
  expect_equal_answers(testing::make_bottleneck_network(16), {2, 3, 64, 64});
}

}  // namespace
}  // namespace shoal::worker
