// bf16 on the device "cpu", and the choice between precisions.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <string>

#include "shm/base/unique_fd.hpp"
#include "tests/support/custom_operator.hpp"
#include "tests/support/dynamic_operators.hpp"
#include "tests/support/scratch_directory.hpp"
#include "tests/unit/worker/exec/graph_builder.hpp"
#include "worker/exec/backend.hpp"
#include "worker/exec/planned_program.hpp"
#include "worker/exec/tuning.hpp"
#include "worker/passes/bf16_values.hpp"
#include "worker/passes/infer.hpp"

namespace shoal::worker {
namespace {

using namespace std::chrono_literals;
using testing::spec;

const std::vector<TensorSpec> kInputs = {spec("data", {2, 16, 28, 28})};
constexpr double kBf16Bound = 2e-2;  // docs/performance.md
constexpr double kF32Bound = 1e-5;   // above it, something was rounded to bf16

/// Convolutions in groups and with strides, a norm that is folded and one that is not, a residual addition, a concatenation,
/// pooling, a gate, a classifier.
Graph network() {
  testing::GraphBuilder b;
  const ValueId first = b.activation(b.batch_norm(b.conv(b.input("data"), 16, 64, 3), 64));
  const ValueId sum = b.activation(b.add(b.conv(first, 64, 64, 3), first));
  const ValueId normed = b.activation(b.batch_norm(b.concat({sum, b.conv(first, 64, 32, 1)}), 96));
  const ValueId pooled = b.pool(normed, {.kind = PoolingKind::kMax, .kernel = {2, 2}, .stride = {2, 2}, .pad = {0, 0}});
  const ValueId deep = b.conv(pooled, 96, 96, 3, 1, 96);
  const ValueId gated = b.binary(BinaryKind::kMul, deep, b.activation(deep, ActivationKind::kSigmoid));
  b.output(b.fully_connected(b.global_average(b.conv(gated, 96, 256, 3, 2)), 256, 200));
  return b.graph();
}

ModelOptions options(Precision precision) { return {.input_sets = {kInputs}, .precision = precision}; }

std::vector<Tensor> answer_of(Model& model, const std::vector<TensorSpec>& inputs = kInputs) {
  model.enter_thread();
  Context context;
  return testing::run(**model.program(inputs), context);
}

std::vector<Tensor> reference(const std::vector<TensorSpec>& inputs = kInputs) {
  Context context;
  return testing::run(**testing::load(network(), inputs, "cpu-reference")->program(inputs), context);
}

bool offers_bf16() {
  const auto variants = make_backends({.precision = Precision::kAuto}).value().front()->variants();
  return std::ranges::any_of(variants, [](const Choices& each) { return each.precision == Precision::kBf16; });
}

class Bf16 : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!offers_bf16()) GTEST_SKIP() << "this machine has no AVX-512";
  }
};

TEST_F(Bf16, AnswersNearlyAsFloat32AndIsUsed) {
  const auto want = reference();
  for (const bool fuse : {true, false}) {
    for (const char* layout : {"blocked", "channels_last"}) {
      ModelOptions wish = options(Precision::kBf16);
      wish.fuse = fuse;
      wish.choices = Choices{.precision = Precision::kBf16, .layout = layout};
      const auto model = Model::load(network(), wish).value();
      const double error = testing::relative_error(answer_of(*model)[0], want[0]);
      EXPECT_LE(error, kBf16Bound) << layout << ", fuse " << fuse;
      EXPECT_GE(error, kF32Bound) << "nothing was rounded: " << layout << ", fuse " << fuse;
    }
  }
}

TEST_F(Bf16, HalvesTheWeights) {
  testing::GraphBuilder b;  // of many pages of 2 MB, in which weights are packed
  ValueId x = b.input("data");
  for (int i = 0; i < 6; ++i) x = b.activation(b.fully_connected(x, 2048, 2048));
  b.output(x);
  const auto load = [&](Precision precision) {
    return Model::load(b.graph(), {.input_sets = {{spec("data", {2, 2048})}}, .precision = precision}).value();
  };
  const auto wide = load(Precision::kF32), narrow = load(Precision::kBf16);
  EXPECT_LE(static_cast<double>(narrow->packed_bytes()), 0.55 * static_cast<double>(wide->packed_bytes()));
}

