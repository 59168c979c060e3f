// Reductions of any axes, in every type.
#include <omp.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "tests/unit/worker/exec/cpu/kernels/as_oracle.hpp"
#include "worker/ops/elements.hpp"
#include "worker/ops/reduce.hpp"

namespace shoal::worker {
namespace {

using testing::all_kinds;
using testing::as_oracle;
using testing::odd_numbers;
using testing::types_of;

// Sums are computed in double, and rounded to float: another order rarely changes the last bit, and that of double numbers some.
constexpr double kOtherOrder = 1e-6;

/// Numbers of moderate size: sums of the odd ones are infinite or NaN.
Tensor numbers_to_reduce(DType dtype, const Shape& shape) {
  Tensor tensor = odd_numbers(dtype, shape);
  TensorView view = tensor.view();
  dispatch(Numbers(), dtype, [&]<typename T>() {
    for (std::int64_t i = 0, end = view.element_count(); i < end; ++i)
      elements<T>(view)[i] = from_float<T>(static_cast<double>((i * 7919) % 29 - 9) / 8);
  });
  return tensor;
}

struct Reduced {
  Shape shape;
  Dims axes;
};
const Reduced kReductions[] = {{{7, 300}, {1}},         {{7, 300}, {0}},       {{5, 3, 4, 6}, {1, 3}}, {{5, 3, 4, 6}, {0, 2}},
                               {{2, 5, 70, 9}, {1, 2}}, {{3, 1, 600}, {0, 1}}, {{2, 3, 1100}, {0, 2}}, {{1}, {0}},
                               {{4, 1000}, {}},         {{3, 70001}, {1}},     {{90001}, {0}},         {{300, 2, 300}, {0}}};

TEST(Reductions, OfIntegersAreTheOracleKernels) {
  for (const DType dtype : types_of(Integers())) {
    for (const ReduceKind kind : all_kinds<ReduceKind>()) {
      for (const Reduced& reduced : kReductions)
        EXPECT_TRUE(as_oracle({&ops::kReduce, ReduceAttributes{kind, reduced.axes}, {odd_numbers(dtype, reduced.shape)}}));
    }
  }
}

TEST(Reductions, OfFloatsAreTheOracleKernelsButForTheOrderOfSums) {
  for (const DType dtype : types_of(Floats())) {
    for (const ReduceKind kind : all_kinds<ReduceKind>()) {
      for (const Reduced& reduced : kReductions)
        EXPECT_TRUE(as_oracle({&ops::kReduce, ReduceAttributes{kind, reduced.axes}, {numbers_to_reduce(dtype, reduced.shape)}},
                              kOtherOrder));
    }
  }
}

/// The same, with a NaN here and there, and both infinities.
Tensor numbers_with_gaps(DType dtype, const Shape& shape) {
  Tensor tensor = numbers_to_reduce(dtype, shape);
  TensorView view = tensor.view();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  dispatch(Floats(), dtype, [&]<typename T>() {
    for (std::int64_t i = 0, end = view.element_count(); i < end; ++i) {
      if (i % 97 == 5) elements<T>(view)[i] = from_float<T>(std::nan(""));
      if (i % 211 == 7) elements<T>(view)[i] = from_float<T>(kInfinity);
      if (i % 331 == 9) elements<T>(view)[i] = from_float<T>(-kInfinity);
    }
  });
  return tensor;
}

TEST(Reductions, TreatNanAndInfinityAsTheOracleKernelDoes) {
  for (const DType dtype : types_of(Floats())) {
    for (const ReduceKind kind : all_kinds<ReduceKind>()) {
      for (const Reduced& reduced : {Reduced{{400, 40}, {1}}, Reduced{{40, 400}, {0}}, Reduced{{9, 30, 3}, {1}}}) {
        EXPECT_TRUE(as_oracle({&ops::kReduce, ReduceAttributes{kind, reduced.axes}, {numbers_with_gaps(dtype, reduced.shape)}},
                              kOtherOrder));
      }
    }
  }
}

/// 0 to 20474: their product is 0, but that of many of them is infinite.
TEST(Reductions, AProductThatBeginsWithZeroIsZero) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    for (const std::int64_t count : {200, 20475, 100000}) {
      Tensor range = numbers_to_reduce(dtype, {count});
      TensorView view = range.view();
      dispatch(Floats(), dtype, [&]<typename T>() {
        for (std::int64_t i = 0; i < count; ++i) elements<T>(view)[i] = from_float<T>(static_cast<double>(i));
      });
      EXPECT_TRUE(as_oracle({&ops::kReduce, ReduceAttributes{ReduceKind::kProd, {0}}, {range}}));
    }
  }
}

TEST(Reductions, GiveTheSameBitsWithEveryNumberOfThreads) {
  for (const Reduced& reduced : kReductions) {
    const Tensor data = numbers_to_reduce(DType::kFloat64, reduced.shape);
    TensorView noise = data.view();
    for (std::int64_t i = 0, end = noise.element_count(); i < end; ++i)
      elements<double>(noise)[i] *= 1 + 1e-9 * static_cast<double>(i % 1013);
    const Node node{.op = &ops::kReduce, .name = "r", .attributes = ReduceAttributes{ReduceKind::kSum, reduced.axes}};
    std::vector<double> first;
    for (const int threads : {1, 2, 3, 4}) {
      const cpu::TensorType src[] = {{DType::kFloat64, reduced.shape}};
      const cpu::Loop loop = cpu::find_kernel(&ops::kReduce)->make(node, std::span(src), {});
      std::vector<double> sums(static_cast<std::size_t>(noise.element_count()));
      std::byte* const operands[] = {noise.data, reinterpret_cast<std::byte*>(sums.data())};
      const int before = ::omp_get_max_threads();
      ::omp_set_num_threads(threads);
      loop(operands);
      ::omp_set_num_threads(before);
      if (first.empty()) first = sums;
      EXPECT_EQ(std::memcmp(first.data(), sums.data(), sums.size() * sizeof(double)), 0)
          << reduced.shape.to_string() << ", " << threads << " threads";
    }
  }
}

}  // namespace
}  // namespace shoal::worker
