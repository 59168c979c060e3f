// What the cpu device makes of several nodes, against the same nodes one by one and against the reference device: also where
// numbers end.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/worker/exec/graph_builder.hpp"
#include "worker/exec/planned_program.hpp"
#include "worker/ops/activation.hpp"
#include "worker/ops/arithmetic.hpp"
#include "worker/ops/convolution.hpp"
#include "worker/ops/normalization.hpp"
#include "worker/ops/pooling.hpp"
#include "worker/ops/reduce.hpp"
#include "worker/ops/softmax.hpp"
#include "worker/ops/unary.hpp"

namespace shoal::worker {
namespace {

using testing::GraphBuilder;
using testing::kDeviceTolerance;
using testing::kInfinity;
using testing::kNan;
using testing::spec;

ValueId clip(GraphBuilder& b, ValueId x, double low, double high) { return b.node("Clip", {x}, ClipAttributes{low, high}); }
ValueId sigmoid(GraphBuilder& b, ValueId x) { return b.activation(x, ActivationKind::kSigmoid); }
ValueId product(GraphBuilder& b, ValueId x, ValueId y) { return b.binary(BinaryKind::kMul, x, y, /*broadcast=*/true); }
ValueId relu6_of_x_plus_3(GraphBuilder& b, ValueId x) { return clip(b, b.scalar(BinaryKind::kAdd, x, 3), 0, 6); }
ValueId hard_sigmoid(GraphBuilder& b, ValueId x) { return b.scalar(BinaryKind::kDiv, relu6_of_x_plus_3(b, x), 6); }

struct Form {
  const char* name;
  ValueId (*build)(GraphBuilder&, ValueId x);
  bool keeps_nan = true;  ///< also fused: oneDNN's relu and clip turn NaN into a bound
};
void PrintTo(const Form& form, std::ostream* out) { *out << form.name; }

const Form kForms[] = {
    {"Relu", [](GraphBuilder& b, ValueId x) { return b.activation(x); }, false},
    {"Clip", [](GraphBuilder& b, ValueId x) { return clip(b, x, -1, 6); }, false},
    {"ClipAboveZero", [](GraphBuilder& b, ValueId x) { return clip(b, x, 1, 2); }, false},
    {"ClipOfSwappedBounds", [](GraphBuilder& b, ValueId x) { return clip(b, x, 2, 1); }},
    {"LeakyWithoutSlope", [](GraphBuilder& b, ValueId x) { return b.node("LeakyReLU", {x}, LeakyAttributes{.slope = 0}); }},
    {"LogarithmOfSoftRelu",  // whose small numbers count, too
     [](GraphBuilder& b, ValueId x) {
       return b.node("Unary", {b.activation(x, ActivationKind::kSoftRelu)}, UnaryAttributes{UnaryKind::kLog});
     }},
    {"HardSigmoid",
     [](GraphBuilder& b, ValueId x) {
       return b.node("HardSigmoid", {x}, HardSigmoidAttributes{0.3, 0.4});
     },
     false},
    {"HardSigmoidOfScalars", hard_sigmoid, false},
    {"HardSwish", [](GraphBuilder& b, ValueId x) { return b.binary(BinaryKind::kMul, x, hard_sigmoid(b, x)); }},
    {"HardSwishTurnedRound", [](GraphBuilder& b, ValueId x) { return b.binary(BinaryKind::kMul, hard_sigmoid(b, x), x); }},
    {"HardSwishDividedLast",
     [](GraphBuilder& b, ValueId x) { return b.scalar(BinaryKind::kDiv, product(b, x, relu6_of_x_plus_3(b, x)), 6); }},
    {"HardSwishMultipliedLast",
     [](GraphBuilder& b, ValueId x) { return b.scalar(BinaryKind::kMul, product(b, relu6_of_x_plus_3(b, x), x), 1.0 / 6); }},
    {"HardSwishOfAnOperator",
     [](GraphBuilder& b, ValueId x) {
       return product(b, x, b.node("HardSigmoid", {x}, HardSigmoidAttributes{1.0 / 6, 0.5}));
     }},
    {"NearlyHardSwish",
     [](GraphBuilder& b, ValueId x) { return product(b, x, b.scalar(BinaryKind::kDiv, relu6_of_x_plus_3(b, x), 5)); }},
    {"NotHardSwishByItsBounds",
     [](GraphBuilder& b, ValueId x) { return product(b, x, clip(b, b.scalar(BinaryKind::kAdd, x, 3), 0, 5)); }},
    {"Swish", [](GraphBuilder& b, ValueId x) { return product(b, x, sigmoid(b, x)); }},
    {"SwishWithBeta", [](GraphBuilder& b, ValueId x) { return product(b, sigmoid(b, b.scalar(BinaryKind::kMul, x, 1.5)), x); }},
    {"SigmoidOfAnother", [](GraphBuilder& b, ValueId x) { return product(b, b.scalar(BinaryKind::kAdd, x, 1), sigmoid(b, x)); }},
    {"Square", [](GraphBuilder& b, ValueId x) { return product(b, x, x); }},
    {"ScalarsInARow",
     [](GraphBuilder& b, ValueId x) {
       return b.scalar(BinaryKind::kSub, b.scalar(BinaryKind::kMul, b.scalar(BinaryKind::kAdd, x, 2), -3), 7, /*reversed=*/true);
     }},
    {"ScalarsThatCancel",
     [](GraphBuilder& b, ValueId x) { return b.scalar(BinaryKind::kDiv, b.scalar(BinaryKind::kMul, x, 4), 4); }},
    {"NegatedClip", [](GraphBuilder& b, ValueId x) { return b.scalar(BinaryKind::kMul, relu6_of_x_plus_3(b, x), -2); }, false},
    {"DividedBySomethingTiny", [](GraphBuilder& b, ValueId x) { return b.scalar(BinaryKind::kDiv, x, 1e-39); }},
    {"DividedBySomethingOdd", [](GraphBuilder& b, ValueId x) { return b.scalar(BinaryKind::kDiv, x, 41); }},
    {"DividedByNothing", [](GraphBuilder& b, ValueId x) { return b.scalar(BinaryKind::kDiv, x, 0); }},
    {"QuotientBeforeAHardSwish",
     [](GraphBuilder& b, ValueId x) {
       return product(b, x, clip(b, b.scalar(BinaryKind::kAdd, b.scalar(BinaryKind::kDiv, x, 6), 0.5), 0, 1));
     }},
    {"MultipliedByHardlyAnythingTwice",
     [](GraphBuilder& b, ValueId x) {
       return b.scalar(BinaryKind::kMul, b.scalar(BinaryKind::kMul, b.scalar(BinaryKind::kMul, x, 1e-20), 1e-20), 1e30);
     }},
    {"Selu", [](GraphBuilder& b, ValueId x) { return b.node("LeakyReLU", {x}, LeakyAttributes{.kind = LeakyKind::kSelu}); }},
    {"Elu", [](GraphBuilder& b, ValueId x) { return b.node("LeakyReLU", {x}, LeakyAttributes{.kind = LeakyKind::kElu}); }},
    {"Leaky", [](GraphBuilder& b, ValueId x) { return b.node("LeakyReLU", {x}, LeakyAttributes{}); }},
    {"SoftSign", [](GraphBuilder& b, ValueId x) { return b.activation(x, ActivationKind::kSoftSign); }},
    {"Exponential", [](GraphBuilder& b, ValueId x) { return b.node("Unary", {x}, UnaryAttributes{UnaryKind::kExp}); }},
    {"AbsoluteRoot",
     [](GraphBuilder& b, ValueId x) {
       return b.node("Unary", {b.node("Unary", {x}, UnaryAttributes{UnaryKind::kAbs})}, UnaryAttributes{UnaryKind::kSqrt});
     }},
    {"Larger", [](GraphBuilder& b, ValueId x) { return b.binary(BinaryKind::kMaximum, x, sigmoid(b, x)); }},
    {"SoftmaxOverChannels", [](GraphBuilder& b, ValueId x) { return b.node("Softmax", {x}, SoftmaxAttributes{.axis = 1}); }},
    {"SoftmaxOverRows", [](GraphBuilder& b, ValueId x) { return b.node("Softmax", {x}, SoftmaxAttributes{.axis = 2}); }},
    {"LogSoftmaxOverChannels",
     [](GraphBuilder& b, ValueId x) {
       return b.node("Softmax", {x}, SoftmaxAttributes{.kind = SoftmaxKind::kLogSoftmax, .axis = 1});
     }},
    {"L2OverChannels",
     [](GraphBuilder& b, ValueId x) {
       return b.node("L2Normalization", {x}, L2NormalizationAttributes{.mode = L2NormalizationMode::kChannel}, 2);
     }},
    {"L2OverPositions",
     [](GraphBuilder& b, ValueId x) {
       return b.node("L2Normalization", {x}, L2NormalizationAttributes{.mode = L2NormalizationMode::kSpatial}, 2);
     }},
    {"Slopes",
     [](GraphBuilder& b, ValueId x) {
       return b.node("LeakyReLU", {x, b.constant({32})}, LeakyAttributes{.kind = LeakyKind::kPrelu});
     }},
};

class FusedForms : public ::testing::TestWithParam<Form> {};
INSTANTIATE_TEST_SUITE_P(, FusedForms, ::testing::ValuesIn(kForms),
                         [](const auto& info) { return std::string(info.param.name); });

/// x itself, in blocked layout: a convolution of every channel with 1.
ValueId through_convolution(GraphBuilder& b, ValueId x) {
  return b.node("Convolution", {x, b.constant({32, 1, 1, 1}, 1, 0)},
                ConvolutionAttributes{
                    .kernel = {1, 1}, .stride = {1, 1}, .dilate = {1, 1}, .pad = {0, 0}, .num_filter = 32, .num_group = 32});
}

Graph graph_of_form(const Form& form, bool behind_convolution) {
  GraphBuilder b;
  const ValueId x = b.input("data");
  b.output(form.build(b, behind_convolution ? through_convolution(b, x) : x));
  return b.graph();
}

Tensor first_output(const Graph& graph, const Tensor& input, const char* device, bool fuse) {
  return testing::answer(graph, {input}, device, 1, fuse).front();
}

/// Ordinary numbers between those at which functions turn, and those at which numbers end.
Tensor special_input(bool with_nan) {
  Tensor tensor = testing::noise({1, 32, 3, 3});
  const auto values = tensor.values<float>();
  const float special[] = {
      0.0F, -0.0F, 3, -3, 6, -6, 2.999F, 100, -100, 1e-30F, 1e30F, -1e30F, kInfinity, -kInfinity, with_nan ? kNan : 1.0F};
  for (std::size_t i = 0; i < values.size(); ++i) values[i] *= 8;
  for (std::size_t i = 0; i < std::size(special); ++i) values[i * 7] = special[i];
  return tensor;
}

void expect_same_numbers(const Tensor& got, const Tensor& want, const Tensor& input) {
  const auto x = input.values<float>(), a = got.values<float>(), b = want.values<float>();
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(b[i])) {
      EXPECT_TRUE(std::isnan(a[i])) << "f(" << x[i] << ") = " << a[i] << ", not NaN";
    } else if (std::isinf(b[i])) {
      EXPECT_EQ(a[i], b[i]) << "f(" << x[i] << ")";
    } else {
      EXPECT_NEAR(a[i], b[i], kDeviceTolerance * std::max(1.0F, std::abs(b[i]))) << "f(" << x[i] << ")";
    }
  }
}

