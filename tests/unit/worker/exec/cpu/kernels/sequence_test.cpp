// Kernels of sequences, and the functions of recurrent cells.
#include "worker/ops/sequence.hpp"

#include <cmath>
#include <limits>

#include "tests/unit/worker/exec/cpu/kernels/as_oracle.hpp"
#include "worker/exec/cpu/kernels/exponential.hpp"
#include "worker/exec/cpu/kernels/vectorized.hpp"

namespace shoal::worker {
namespace {

using testing::as_oracle;
using testing::as_oracle_in_place;
using testing::Case;
using testing::odd_numbers;
using testing::types_of;

TEST(SequenceKernels, MoveElementsOfEveryType) {
  for (const DType dtype : types_of(AnyTypes())) {
    const Tensor data = odd_numbers(dtype, {7, 9, 401}), few = odd_numbers(dtype, {5, 3});
    for (const std::int64_t axis : {0, 1}) {
      const Tensor lengths = odd_numbers(DType::kFloat32, {axis == 0 ? 9 : 7}, 3),
                   short_lengths = odd_numbers(DType::kInt8, {axis == 0 ? 3 : 5});
      const Case mask{&ops::kSequenceMask, SequenceMaskAttributes{axis, -2.5}, {data, lengths}};
      EXPECT_TRUE(as_oracle(mask));
      EXPECT_TRUE(as_oracle_in_place(mask, 0));
      EXPECT_TRUE(as_oracle({&ops::kSequenceMask, SequenceMaskAttributes{axis, 1e18}, {few, short_lengths}}));
      for (const Operator* const op : {&ops::kSequenceLast, &ops::kSequenceReverse}) {
        EXPECT_TRUE(as_oracle({op, SequenceAttributes{axis}, {data, lengths}}));
        EXPECT_TRUE(as_oracle({op, SequenceAttributes{axis}, {few, short_lengths}}));
      }
    }
  }
}

TEST(SequenceKernels, TakeLengthsOfEveryType) {
  const Tensor data = odd_numbers(DType::kFloat32, {6, 40});
  for (const DType dtype : types_of(Numbers())) {
    const Tensor lengths = odd_numbers(dtype, {40});
    EXPECT_TRUE(as_oracle({&ops::kSequenceMask, SequenceMaskAttributes{}, {data, lengths}}));
    EXPECT_TRUE(as_oracle({&ops::kSequenceReverse, SequenceAttributes{}, {data, lengths}}));
  }
}

TEST(RecurrentKernels, FunctionsOfGatesAreAsExactAsTheySay) {
  constexpr double kUnit = 0x1p-24;  // of the last place of a number, at most
  double sigmoid_error = 0, tanh_error = 0, expm1_error = 0;
  for (int i = -400000; i <= 400000; ++i) {
    const float x = static_cast<float>(i) * 0.00021F;
    const double sigmoid = 1 / (1 + std::exp(-static_cast<double>(x))), tanh = std::tanh(static_cast<double>(x));
    sigmoid_error = std::max(sigmoid_error, std::abs(cpu::vector_sigmoid(x) - sigmoid) / sigmoid);
    if (x < 0)
      expm1_error = std::max(expm1_error, std::abs((cpu::expm1_of_negative(x) / std::expm1(static_cast<double>(x))) - 1));
    if (x != 0) tanh_error = std::max(tanh_error, std::abs((cpu::vector_tanh(x) - tanh) / tanh));
  }
  EXPECT_LT(sigmoid_error, 2 * 3 * kUnit);
  EXPECT_LT(tanh_error, 2 * 4 * kUnit);
  EXPECT_LT(expm1_error, 2 * 3 * kUnit);
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(cpu::vector_sigmoid(kInfinity), 1);
  EXPECT_EQ(cpu::vector_sigmoid(-kInfinity), 0);
  EXPECT_EQ(cpu::vector_tanh(kInfinity), 1);
  EXPECT_EQ(cpu::vector_tanh(-kInfinity), -1);
  EXPECT_EQ(cpu::vector_tanh(0), 0);
  EXPECT_EQ(cpu::expm1_of_negative(-kInfinity), -1);
  EXPECT_EQ(cpu::expm1_of_negative(-1e-30F), -1e-30F);
  EXPECT_TRUE(std::isnan(cpu::expm1_of_negative(std::nanf(""))));
  EXPECT_TRUE(std::isnan(cpu::vector_sigmoid(std::nanf(""))) && std::isnan(cpu::vector_tanh(std::nanf(""))));
}

// log(sigmoid(-88.5)) is -88.5, and not -inf. From -88.73 on, e^-x is infinite in float32.
TEST(RecurrentKernels, SigmoidsGoOnBelowTheNormalNumbers) {
  for (int i = 0; i <= 5400; ++i) {
    const float x = -86 - static_cast<float>(i) * 0.0005F;
    const double power = std::exp(static_cast<double>(x));
    ASSERT_NEAR(cpu::vector_sigmoid(x), power, 2 * 3 * 0x1p-24 * power + 0.51 * 0x1p-149) << x;
  }
  EXPECT_EQ(cpu::vector_sigmoid(-89.1F), 0);
  EXPECT_EQ(cpu::vector_sigmoid(-1e30F), 0);
}

}  // namespace
}  // namespace shoal::worker