TEST_F(Bf16, OtherShapesReadThePackedWeights) {
  const std::vector<TensorSpec> inputs = {spec("data", {3, 16, 40, 31})};
  const auto model = Model::load(network(), options(Precision::kBf16)).value();
  EXPECT_LE(testing::relative_error(answer_of(*model, inputs)[0], reference(inputs)[0]), kBf16Bound);
}

TEST_F(Bf16, PackedWeightsGiveTheSameBits) {
  const auto first = Model::load(network(), options(Precision::kBf16)).value();
  auto second = Model::load(network(), options(Precision::kBf16), duplicate_fd(first->packed_fd()).value());
  ASSERT_TRUE(second.ok()) << second.status().to_string();
  EXPECT_TRUE(testing::same_bits(answer_of(*first), answer_of(**second)));
  EXPECT_EQ(Model::load(network(), options(Precision::kF32), duplicate_fd(first->packed_fd()).value()).status().code(),
            StatusCode::kFailedPrecondition);
}

// A relu after a product is a loop of Shoal.
TEST_F(Bf16, AReluKeepsNan) {
  testing::GraphBuilder b;
  const ValueId first = b.activation(b.fully_connected(b.input("data"), 40, 64));
  b.output(b.fully_connected(first, 64, 8));
  const std::vector<TensorSpec> inputs = {spec("data", {3, 40})};
  const auto model = Model::load(b.graph(), {.input_sets = {inputs}, .precision = Precision::kBf16}).value();
  model->enter_thread();
  const auto program = model->program(inputs).value();
  Context context;
  Tensor src = testing::noise({3, 40}), dst = Tensor::create(DType::kFloat32, {3, 8}).value();
  src.values<float>()[41] = std::nanf("");
  std::vector<TensorView> from = {src.view()}, to = {dst.view()};
  ASSERT_TRUE(program->run(context, from, to).ok());
  for (std::size_t i = 0; i < 24; ++i) EXPECT_EQ(std::isnan(dst.values<float>()[i]), i / 8 == 1) << i;
}

/// The backend "cpu", whose plans of some precisions take 20 ms longer.
class Slowed : public Backend {
 public:
  explicit Slowed(std::vector<Precision> slow) : slow_(std::move(slow)) {}
  std::string identity() const override { return "slowed " + cpu_->identity(); }
  void enter_thread() const override { cpu_->enter_thread(); }
  Precision precision_of(const Choices& choices) const override { return cpu_->precision_of(choices); }
  std::vector<Choices> variants() const override { return cpu_->variants(); }
  Claims claim(const Graph& graph) const override { return cpu_->claim(graph); }
  Result<Plan> prepare(const Graph& graph, WeightStore& weights, const Choices& choices) const override {
    auto plan = cpu_->prepare(graph, weights, choices);
    if (plan.ok() && std::ranges::count(slow_, choices.precision) > 0) plan->steps.push_back(std::make_unique<Spin>());
    return plan;
  }

 private:
  struct Spin : Step, BoundStep {
    Spin() : Step("Spin", {}) {}
    std::string implementation() const override { return "spin"; }
    std::unique_ptr<BoundStep> bind() const override { return std::make_unique<Spin>(); }
    void set_addresses(std::span<std::byte* const>) override {}
    Status run() override {  // processor time, as it is measured
      for (const auto end = std::clock() + CLOCKS_PER_SEC / 50; std::clock() < end;) {
      }
      return {};
    }
  };
  std::vector<Precision> slow_;
  std::shared_ptr<const Backend> cpu_ = make_backends({.precision = Precision::kAuto}).value().front();
};