TEST_P(FusedForms, ByThemselvesGiveTheReferencesNumbersAtTheEndsToo) {
  const Graph graph = graph_of_form(GetParam(), /*behind_convolution=*/false);
  const Tensor input = special_input(/*with_nan=*/true);
  const Tensor want = first_output(graph, input, "cpu-reference", true);
  expect_same_numbers(first_output(graph, input, "cpu", true), want, input);
  expect_same_numbers(first_output(graph, input, "cpu", false), want, input);
}

TEST_P(FusedForms, BehindAConvolutionGiveTheUnfusedNumbers) {
  const Graph graph = graph_of_form(GetParam(), /*behind_convolution=*/true);
  const Tensor input = special_input(GetParam().keeps_nan);
  const Tensor want = first_output(graph, input, "cpu-reference", true);
  expect_same_numbers(first_output(graph, input, "cpu", true), want, input);
  const Tensor with_nan = special_input(true);
  expect_same_numbers(first_output(graph, with_nan, "cpu", false), first_output(graph, with_nan, "cpu-reference", true),
                      with_nan);
}

TEST(FusedClamps, KeepNanBehindAnInnerProduct) {
  GraphBuilder b;
  b.output(clip(b, b.activation(b.fully_connected(b.input("data"), 32, 8)), 0, 6));
  Tensor input = Tensor::create(DType::kFloat32, Shape{2, 32}).value();
  std::ranges::fill(input.values<float>(), 1.0F);
  input.values<float>()[5] = kNan;
  expect_same_numbers(first_output(b.graph(), input, "cpu", true), first_output(b.graph(), input, "cpu-reference", true), input);
}

