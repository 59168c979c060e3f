// Normalization over the data, softmax, quantization, linear algebra: beside the oracle kernels.
#include "tests/unit/worker/exec/cpu/kernels/as_oracle.hpp"
#include "worker/ops/diagonal.hpp"
#include "worker/ops/elements.hpp"
#include "worker/ops/linalg.hpp"
#include "worker/ops/normalization.hpp"
#include "worker/ops/products.hpp"
#include "worker/ops/quantization.hpp"
#include "worker/ops/reduce.hpp"
#include "worker/ops/softmax.hpp"

namespace shoal::worker {
namespace {

using testing::as_oracle;
using testing::odd_numbers;
using testing::types_of;

/// Numbers of moderate size around `center`.
Tensor numbers_around(DType dtype, const Shape& shape, double center = 0, std::int64_t seed = 0) {
  Tensor tensor = Tensor::create(dtype, shape).value();
  TensorView view = tensor.view();
  dispatch(Numbers(), dtype, [&]<typename T>() {
    for (std::int64_t i = 0, end = view.element_count(); i < end; ++i)
      elements<T>(view)[i] = from_float<T>(center + static_cast<double>((i * 7919 + seed) % 129 - 64) / 32);
  });
  return tensor;
}

/// Of results up to 8: the last bit of half types, and some roundings of the others.
double rounding_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return 1e-12;
    case DType::kFloat16:
      return 4e-3;
    case DType::kBFloat16:
      return 3e-2;
    default:
      return 4e-6;
  }
}

TEST(LayerKernels, NormalizeAlongEveryAxisInEveryType) {
  for (const DType dtype : types_of(Floats())) {
    for (const Shape& shape : {Shape{5, 3, 70}, Shape{7, 1000}, Shape{2, 300, 9}, Shape{1}, Shape{40, 768}, Shape{3, 5, 600}}) {
      for (int axis = 0; axis < shape.rank(); ++axis) {
        const Tensor gamma = numbers_around(dtype, {shape[axis]}, 1, 3), beta = numbers_around(dtype, {shape[axis]}, 0, 5);
        EXPECT_TRUE(as_oracle({&ops::kLayerNorm, LayerNormAttributes{axis}, {numbers_around(dtype, shape), gamma, beta}, 3},
                              rounding_of(dtype)));
      }
    }
  }
}

TEST(LayerKernels, NormalizeNumbersFarFromZero) {
  const Tensor gamma = numbers_around(DType::kFloat32, {500}, 1), beta = numbers_around(DType::kFloat32, {500});
  EXPECT_TRUE(as_oracle(
      {&ops::kLayerNorm, LayerNormAttributes{}, {numbers_around(DType::kFloat32, {6, 500}, 1000), gamma, beta}, 3}, 1e-5));
}

TEST(LayerKernels, NormalizeGroups) {
  for (const DType dtype : types_of(Floats())) {
    for (const Shape& shape : {Shape{2, 6, 3, 3}, Shape{3, 12, 700}, Shape{2, 600, 1}}) {
      for (const std::int64_t groups : {1, 3, 0}) {
        const std::int64_t channels = shape[1], count = groups == 0 ? channels : groups;
        for (const std::int64_t length : {count, channels}) {
          const Tensor gamma = numbers_around(dtype, {length}, 1, 3), beta = numbers_around(dtype, {length}, 0, 5);
          EXPECT_TRUE(as_oracle(
              {&ops::kGroupNorm, GroupNormAttributes{groups, 1e-3, groups == 0}, {numbers_around(dtype, shape), gamma, beta}, 3},
              rounding_of(dtype)));
        }
      }
    }
  }
}

TEST(LayerKernels, SoftmaxTreatsOddNumbersAsTheOracleKernelDoes) {
  for (const auto kind : {SoftmaxKind::kSoftmax, SoftmaxKind::kLogSoftmax, SoftmaxKind::kSoftmin}) {
    for (const double temperature : {1.0, 2.5}) {
      for (const Shape& shape : {Shape{40, 9, 70}, Shape{300, 128}, Shape{5, 1}}) {
        for (int axis = 0; axis < shape.rank(); ++axis) {
          SoftmaxAttributes softmax{.kind = kind, .axis = axis, .temperature = temperature};
          EXPECT_TRUE(as_oracle({&ops::kSoftmax, softmax, {odd_numbers(DType::kFloat32, shape)}}, 2e-6));
          EXPECT_TRUE(as_oracle({&ops::kSoftmax, softmax, {numbers_around(DType::kFloat32, shape)}}, 2e-6));
        }
        const SoftmaxAttributes flat{.kind = kind, .flatten_rest = true, .temperature = temperature};
        EXPECT_TRUE(as_oracle({&ops::kSoftmax, flat, {numbers_around(DType::kFloat32, shape)}}, 2e-6));
      }
    }
  }
}

