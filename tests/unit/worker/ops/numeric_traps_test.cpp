// Where MXNet's operators differ from what one expects: one case each, computed by hand. From the name and attributes in a file
// to numbers, through the importer's lowering, the shape rules and the oracle kernels.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/unit/worker/ops/one_node.hpp"

namespace shoal::worker {
namespace {

using namespace one_node;

TEST(NumericTraps, SlopesOfPReluLieAlongAxis1) {
  const Tensor data = tensor({1, 2, 2}, {-1, -2, -3, -4}), slopes = tensor({2}, {10, 100});
  EXPECT_TRUE(gives("LeakyReLU", {{"act_type", "prelu"}}, {data, slopes}, {1, 2, 2}, {-10, -20, -300, -400}));
}

TEST(NumericTraps, SlopesOfPReluThatFitOnlyAxis0LieThere) {
  const Tensor data = tensor({2, 3}, {-1, -1, -1, -1, -1, 5}), slopes = tensor({2}, {10, 100});
  EXPECT_TRUE(gives("LeakyReLU", {{"act_type", "prelu"}}, {data, slopes}, {2, 3}, {-10, -10, -10, -100, -100, 5}));
  EXPECT_TRUE(refuses("LeakyReLU", {{"act_type", "prelu"}}, {tensor({1, 2, 3}, {}), tensor({3}, {})}, "in1"));
}

TEST(NumericTraps, RandomReluTakesTheMiddleOfItsBounds) {
  EXPECT_TRUE(gives("LeakyReLU", {{"act_type", "rrelu"}, {"lower_bound", "0.25"}, {"upper_bound", "0.75"}},
                    {tensor({2}, {-2, 2})}, {2}, {-1, 2}));
}

TEST(NumericTraps, RoundGoesAwayFromZeroAndRintDown) {
  const Tensor halves = tensor({6}, {-2.5, -1.5, -0.5, 0.5, 1.5, 2.5});
  EXPECT_TRUE(gives("round", {}, {halves}, {6}, {-3, -2, -1, 1, 2, 3}));
  EXPECT_TRUE(gives("rint", {}, {halves}, {6}, {-3, -2, -1, 0, 1, 2}));
  EXPECT_TRUE(gives("fix", {}, {halves}, {6}, {-2, -1, 0, 0, 1, 2}));
}

TEST(NumericTraps, ModuloHasTheSignOfTheDivisorAndOfZeroIsZero) {
  const Tensor a = tensor({4}, {5, -5, 5, 5}), b = tensor({4}, {3, 3, -3, 0});
  EXPECT_TRUE(gives("broadcast_mod", {}, {a, b}, {4}, {2, 1, -1, 0}));
}

TEST(NumericTraps, ComparisonsKeepTheTypeOfTheirOperands) {
  const auto outputs = apply("broadcast_greater", {}, {tensor<std::int32_t>({2}, {1, 2}), tensor<std::int32_t>({1}, {1})});
  ASSERT_TRUE(outputs.ok()) << outputs.status().to_string();
  EXPECT_EQ(outputs->front().tensor.dtype(), DType::kInt32);
  EXPECT_TRUE(testing::values_close(testing::as_doubles(outputs->front().tensor.view()), std::vector<double>{0, 1}, 0));
}

TEST(NumericTraps, NanWinsInExtremesOnEitherSideAndPassesRelu) {
  const Tensor a = tensor({2}, {kNan, 1}), b = tensor({2}, {1, kNan});
  EXPECT_TRUE(gives("broadcast_maximum", {}, {a, b}, {2}, {kNan, kNan}));
  EXPECT_TRUE(gives("broadcast_minimum", {}, {a, b}, {2}, {kNan, kNan}));
  EXPECT_TRUE(gives("max", {}, {a}, {1}, {kNan}));
  EXPECT_TRUE(gives("relu", {}, {a}, {2}, {kNan, 1}));
  EXPECT_TRUE(gives("nansum", {}, {a}, {1}, {1}));
  EXPECT_TRUE(gives("nanprod", {}, {tensor({2}, {kNan, kNan})}, {1}, {1}));
}

TEST(NumericTraps, OnlyBroadcastOperatorsBroadcast) {
  const Tensor column = tensor({2, 1}, {10, 20}), row = tensor({3}, {1, 2, 3});
  EXPECT_TRUE(gives("broadcast_plus", {}, {column, row}, {2, 3}, {11, 12, 13, 21, 22, 23}));
  EXPECT_TRUE(refuses("elemwise_add", {}, {column, row}, "2x1"));
  EXPECT_TRUE(refuses("broadcast_add", {}, {tensor({2, 2}, {}), row}, "2x2"));
}

TEST(NumericTraps, ReversedScalarsComeFirst) {
  const Tensor data = tensor({2}, {1, 4});
  EXPECT_TRUE(gives("_rminus_scalar", {{"scalar", "2"}}, {data}, {2}, {1, -2}));
  EXPECT_TRUE(gives("_rdiv_scalar", {{"scalar", "2"}}, {data}, {2}, {2, 0.5}));
  EXPECT_TRUE(gives("_rpower_scalar", {{"scalar", "2"}}, {data}, {2}, {2, 16}));
}

TEST(NumericTraps, SmoothL1IsSquareNearZeroAndALineBeyond) {
  EXPECT_TRUE(gives("smooth_l1", {{"scalar", "2"}}, {tensor({3}, {0.25, 0.5, -3})}, {3}, {0.125, 0.375, 2.875}));
}

TEST(NumericTraps, HardSigmoidHasDefaults) {
  EXPECT_TRUE(gives("hard_sigmoid", {}, {tensor({4}, {-10, 0, 1, kNan})}, {4}, {0, 0.5, 0.7, kNan}));
}

TEST(NumericTraps, AFullReductionHasOneElementAndOneAxis) {
  const Tensor data = tensor({2, 3}, {1, 2, 3, 4, 5, 6});
  for (const char* all : {"None", "()"}) EXPECT_TRUE(gives("sum", {{"axis", all}}, {data}, {1}, {21})) << all;
  EXPECT_TRUE(gives("mean", {{"keepdims", "True"}}, {data}, {1, 1}, {3.5}));
  EXPECT_TRUE(gives("sum", {{"exclude", "True"}}, {data}, {1}, {21}));  // nothing listed: exclude excludes nothing
}

TEST(NumericTraps, ExcludeReducesTheAxesThatAreNotListed) {
  const Tensor data = tensor({2, 3}, {1, 2, 3, 4, 5, 6});
  EXPECT_TRUE(gives("sum", {{"axis", "-1"}, {"exclude", "1"}}, {data}, {3}, {5, 7, 9}));
  EXPECT_TRUE(gives("max", {{"axis", "(0,)"}, {"exclude", "True"}, {"keepdims", "True"}}, {data}, {2, 1}, {3, 6}));
  EXPECT_TRUE(gives("prod", {{"axis", "(0, 1)"}, {"exclude", "True"}}, {data}, {2, 3}, {1, 2, 3, 4, 5, 6}));
  EXPECT_TRUE(refuses("sum", {{"axis", "(0, -2)"}}, {data}, "twice"));
  EXPECT_TRUE(refuses("sum", {{"axis", "2"}}, {data}, "2x3"));
}

TEST(NumericTraps, MeanOfIntegersIsCutAndSoIsItsCount) {
  EXPECT_TRUE(gives("mean", {}, {tensor<std::int32_t>({3}, {-1, -1, -3})}, {1}, {-1}));
  EXPECT_TRUE(gives("mean", {}, {tensor<std::uint8_t>({256}, std::vector<double>(256, 1))}, {1},
                    {0}));  // 256 wraps to 0, and MXNet crashes
  const auto same = [](auto type, std::int64_t count, double x) {
    return tensor<decltype(type)>({count}, std::vector<double>(static_cast<std::size_t>(count), x));
  };
  EXPECT_TRUE(gives("mean", {}, {same(std::int8_t{}, 300, 3)}, {1}, {-2}));
  EXPECT_TRUE(gives("mean", {}, {same(std::int8_t{}, 300, 100)}, {1}, {1}));
  EXPECT_TRUE(gives("mean", {}, {same(std::int8_t{}, 128, 3)}, {1}, {1}));
  EXPECT_TRUE(gives("mean", {}, {same(std::uint8_t{}, 300, 3)}, {1}, {3}));
  EXPECT_TRUE(gives("mean", {}, {same(std::int32_t{}, 300, 3)}, {1}, {3}));
}

TEST(NumericTraps, LongSumsKeepTheirDigits) {
  const std::int64_t count = 1 << 20;
  EXPECT_TRUE(gives("mean", {}, {tensor({count}, std::vector<double>(static_cast<std::size_t>(count), 0.1))}, {1}, {0.1}));
}

TEST(NumericTraps, SoftmaxActivationRunsOverTheLastAxisOrTheChannels) {
  const Tensor data = tensor({1, 2, 2}, {0, std::log(3.0), 0, 0});
  EXPECT_TRUE(gives("SoftmaxActivation", {}, {data}, {1, 2, 2}, {0.25, 0.75, 0.5, 0.5}));
  EXPECT_TRUE(gives("SoftmaxActivation", {{"mode", "channel"}}, {data}, {1, 2, 2}, {0.5, 0.75, 0.5, 0.25}));
  EXPECT_TRUE(refuses("SoftmaxActivation", {{"mode", "channel"}}, {tensor({1, 2}, {0, 0})}, "3 or more"));
}

TEST(NumericTraps, L2NormalizationHasThreeModes) {
  const Tensor data = tensor({1, 2, 2}, {3, 0, 4, 12});
  EXPECT_TRUE(gives("L2Normalization", {}, {data}, {1, 2, 2}, {3 / 13., 0, 4 / 13., 12 / 13.}));
  EXPECT_TRUE(gives("L2Normalization", {{"mode", "channel"}}, {data}, {1, 2, 2}, {0.6, 0, 0.8, 1}));
  EXPECT_TRUE(gives("L2Normalization", {{"mode", "spatial"}}, {data}, {1, 2, 2}, {1, 0, 1 / std::sqrt(10), 3 / std::sqrt(10)}));
  EXPECT_TRUE(gives("L2Normalization", {{"eps", "9"}}, {tensor({2, 1}, {4, 0})}, {2, 1}, {0.8, 0}));
}

TEST(NumericTraps, AdaptiveWindowsOverlapWhereTheyDoNotDivide) {
  const Tensor row = tensor({1, 1, 1, 5}, {1, 2, 3, 4, 5});
  EXPECT_TRUE(gives("_contrib_AdaptiveAvgPooling2D", {{"output_size", "(1, 2)"}}, {row}, {1, 1, 1, 2}, {2, 4}));
  EXPECT_TRUE(gives("_contrib_AdaptiveAvgPooling2D", {}, {row}, {1, 1, 1, 1}, {3}));
}

TEST(NumericTraps, AWindowTooLargeToCountIsRefused) {
  const std::string most = "(2147483647, 2147483647, 2147483647)";
  for (const char* kind : {"avg", "max", "sum"}) {
    EXPECT_TRUE(refuses("Pooling", {{"kernel", most}, {"stride", most}, {"pad", most}, {"pool_type", kind}},
                        {tensor({1, 1, 2, 2, 2}, std::vector<double>(8, 1))}, "pad (2147483647"));
  }
}

TEST(NumericTraps, ModuloOfLongIntegersStaysAnInteger) {
  Tensor data = Tensor::create(DType::kInt64, {1}).value(), divisor = Tensor::create(DType::kInt64, {1}).value();
  data.values<std::int64_t>()[0] = -1;
  divisor.values<std::int64_t>()[0] = std::numeric_limits<std::int64_t>::max();
  const auto outputs = apply("broadcast_mod", {}, {data, divisor});
  ASSERT_TRUE(outputs.ok()) << outputs.status().to_string();
  // 2^63 - 2 is 2^63 in double, which no int64 is: what x86 makes of it.
  EXPECT_EQ(outputs->front().tensor.values<std::int64_t>()[0], std::numeric_limits<std::int64_t>::lowest());
}

TEST(NumericTraps, SplitCutsAxis1UnlessTold) {
  const Tensor data = tensor({1, 2, 2}, {1, 2, 3, 4});
  EXPECT_TRUE(gives("split", {{"num_outputs", "2"}}, {data}, {1, 1, 2}, {1, 2}));
  EXPECT_TRUE(gives("split", {{"num_outputs", "2"}, {"squeeze_axis", "True"}}, {data}, {1, 2}, {1, 2}));
  EXPECT_TRUE(gives("split", {{"num_outputs", "2"}, {"axis", "-1"}}, {data}, {1, 2, 1}, {1, 3}));
  EXPECT_TRUE(refuses("split", {{"num_outputs", "1"}, {"squeeze_axis", "True"}}, {data}, "squeezed"));
  EXPECT_TRUE(refuses("split", {{"num_outputs", "3"}}, {data}, "3 equal parts"));
}

TEST(NumericTraps, SliceCountsAsNumpyAndSliceAxisRefusesWhatLiesBeyond) {
  const Tensor data = tensor({5}, {0, 1, 2, 3, 4});
  EXPECT_TRUE(gives("slice", {{"begin", "(1,)"}, {"end", "(99,)"}}, {data}, {4}, {1, 2, 3, 4}));
  EXPECT_TRUE(gives("crop", {{"begin", "(None,)"}, {"end", "(None,)"}, {"step", "(-2,)"}}, {data}, {3}, {4, 2, 0}));
  EXPECT_TRUE(gives("slice", {{"begin", "(-99,)"}, {"end", "(-3,)"}}, {data}, {2}, {0, 1}));
  EXPECT_TRUE(refuses("slice", {{"begin", "(3,)"}, {"end", "(3,)"}}, {data}, "nothing is left"));
  EXPECT_TRUE(gives("slice_axis", {{"axis", "0"}, {"begin", "-2"}, {"end", "None"}}, {data}, {2}, {3, 4}));
  EXPECT_TRUE(refuses("slice_axis", {{"axis", "0"}, {"begin", "0"}, {"end", "6"}}, {data}, "outside axis 0"));
}

TEST(NumericTraps, ReflectionLeavesTheBorderOut) {
  const Tensor row = tensor({1, 1, 1, 3}, {1, 2, 3});
  const std::string widths = "(0, 0, 0, 0, 0, 0, 2, 1)";
  EXPECT_TRUE(gives("Pad", {{"mode", "reflect"}, {"pad_width", widths}}, {row}, {1, 1, 1, 6}, {3, 2, 1, 2, 3, 2}));
  EXPECT_TRUE(gives("Pad", {{"mode", "edge"}, {"pad_width", widths}}, {row}, {1, 1, 1, 6}, {1, 1, 1, 2, 3, 3}));
  EXPECT_TRUE(gives("Pad", {{"mode", "constant"}, {"constant_value", "7"}, {"pad_width", widths}}, {row}, {1, 1, 1, 6},
                    {7, 7, 1, 2, 3, 7}));
  EXPECT_TRUE(refuses("Pad", {{"mode", "edge"}, {"pad_width", "(0, 0, 1, 0, 0, 0, 0, 0)"}}, {row}, "pad_width"));
}

// Only the first window of each axis meets the image. The others begin so far beyond it that their negative lengths, multiplied,
// do not fit into 64 bits; for the second stride the product is 0 in 64 bits.
TEST(NumericTraps, WindowsThatBeginBeyondTheImageAverageToZero) {
  const Tensor data = tensor({1, 1, 2, 2, 2}, {3, 1, 1, 1, 1, 1, 1, 1});
  for (const char* stride : {"(2147483647, 2147483647, 2147483647)", "(4194306, 4194306, 4194306)"}) {
    for (const char* counted : {"True", "False"}) {
      EXPECT_TRUE(gives("Pooling",
                        {{"kernel", "(1, 1, 1)"},
                         {"stride", stride},
                         {"pool_type", "avg"},
                         {"pooling_convention", "full"},
                         {"count_include_pad", counted}},
                        {data}, {1, 1, 2, 2, 2}, {3, 0, 0, 0, 0, 0, 0, 0}))
          << stride << ", count_include_pad " << counted;
    }
  }
}

TEST(NumericTraps, ClipAndSumsNeedNumbers) {
  EXPECT_TRUE(refuses("clip", {{"a_min", "0"}, {"a_max", "1"}}, {bools({0, 1})}, "numbers are needed"));
  EXPECT_TRUE(refuses("add_n", {}, {bools({0, 1}), bools({1, 1})}, "numbers are needed"));
}

// What the shape rules accept, the kernels run: a program that compiles does not fail for its types.
TEST(NumericTraps, EveryTypeThatARuleAcceptsHasAKernel) {
  int ran = 0;
  for (const MxnetOperator* op : all_mxnet_operators()) {
    Texts attributes;
    if (op->name.ends_with("scalar") || op->alias_of.ends_with("scalar")) attributes = {{"scalar", "1"}};
    if (op->name == "clip") attributes = {{"a_min", "0"}, {"a_max", "1"}};
    if (op->name == "Activation") attributes = {{"act_type", "relu"}};
    if (op->name == "Pad") attributes = {{"mode", "edge"}, {"pad_width", "(0, 0, 0, 0, 1, 1, 1, 1)"}};
    if (op->name == "Pooling") attributes = {{"kernel", "(1, 1)"}};
    for (const DType dtype : {DType::kBool, DType::kUInt8, DType::kInt8, DType::kInt32, DType::kInt64, DType::kFloat16,
                              DType::kBFloat16, DType::kFloat32, DType::kFloat64}) {
      Tensor data = Tensor::create(dtype, {1, 2, 2, 2}).value();
      std::memset(data.view().data, 0, data.size_bytes());
      const auto outputs = apply(op->name, attributes, std::vector(static_cast<std::size_t>(std::max(1, op->min_inputs)), data));
      ran += outputs.ok() ? 1 : 0;
      EXPECT_EQ(outputs.status().message().find("there is no kernel"), std::string::npos) << outputs.status().to_string();
    }
  }
  EXPECT_GT(ran, 500);
}

TEST(NumericTraps, IntegersComputeFunctionsInDoubleAndAreCut) {
  EXPECT_TRUE(gives("sqrt", {}, {tensor<std::int32_t>({3}, {8, 9, 10})}, {3}, {2, 3, 3}));
  EXPECT_TRUE(gives("log", {}, {tensor<std::int32_t>({2}, {0, 1})}, {2}, {-2147483648.0, 0}));  // as x86 converts -inf
}

// The numbers are MXNet's.
TEST(NumericTraps, FunctionsOfIntegersAreOneOnlyWhereDoubleIs) {
  EXPECT_TRUE(gives("exp", {}, {tensor<std::int64_t>({2}, {16, 17})}, {2}, {8886110, 24154952}));
  EXPECT_TRUE(gives("cos", {}, {tensor<std::int64_t>({2}, {355, 710})}, {2}, {0, 0}));
  EXPECT_TRUE(gives("cbrt", {}, {tensor<std::int64_t>({1}, {27})}, {1}, {3}));
  EXPECT_TRUE(gives("tanh", {}, {tensor<std::int32_t>({3}, {10, 11, 27})}, {3}, {0, 0, 1}));
  EXPECT_TRUE(gives("softsign", {}, {tensor<std::int64_t>({2}, {16777217, 33554433})}, {2}, {0, 0}));
  EXPECT_TRUE(gives("sigmoid", {}, {tensor<std::int32_t>({7}, {-50, 0, 17, 20, 27, 36, 37})}, {7}, {0, 0, 0, 0, 0, 0, 1}));
}

TEST(NumericTraps, InverseErfOfIntegersIsZeroBeyondOne) {
  EXPECT_TRUE(gives("erfinv", {}, {tensor<std::int32_t>({4}, {0, 1, 2, -27})}, {4}, {0, -2147483648.0, 0, 0}));
  EXPECT_TRUE(gives("erfinv", {}, {tensor<std::int8_t>({3}, {0, 1, 2})}, {3}, {0, 0, 0}));
}

TEST(NumericTraps, TheNormOfIntegersIsComputedInTheirType) {
  const Tensor rows = tensor<std::int8_t>({3, 3}, {1, 2, 3, 100, 100, 100, 3, 4, -5});
  EXPECT_TRUE(gives("norm", {{"axis", "1"}, {"ord", "1"}}, {rows}, {3}, {6, 44, 12}));
  EXPECT_TRUE(gives("norm", {{"axis", "1"}}, {tensor<std::int8_t>({3, 3}, {1, 2, 3, 100, 100, 100, 3, 4, 0})}, {3}, {3, -83, 4}));
  EXPECT_TRUE(gives("norm", {}, {tensor<std::int32_t>({8}, {10, 9, 8, 7, 7, 7, 20, 20})}, {1}, {28}));
  EXPECT_TRUE(gives("norm", {}, {tensor<std::int32_t>({3}, {-7, 7, 3})}, {1}, {9}));
  EXPECT_TRUE(gives("norm", {}, {tensor<std::int64_t>({3}, {2000000000, 2000000000, 2000000000})}, {1}, {3464101615}));
  EXPECT_TRUE(gives("norm", {}, {tensor<std::int32_t>({3}, {2000000000, 2000000000, 2000000000})}, {1}, {-2147483648.0}));
  EXPECT_TRUE(refuses("norm", {{"out_dtype", "float32"}}, {rows}, "int8"));
}

TEST(NumericTraps, TheNormOfTwoInfinitiesIsNan) {
  EXPECT_TRUE(gives("norm", {}, {tensor({3}, {kInfinity, -kInfinity, 0})}, {1}, {kNan}));
  EXPECT_TRUE(gives("norm", {}, {tensor({3}, {1, kInfinity, 1})}, {1}, {kInfinity}));
}

TEST(NumericTraps, InverseErfIsExactToItsEnds) {
  EXPECT_TRUE(gives("erfinv", {}, {tensor({5}, {-1, 0, 0.5, 1, 1.5})}, {5}, {-kInfinity, 0, 0.4769362762, kInfinity, kNan}));
}

TEST(NumericTraps, EveryByteButZeroIsTrue) {
  EXPECT_TRUE(gives("Cast", {{"dtype", "float32"}}, {bools({0, 1, 2, 128, 255})}, {5}, {0, 1, 1, 1, 1}));
}

}  // namespace
}  // namespace shoal::worker