std::vector<std::string> implementations(const Graph& graph, const Shape& shape) {
  const std::vector<TensorSpec> inputs = {spec("data", shape)};
  const auto model = testing::load(graph, inputs);
  const auto program = model->program(inputs).value();
  std::vector<std::string> names;
  for (const auto& step : dynamic_cast<const PlannedProgram&>(*program).plan().steps) names.push_back(step->implementation());
  return names;
}

TEST(Fusing, TakesAHardSwishIntoItsConvolution) {
  for (const char* name :
       {"HardSwish", "HardSwishDividedLast", "HardSwishMultipliedLast", "HardSwishOfAnOperator", "Swish",
        "QuotientBeforeAHardSwish", "HardSigmoidOfScalars", "ScalarsInARow", "ScalarsThatCancel", "NegatedClip"}) {
    const auto form =
        std::find_if(std::begin(kForms), std::end(kForms), [&](const Form& f) { return f.name == std::string(name); });
    EXPECT_LE(implementations(graph_of_form(*form, true), {1, 32, 3, 3}).size(), 3U)
        << name << ": more than a convolution between reorders";
  }
}

// x * (1 / 41) is not x / 41, and a floor behind it shows the difference in full.
// Without a bound a chain of them took years.
TEST(Fusing, TakesAFewOfThousandsOfFunctions) {
  constexpr int kFunctions = 20'000;
  GraphBuilder b;
  ValueId x = b.conv(b.input("data"), 3, 4, 1);
  for (int i = 0; i < kFunctions; ++i) x = b.activation(x, i % 2 == 0 ? ActivationKind::kRelu : ActivationKind::kTanh);
  b.output(x);
  const auto steps = implementations(b.graph(), {1, 3, 2, 2}).size();
  EXPECT_LT(steps, std::size_t{kFunctions}) << "some are fused";
  const Tensor input = testing::noise({1, 3, 2, 2});
  EXPECT_LE(
      testing::relative_error(first_output(b.graph(), input, "cpu", true), first_output(b.graph(), input, "cpu-reference", true)),
      1e-4);
}

