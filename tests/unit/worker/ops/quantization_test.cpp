// Quantized operators, through the importer's lowering and the oracle kernels. Worked out by hand.
#include <gtest/gtest.h>

#include "tests/unit/worker/ops/one_node.hpp"

namespace shoal::worker {
namespace {

using namespace one_node;

Tensor end(double value) { return tensor({1}, {value}); }
template <typename T>
Tensor whole(const std::vector<double>& values) {
  return tensor<T>({static_cast<std::int64_t>(values.size())}, values);
}

// The numbers of these tests are MXNet 1.9.1's. A range from -2 to 1 has 127.5 steps from 0 to 2: signed types reach as far below
// 0 as above it.
TEST(Quantization, OfSignedNumbersIsSymmetric) {
  const Texts within{{"out_type", "int8"}, {"min_calib_range", "-2"}, {"max_calib_range", "1"}};
  const Tensor x = tensor({5}, {1, -1, 3, 0.004, kNan});
  EXPECT_TRUE(gives("_contrib_quantize_v2", within, {x}, {5}, {64, -64, 127, 0, 127}));
  EXPECT_TRUE(gives("_contrib_quantize_v2", within, {x}, {1}, {-2}, 1));
  EXPECT_TRUE(gives("_contrib_quantize_v2", within, {x}, {1}, {2}, 2));
  EXPECT_TRUE(gives("_contrib_dequantize", {}, {whole<std::int8_t>({127, 0}), end(-2), end(2)}, {2}, {1.992156982, 0}));
}

TEST(Quantization, OfUnsignedNumbersCountsFromZero) {
  const Texts within{{"out_type", "auto"}, {"min_calib_range", "0"}, {"max_calib_range", "255"}};
  EXPECT_TRUE(gives("_contrib_quantize_v2", within, {tensor({4}, {1.4, 1.6, 300, -5})}, {4}, {1, 2, 255, 0}));
  EXPECT_TRUE(gives("_contrib_quantize", {}, {tensor({3}, {-1, 0, 1}), end(-1), end(1)}, {3}, {0, 0, 255}));
  EXPECT_TRUE(gives("_contrib_dequantize", {}, {whole<std::uint8_t>({0, 100}), end(-5), end(3)}, {2}, {0, 1.956947088}));
  const Tensor x = tensor({12}, {-2, -1, 0, .5, .75, 1, 2, 2.5, 3, kNan, kInfinity, -kInfinity});
  for (const double low : {-1.5, .5}) {
    const Texts from{{"out_type", "uint8"}, {"min_calib_range", std::to_string(low)}, {"max_calib_range", "2.5"}};
    EXPECT_TRUE(gives("_contrib_quantize_v2", from, {x}, {12}, {0, 0, 0, 51, 77, 102, 204, 255, 255, 0, 255, 0}));
    EXPECT_TRUE(gives("_contrib_quantize_v2", from, {x}, {1}, {low}, 1));
    EXPECT_TRUE(gives("_contrib_quantize", {}, {x, end(low), end(2.5)}, {12}, {0, 0, 0, 51, 76, 102, 204, 255, 255, 0, 255, 0}));
  }
  const Texts is_signed{{"out_type", "int8"}};
  EXPECT_TRUE(
      gives("_contrib_quantize", is_signed, {x, end(-5), end(3)}, {12}, {-51, -25, 0, 13, 19, 25, 51, 64, 76, 127, 127, -128}));
  EXPECT_TRUE(gives("_contrib_quantize_v2", is_signed, {tensor({3}, {-4, 1, 3})}, {3}, {-128, 32, 96}));
}

TEST(Quantization, FindsTheRangeInTheDataIfNoneIsCalibrated) {
  const Tensor x = tensor({1, 6}, {-1.5, .2, .7, 3, -.01, 2.2});
  for (const char* type : {"int8", "auto"}) {
    EXPECT_TRUE(gives("_contrib_quantize_v2", {{"out_type", type}}, {x}, {1, 6}, {-64, 8, 30, 127, 0, 94}));
    EXPECT_TRUE(gives("_contrib_quantize_v2", {{"out_type", type}}, {x}, {1}, {-3}, 1));
    EXPECT_TRUE(gives("_contrib_quantize_v2", {{"out_type", type}}, {x}, {1}, {3}, 2));
  }
  const Tensor positive = tensor({3}, {0, 5, 2.5});
  EXPECT_TRUE(gives("_contrib_quantize_v2", {{"out_type", "uint8"}}, {positive}, {3}, {0, 255, 128}));
  EXPECT_TRUE(gives("_contrib_quantize_v2", {{"out_type", "uint8"}}, {positive}, {1}, {5}, 2));
  const Tensor sums = whole<std::int32_t>({8436, 1008, -8791});
  const std::vector<Tensor> inputs{sums, end(-383280.97), end(383280.97)};
  EXPECT_TRUE(gives("_contrib_requantize", {}, inputs, {3}, {122, 15, -127}));
  const auto outputs = apply("_contrib_requantize", {}, inputs);
  EXPECT_NEAR(outputs->at(1).tensor.values<float>()[0], -1.5690099, 1e-6);
  EXPECT_NEAR(outputs->at(2).tensor.values<float>()[0], 1.5690099, 1e-6);
  EXPECT_TRUE(gives("_contrib_requantize", {{"out_type", "uint8"}}, inputs, {3}, {245, 29, 0}));
}

TEST(Quantization, OfAProductSumsIn32BitsOrIsReal) {
  const std::vector<Tensor> inputs{
      whole<std::int8_t>({-64, 8, 127}), whole<std::int8_t>({-74, 2, 127}), end(-3), end(3), end(-5.7), end(5.7)};
  EXPECT_TRUE(gives("_contrib_quantized_elemwise_mul", {}, inputs, {3}, {4736, 16, 16129}));
  const auto outputs = apply("_contrib_quantized_elemwise_mul", {}, inputs);
  EXPECT_NEAR(outputs->at(2).tensor.values<float>()[0], 2276766.5, 1);
  const Texts within{{"min_calib_range", "-20"}, {"max_calib_range", "9"}};
  EXPECT_TRUE(gives("_contrib_quantized_elemwise_mul", within, inputs, {3}, {31, 0, 108}));
  const auto real = apply("_contrib_quantized_elemwise_mul", {{"enable_float_output", "True"}}, inputs);
  ASSERT_EQ(real->size(), 1u);
  // As in MXNet, which divides by 127.5 where its range divides by 127.
  EXPECT_NEAR(real->front().tensor.values<float>()[0], 64 * 3 / 127.5 * 74 * 5.7 / 127.5, 1e-5);
}

// MXNet uses gamma here whatever fix_gamma says.
TEST(Quantization, OfABatchNormIsInItsCalibratedRange) {
  const Tensor data = tensor<std::int8_t>({1, 2, 1, 2}, {-111, 16, 127, -64});
  const std::vector<Tensor> inputs{
      data, tensor({2}, {1.5, 2}), tensor({2}, {.1, -.2}), tensor({2}, {.3, .4}), tensor({2}, {2, 3}), end(-8), end(8)};
  const Texts within{{"min_calib_range", "-9"}, {"max_calib_range", "12"}};
  EXPECT_TRUE(gives("_contrib_quantized_batch_norm", within, inputs, {1, 2, 1, 2}, {-81, 9, 91, -56}));
  EXPECT_TRUE(gives("_contrib_quantized_batch_norm", within, inputs, {1}, {-9}, 1));
  EXPECT_TRUE(refuses("_contrib_quantized_batch_norm", {}, inputs, "min_calib_range"));
}

TEST(Quantization, OfAnEmbeddingTakesRows) {
  const std::vector<Tensor> inputs{tensor({3}, {1, 0, 9}), tensor<std::int8_t>({2, 2}, {1, 2, -3, 4}), end(-1), end(1)};
  EXPECT_TRUE(
      gives("_contrib_quantized_embedding", {{"input_dim", "2"}, {"output_dim", "2"}}, inputs, {3, 2}, {-3, 4, 1, 2, -3, 4}));
  EXPECT_TRUE(gives("_contrib_quantized_embedding", {{"input_dim", "2"}, {"output_dim", "2"}}, inputs, {1}, {1}, 2));
}

// The step of the 32-bit numbers is 1.
TEST(Quantization, RequantizesTo8Bits) {
  const Tensor sums = whole<std::int32_t>({64, -200, 3});
  const Texts within{{"min_calib_range", "-127"}, {"max_calib_range", "100"}};
  EXPECT_TRUE(gives("_contrib_requantize", within, {sums, end(-2147483647), end(2147483647)}, {3}, {64, -128, 3}));
  const Texts unsigned_within{{"out_type", "uint8"}, {"min_calib_range", "0"}, {"max_calib_range", "255"}};
  EXPECT_TRUE(gives("_contrib_requantize", unsigned_within, {sums, end(-2147483647), end(2147483647)}, {3}, {64, 0, 3}));
}

// Steps of 1 and 0.5: 2 * 4 + 3 * 5 = 23 steps of 0.5, and a bias of 10 steps of 0.1.
TEST(Quantization, OfALayerSumsIn32Bits) {
  const Tensor data = tensor<std::int8_t>({1, 2}, {2, 3}), weight = tensor<std::int8_t>({1, 2}, {4, 5});
  const Texts layer{{"num_hidden", "1"}, {"no_bias", "True"}};
  const std::vector<Tensor> inputs{data, weight, end(-127), end(127), end(-63.5), end(63.5)};
  EXPECT_TRUE(gives("_contrib_quantized_fully_connected", layer, inputs, {1, 1}, {23}));
  const auto outputs = apply("_contrib_quantized_fully_connected", layer, inputs);
  EXPECT_FLOAT_EQ(outputs->at(2).tensor.values<float>()[0], 0.5F * 2147483647);
  EXPECT_FLOAT_EQ(outputs->at(1).tensor.values<float>()[0], -0.5F * 2147483647);
  const std::vector<Tensor> with_bias{data,       weight,   whole<std::int8_t>({10}), end(-127), end(127), end(-63.5), end(63.5),
                                      end(-12.7), end(12.7)};
  EXPECT_TRUE(gives("_contrib_quantized_fully_connected", {{"num_hidden", "1"}}, with_bias, {1, 1}, {25}));
  EXPECT_TRUE(refuses("_contrib_quantized_fully_connected", {{"num_hidden", "1"}}, inputs, "6 inputs"));
}

// With uint8 MXNet takes the data's range as that of int8, and the bias as it is.
TEST(Quantization, OfAConvolutionIsMxnets) {
  const Tensor data = tensor<std::uint8_t>({1, 1, 2, 2}, {1, 2, 3, 4}), weight = tensor<std::int8_t>({1, 1, 1, 1}, {3});
  const Texts layer{{"kernel", "(1, 1)"}, {"num_filter", "1"}, {"no_bias", "True"}};
  EXPECT_TRUE(gives("_contrib_quantized_conv", layer, {data, weight, end(0), end(255), end(-127), end(127)}, {1, 1, 2, 2},
                    {3, 6, 9, 12}));
  const auto said = apply("_contrib_quantized_conv", layer, {data, weight, end(0), end(255), end(-127), end(127)});
  EXPECT_FLOAT_EQ(said->at(2).tensor.values<float>()[0], 255.0F / 127 * 2147483648.0F);
  const auto small = apply("_contrib_quantized_conv", layer, {data, weight, end(0), end(2), end(-.5), end(.5)});
  EXPECT_FLOAT_EQ(small->at(1).tensor.values<float>()[0], -133144.25F);
  EXPECT_FLOAT_EQ(small->at(2).tensor.values<float>()[0], 133144.25F);
  const Texts with_bias{{"kernel", "(1, 1)"}, {"num_filter", "1"}};
  const std::vector<Tensor> unsigned_data{data,       weight,   whole<std::int8_t>({10}), end(0), end(255), end(-127), end(127),
                                          end(-12.7), end(12.7)};
  EXPECT_TRUE(gives("_contrib_quantized_conv", with_bias, unsigned_data, {1, 1, 2, 2}, {13, 16, 19, 22}));
  const std::vector<Tensor> signed_data{tensor<std::int8_t>({1, 1, 2, 2}, {1, 2, 3, 4}),
                                        weight,
                                        whole<std::int8_t>({10}),
                                        end(-127),
                                        end(127),
                                        end(-127),
                                        end(127),
                                        end(-12.7),
                                        end(12.7)};
  EXPECT_TRUE(gives("_contrib_quantized_conv", with_bias, signed_data, {1, 1, 2, 2}, {4, 7, 10, 13}));
}

// Of uint8, an activation gives the same bytes as int8.
TEST(Quantization, KeepsTheTypeOfWhatIsPooledFlattenedOrCut) {
  const Tensor data = tensor<std::int8_t>({1, 1, 1, 2}, {-3, 5});
  const Texts pool{{"kernel", "(1, 2)"}, {"pool_type", "max"}};
  const auto pooled = apply("_contrib_quantized_pooling", pool, {data, end(-2), end(2)});
  ASSERT_TRUE(pooled.ok()) << pooled.status().to_string();
  EXPECT_EQ(pooled->front().tensor.dtype(), DType::kInt8);
  EXPECT_TRUE(gives("_contrib_quantized_pooling", pool, {data, end(-2), end(2)}, {1, 1, 1, 1}, {5}));
  EXPECT_TRUE(gives("_contrib_quantized_flatten", {}, {data, end(-2), end(2)}, {1, 2}, {-3, 5}));
  EXPECT_TRUE(gives("_contrib_quantized_act", {{"act_type", "relu"}}, {data, end(-2), end(2)}, {1, 1, 1, 2}, {0, 5}));
  const Tensor bytes = whole<std::uint8_t>({0, 100, 200, 255});
  const auto act = apply("_contrib_quantized_act", {{"act_type", "relu"}}, {bytes, end(0), end(2)});
  ASSERT_TRUE(act.ok()) << act.status().to_string();
  EXPECT_EQ(act->front().tensor.dtype(), DType::kInt8);
  EXPECT_TRUE(gives("_contrib_quantized_act", {{"act_type", "relu"}}, {bytes, end(0), end(2)}, {4}, {0, 100, -56, -1}));
  EXPECT_TRUE(gives("_contrib_quantized_act", {{"act_type", "relu"}}, {data, end(-2), end(2)}, {1}, {-2}, 1));
}

// Both have steps of 1. The joined range reaches to 255.
TEST(Quantization, JoinsRanges) {
  const std::vector<Tensor> inputs{whole<std::int8_t>({127}), whole<std::uint8_t>({255}), end(-127), end(127), end(0), end(255)};
  const Texts join{{"num_args", "2"}, {"dim", "0"}};
  EXPECT_TRUE(gives("_contrib_quantized_concat", join, inputs, {2}, {63, 127}));
  EXPECT_TRUE(gives("_contrib_quantized_concat", join, inputs, {1}, {-127}, 1));
  EXPECT_TRUE(gives("_contrib_quantized_concat", join, inputs, {1}, {255}, 2));
}

TEST(Quantization, AddsIn32BitsOrInACalibratedRange) {
  const Tensor a = whole<std::int8_t>({127, -127}), b = whole<std::int8_t>({127, 127});
  const std::vector<Tensor> inputs{a, b, end(-127), end(127), end(-254), end(254)};
  const auto sums = apply("_contrib_quantized_elemwise_add", {}, inputs);
  ASSERT_TRUE(sums.ok()) << sums.status().to_string();
  EXPECT_NEAR(sums->front().tensor.values<std::int32_t>()[0], 2139062272, 256);  // float32 has 24 of the 32 bits
  EXPECT_NEAR(sums->front().tensor.values<std::int32_t>()[1], 713020736, 256);
  EXPECT_TRUE(gives("_contrib_quantized_elemwise_add", {}, inputs, {1}, {381}, 2));
  const Texts within{{"min_calib_range", "-762"}, {"max_calib_range", "762"}};
  EXPECT_TRUE(gives("_contrib_quantized_elemwise_add", within, inputs, {2}, {64, 21}));
}

}  // namespace
}  // namespace shoal::worker