Choices measured(const Slowed& backend, double max_error, Graph graph = network()) {
  EXPECT_TRUE(infer(graph, kInputs).ok());
  const auto choices = measure_choices(graph, backend, 20'000ms, {}, {.max_error = max_error});
  EXPECT_TRUE(choices.ok()) << choices.status().to_string();
  return *choices;
}

TEST_F(Bf16, IsNotChosenWhereItDoesNotPay) {
  const Choices chosen = measured(Slowed({Precision::kBf16}), kBf16Bound);
  EXPECT_NE(chosen.precision, Precision::kBf16);
  EXPECT_FALSE(chosen.bf16_error.has_value());
}

TEST_F(Bf16, IsChosenWhereItPaysAndItsErrorIsMeasured) {
  const Choices chosen = measured(Slowed({Precision::kF32, Precision::kF32Fast}), kBf16Bound);
  EXPECT_EQ(chosen.precision, Precision::kBf16);
  EXPECT_GE(chosen.bf16_error.value(), kF32Bound);
  EXPECT_LE(chosen.bf16_error.value(), kBf16Bound);
}

TEST_F(Bf16, IsMeasuredWithOutputsWhoseSizesDependOnData) {
  test::register_dynamic_operators();
  testing::GraphBuilder b;
  const ValueId data = b.input("data");
  b.output(b.conv(data, 16, 64, 3));
  b.output(b.node("_dynamic_nonzero", {data}, CustomAttributes{}));
  const Choices chosen = measured(Slowed({Precision::kF32, Precision::kF32Fast}), kBf16Bound, b.graph());
  EXPECT_EQ(chosen.precision, Precision::kBf16);
  EXPECT_LE(chosen.bf16_error.value(), kBf16Bound);
}

TEST_F(Bf16, IsNotChosenWhereItsErrorIsAboveTheLimit) {
  const Choices chosen = measured(Slowed({Precision::kF32, Precision::kF32Fast}), kF32Bound);
  EXPECT_NE(chosen.precision, Precision::kBf16);
  EXPECT_GE(chosen.bf16_error.value(), kF32Bound);
}

TEST(Auto, IsChosenOnceAndSaid) {
  const test::ScratchDirectory directory;
  ModelOptions wish = options(Precision::kAuto);
  wish.tuning_budget = 4000ms;
  wish.cache_directory = directory.path();
  const auto first = Model::load(network(), wish).value(), second = Model::load(network(), wish).value();
  EXPECT_EQ(first->tuning().source, TuningInfo::Source::kMeasured) << first->tuning().problem;
  EXPECT_EQ(second->tuning().source, TuningInfo::Source::kRecord);
  EXPECT_NE(first->tuning().precision, Precision::kAuto);
  EXPECT_EQ(second->tuning().precision, first->tuning().precision);
  EXPECT_EQ(second->tuning().bf16_error, first->tuning().bf16_error);
  EXPECT_TRUE(testing::same_bits(answer_of(*first), answer_of(*second)));
}

TEST(Auto, IsFloat32WithoutAMeasurement) {
  const auto model = Model::load(network(), options(Precision::kAuto)).value();
  EXPECT_EQ(model->tuning().precision, Precision::kF32);
  EXPECT_NE(model->tuning().problem.find("tuning_ms"), std::string::npos) << model->tuning().problem;
  EXPECT_TRUE(testing::same_bits(answer_of(*model), answer_of(*Model::load(network(), options(Precision::kF32)).value())));
}

TEST(Bf16Values, LieBetweenProducts) {
  testing::GraphBuilder b;
  const ValueId data = b.input("data");
  const ValueId scaled = b.scalar(BinaryKind::kMul, data, 0.5);
  const ValueId first = b.conv(scaled, 16, 32, 3), relu = b.activation(first);
  const ValueId last = b.conv(relu, 32, 8, 3), bent = b.activation(last);
  const ValueId side = b.activation(relu, ActivationKind::kTanh);
  b.output(bent);
  b.output(side);
  Graph graph = b.graph();
  ASSERT_TRUE(infer(graph, kInputs).ok());
  const std::vector<bool> found = find_bf16_values(graph);
  const auto is_found = [&](ValueId id) { return bool(found[static_cast<std::size_t>(id)]); };
  EXPECT_TRUE(is_found(first) && is_found(relu));
  EXPECT_FALSE(is_found(data) || is_found(scaled)) << "before the first product";
  EXPECT_FALSE(is_found(last) || is_found(bent) || is_found(side)) << "behind the last product, and outputs";
  EXPECT_EQ(std::ranges::count(found, true), 2);
}

}  // namespace
}  // namespace shoal::worker