TEST(Fusing, DividesExactly) {
  Tensor input = testing::noise({1, 32, 3, 3});
  const auto x = input.values<float>();
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = 41 * static_cast<float>(i);
  for (const bool behind_convolution : {false, true}) {
    GraphBuilder b;
    const ValueId data = b.input("data"),
                  quotient = b.scalar(BinaryKind::kDiv, behind_convolution ? through_convolution(b, data) : data, 41);
    b.output(b.node("Unary", {quotient}, UnaryAttributes{UnaryKind::kFloor}));
    for (const bool fuse : {true, false}) {
      const Tensor output = first_output(b.graph(), input, "cpu", fuse);
      for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(output.values<float>()[i], static_cast<float>(i));
    }
  }
}

// 1 / -0 is -inf.
TEST(Fusing, KeepsTheSignOfZero) {
  for (const bool behind_convolution : {false, true}) {
    GraphBuilder b;
    const ValueId data = b.input("data"), x = b.activation(behind_convolution ? through_convolution(b, data) : data);
    const auto reciprocal = [&](ValueId of) { return b.scalar(BinaryKind::kDiv, of, 1, /*reversed=*/true); };
    b.output(reciprocal(b.node("Unary", {x}, UnaryAttributes{UnaryKind::kNegative})));
    b.output(reciprocal(b.scalar(BinaryKind::kMul, b.scalar(BinaryKind::kMul, x, 3), -2)));
    b.output(reciprocal(b.scalar(BinaryKind::kDiv, x, -4)));
    b.output(reciprocal(b.scalar(BinaryKind::kAdd, b.scalar(BinaryKind::kMul, x, -2), 0)));
    Tensor input = testing::noise({1, 32, 3, 3});
    for (const char* const device : {"cpu", "cpu-reference"}) {
      for (const bool fuse : {true, false}) {
        const auto got = testing::answer(b.graph(), {input}, device, 1, fuse);
        for (std::size_t i = 0; i < input.values<float>().size(); ++i) {
          if (input.values<float>()[i] > 0) continue;
          for (std::size_t k = 0; k < 4; ++k)
            EXPECT_EQ(got[k].values<float>()[i], k < 3 ? -kInfinity : kInfinity) << device << ", output " << k;
        }
      }
    }
  }
}