TEST(LayerKernels, SoftmaxStopsAtLengthsOfAnyValue) {
  for (const DType lengths : {DType::kInt32, DType::kInt64}) {
    const SoftmaxAttributes softmax{.use_length = true};
    EXPECT_TRUE(as_oracle(
        {&ops::kSoftmax, softmax, {numbers_around(DType::kFloat32, {9, 50, 33}), odd_numbers(lengths, {9, 50})}}, 2e-6));
  }
}

TEST(LayerKernels, QuantizeAsTheOracleKernelDoes) {
  const Tensor data = odd_numbers(DType::kFloat32, {3, 17, 401});
  const Tensor min = numbers_around(DType::kFloat32, {1}, -3), max = numbers_around(DType::kFloat32, {1}, 90);
  for (const DType dtype : {DType::kInt8, DType::kUInt8, DType::kInt32}) {
    EXPECT_TRUE(as_oracle({&ops::kQuantize, QuantizeAttributes{dtype}, {data, min, max}}));
    EXPECT_TRUE(as_oracle({&ops::kQuantize, QuantizeAttributes{}, {data, min, max, odd_numbers(dtype, {2})}}));
    EXPECT_TRUE(as_oracle({&ops::kDequantize, DequantizeAttributes{}, {odd_numbers(dtype, {3, 17, 401}), min, max}}));
    EXPECT_TRUE(as_oracle({&ops::kQuantizedStep, {}, {odd_numbers(dtype, {3}), min, max}}));
  }
}

TEST(LayerKernels, SumAlongEveryAxisInEveryType) {
  for (const DType dtype : types_of(Numbers())) {
    const Tensor data = numbers_around(dtype, {7, 30, 90}, 1);
    for (const auto axis : {std::optional<std::int64_t>(), std::optional<std::int64_t>(0), std::optional<std::int64_t>(2)})
      EXPECT_TRUE(as_oracle({&ops::kCumSum, CumSumAttributes{axis}, {data}}));
  }
}

TEST(LayerKernels, DoLinearAlgebraAsTheOracleKernelDoes) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    const Tensor triangles = numbers_around(dtype, {3, 12, 12}, 8), wide = numbers_around(dtype, {3, 12, 40}),
                 tall = numbers_around(dtype, {3, 40, 12});
    for (const bool transpose : {false, true}) {
      for (const bool lower : {false, true}) {
        for (const Operator* const op : {&ops::kTriangularProduct, &ops::kTriangularSolve}) {
          EXPECT_TRUE(as_oracle({op, TriangularAttributes{transpose, false, lower, 0.5}, {triangles, wide}}));
          EXPECT_TRUE(as_oracle({op, TriangularAttributes{transpose, true, lower, 2}, {triangles, tall}}));
        }
      }
    }
  }
  for (const DType dtype : types_of(Floats()))
    EXPECT_TRUE(as_oracle({&ops::kKhatriRao, {}, {numbers_around(dtype, {9, 50}), numbers_around(dtype, {40, 50})}}));
  for (const DType dtype : types_of(AnyTypes())) {
    for (const std::int64_t offset : {0, 2, -1}) {
      const Tensor matrices = odd_numbers(dtype, {4, 30, 30});
      EXPECT_TRUE(as_oracle({&ops::kDiagonal, DiagonalAttributes{offset, -2, -1, true}, {matrices}}));
      EXPECT_TRUE(as_oracle({&ops::kDiagonal, DiagonalAttributes{offset, 2, 0}, {odd_numbers(dtype, {9, 200, 30})}}));
      EXPECT_TRUE(as_oracle({&ops::kDiagonal, DiagonalAttributes{offset}, {odd_numbers(dtype, {150})}}));
      EXPECT_TRUE(as_oracle({&ops::kMakeDiagonal, MakeDiagonalAttributes{offset}, {odd_numbers(dtype, {4, 100})}}));
      for (const bool lower : {false, true}) {
        EXPECT_TRUE(as_oracle({&ops::kExtractTriangle, TriangleAttributes{offset, lower}, {matrices}}));
        EXPECT_TRUE(as_oracle({&ops::kMakeTriangle, TriangleAttributes{offset, lower}, {odd_numbers(dtype, {4, 15})}}));
      }
    }
  }
}

}  // namespace
}  // namespace shoal::worker