TEST(FusedClamps, KeepNanBehindAnOperationOfTwoTensors) {
  GraphBuilder b;
  const ValueId x = b.input("data");
  b.output(b.activation(b.binary(BinaryKind::kAdd, through_convolution(b, x), b.constant({1, 32, 1, 1}), true)));
  b.output(clip(b, b.binary(BinaryKind::kMul, x, sigmoid(b, x)), 0, 6));
  const Tensor input = special_input(true);
  const auto got = testing::answer(b.graph(), {input}, "cpu"), want = testing::answer(b.graph(), {input}, "cpu-reference");
  for (std::size_t i = 0; i < want.size(); ++i) expect_same_numbers(got[i], want[i], input);
}

TEST(ExponentialUnits, KeepTheirDigitsNearZero) {
  for (const bool is_selu : {false, true}) {
    GraphBuilder b;
    b.output(b.node("LeakyReLU", {b.input("data")},
                    LeakyAttributes{.kind = is_selu ? LeakyKind::kSelu : LeakyKind::kElu, .slope = 0.25}));
    Tensor input = Tensor::create(DType::kFloat32, Shape{4}).value();
    const float x[] = {-1e-7F, -1e-30F, -0.3F, 2};
    std::ranges::copy(x, input.values<float>().begin());
    const Tensor output = first_output(b.graph(), input, "cpu", true);
    const double above = is_selu ? 1.0507009873554805 : 1, below = is_selu ? 1.7580993408473766 : 0.25;
    for (std::size_t i = 0; i < 4; ++i) {
      const double want = x[i] > 0 ? above * x[i] : below * std::expm1(static_cast<double>(x[i]));
      EXPECT_NEAR(output.values<float>()[i], want, 4e-7 * std::abs(want)) << x[i];
    }
  }
}

// e^-100 is below the normal numbers, and not 0.
TEST(Exponentials, HaveALogarithmBelowTheNormalNumbers) {
  const auto logarithm = [](GraphBuilder& b, ValueId x) { return b.node("Unary", {x}, UnaryAttributes{UnaryKind::kLog}); };
  for (const Shape& shape : {Shape{4, 64}, Shape{1, 32, 4, 4}}) {
    GraphBuilder b;
    const ValueId x = b.input("data");
    b.output(logarithm(b, b.node("Softmax", {x}, SoftmaxAttributes{.axis = -1})));
    b.output(logarithm(b, b.node("Softmax", {x}, SoftmaxAttributes{.axis = 1})));
    const bool is_row_data = shape.rank() <= 3;  // other sigmoids are oneDNN's
    if (is_row_data) b.output(logarithm(b, sigmoid(b, b.scalar(BinaryKind::kAdd, x, 6.5))));
    Tensor input = Tensor::create(DType::kFloat32, shape).value();
    for (std::size_t i = 0; i < input.values<float>().size(); ++i) input.values<float>()[i] = i % 3 == 0 ? 0.0F : -95.0F;
    const auto got = testing::answer(b.graph(), {input}, "cpu"), want = testing::answer(b.graph(), {input}, "cpu-reference");
    constexpr double kDigitsOfSmallNumbers = 1e-3;
    EXPECT_TRUE(testing::alike(got, want, kDigitsOfSmallNumbers));
  }
}

// The sum of seven ones is 7, not 7.0000005.
TEST(Sums, OverWindowsAreWholeIfTheNumbersAre) {
  for (const std::int64_t size : {7, 4}) {
    GraphBuilder b;
    const ValueId x = b.input("data");
    const bool is_global = size == 7;
    b.output(b.node("Reduce", {x}, ReduceAttributes{.kind = ReduceKind::kSum, .axes = {2, 3}}));
    b.output(b.node(
        "Pooling", {x},
        PoolingAttributes{.kind = PoolingKind::kSum, .global = is_global, .kernel = {2, 2}, .stride = {1, 1}, .pad = {0, 0}}));
    Tensor input = Tensor::create(DType::kFloat32, Shape{1, 16, size, size}).value();
    std::ranges::fill(input.values<float>(), 0.0F);
    for (std::size_t i = 0; i < 7; ++i) input.values<float>()[i * 2] = 1;
    const auto sums = testing::answer(b.graph(), {input}, "cpu");
    EXPECT_EQ(sums[0].values<float>()[0], 7);
    for (const float sum : sums[1].values<float>()) EXPECT_EQ(sum, std::round(sum));
    if (is_global) EXPECT_EQ(sums[1].values<float>()[0], 7);
  }
}

/// Squeeze and excite as the networks write it: scaled by channel, added to the shortcut.
Graph squeeze_excite(std::int64_t channels, bool by_pooling) {
  GraphBuilder b;
  const ValueId x = b.activation(b.conv(b.input("data"), 3, channels, 3));
  const ValueId y = b.batch_norm(b.conv(x, channels, channels, 1), channels);
  const ValueId mean = by_pooling ? b.global_average(y) : b.node("AdaptiveAvgPooling", {y}, AdaptivePoolingAttributes{});
  const ValueId gate = sigmoid(b, b.conv(b.activation(b.conv(mean, channels, 8, 1)), 8, channels, 1));
  b.output(b.activation(b.add(product(b, y, gate), x)));
  return b.graph();
}

TEST(Fusing, MultipliesAndAddsASqueezeExciteInOneStep) {
  for (const std::int64_t channels : {32, 72}) {
    for (const std::int64_t batch : {1, 3}) {
      const Shape shape = {batch, 3, 9, 9};
      const Graph graph = squeeze_excite(channels, batch == 1);
      const Tensor input = testing::noise(shape);
      const Tensor want = first_output(graph, input, "cpu-reference", true);
      EXPECT_LE(testing::relative_error(first_output(graph, input, "cpu", true), want), kDeviceTolerance)
          << channels << ", " << batch;
      EXPECT_LE(testing::relative_error(first_output(graph, input, "cpu", false), want), kDeviceTolerance)
          << channels << ", " << batch;
      const auto names = implementations(graph, shape);
      EXPECT_EQ(std::count(names.begin(), names.end(), "oracle"), 0) << channels << ", " << batch;
      // Five convolutions, a mean, one binary and its relu; reorders of the output and, where channels do not fill blocks, of the
      // mean.
      EXPECT_LE(names.size(), 10U) << channels << ", " << batch;
    }
  }
}

TEST(Softmax, OverFlattenedAxesOfAVectorIsOne) {
  GraphBuilder b;
  b.output(b.node("Softmax", {b.input("data")}, SoftmaxAttributes{.flatten_rest = true}));
  for (const char* device : {"cpu", "cpu-reference"}) {
    const Tensor output = first_output(b.graph(), testing::noise({5}), device, true);
    for (const float x : output.values<float>()) EXPECT_EQ(x, 1) << device;
  }
}

TEST(Broadcasting, GivesTheReferencesNumbersForEveryPairOfShapes) {
  const Shape data = {2, 32, 5, 6};
  for (const Shape& other : {Shape{2, 32, 1, 1}, Shape{1, 32, 1, 1}, Shape{1, 1, 1, 1}, Shape{1}, Shape{6}, Shape{5, 6},
                             Shape{32, 1, 1}, Shape{2, 1, 5, 6}, Shape{2, 1, 1, 1}, Shape{1, 32, 5, 1}}) {
    for (const auto kind : {BinaryKind::kAdd, BinaryKind::kSub, BinaryKind::kMul, BinaryKind::kDiv, BinaryKind::kMaximum}) {
      for (const bool turned : {false, true}) {
        GraphBuilder b;
        const ValueId x = b.scalar(BinaryKind::kAdd, sigmoid(b, b.conv(b.input("data"), 32, 32, 3)), 1);
        const ValueId constant = b.constant(other, 2.0F, 0.5F);
        b.output(turned ? b.binary(kind, constant, x, true) : b.binary(kind, x, constant, true));
        const Tensor input = testing::noise(data);
        const Tensor want = first_output(b.graph(), input, "cpu-reference", true);
        EXPECT_LE(testing::relative_error(first_output(b.graph(), input, "cpu", true), want), kDeviceTolerance)
            << other.to_string() << ", kind " << static_cast<int>(kind) << (turned ? ", turned" : "");
      }
    }
  }
}

TEST(Reductions, OverAllSpatialAxesArePoolingInTheLayoutTheyFind) {
  for (const std::int64_t channels : {32, 20}) {
    for (const bool keepdims : {false, true}) {
      for (const ReduceAttributes& reduce : {ReduceAttributes{ReduceKind::kMean, {2, 3}, keepdims, false},
                                             ReduceAttributes{ReduceKind::kSum, {-1, -2}, keepdims, false},
                                             ReduceAttributes{ReduceKind::kMean, {0, 1}, keepdims, true},
                                             ReduceAttributes{ReduceKind::kMax, {2, 3}, keepdims, false},
                                             ReduceAttributes{ReduceKind::kMean, {1}, keepdims, false}}) {
        GraphBuilder b;
        b.output(b.node("Reduce", {b.conv(b.input("data"), 3, channels, 3)}, reduce));
        const Tensor input = testing::noise({2, 3, 7, 8});
        EXPECT_LE(testing::relative_error(first_output(b.graph(), input, "cpu", true),
                                          first_output(b.graph(), input, "cpu-reference", true)),
                  1e-5)
            << "kind " << static_cast<int>(reduce.kind) << ", channels " << channels << (keepdims ? ", axes kept" : "");
        const auto names = implementations(b.graph(), {2, 3, 7, 8});
        const bool is_pooling = reduce.kind == ReduceKind::kMean && reduce.axes.size() == 2;
        EXPECT_EQ(std::count(names.begin(), names.end(), "kernel"), is_pooling ? 0 : 1);
        EXPECT_EQ(std::count(names.begin(), names.end(), "oracle"), 0);
      }
    }
  }
}

}  // namespace
}  // namespace shoal::worker
