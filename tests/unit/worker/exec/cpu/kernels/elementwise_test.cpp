// Element-wise kernels: every function, type and kind of broadcasting.
#include "tests/unit/worker/exec/cpu/kernels/as_oracle.hpp"
#include "worker/exec/cpu/kernels/conversion.hpp"
#include "worker/graph/shapes.hpp"
#include "worker/ops/activation.hpp"
#include "worker/ops/arithmetic.hpp"
#include "worker/ops/binary_functions.hpp"
#include "worker/ops/cast.hpp"
#include "worker/ops/elements.hpp"
#include "worker/ops/selection.hpp"
#include "worker/ops/unary.hpp"

namespace shoal::worker {
namespace {

using testing::all_kinds;
using testing::as_oracle;
using testing::as_oracle_in_place;
using testing::odd_numbers;
using testing::types_of;

const Shape kShape{1547};         // three blocks and a bit, which no vector divides
const Shape kLarge{3, 17, 1001};  // enough for two threads

TEST(ElementwiseKernels, ComputeEveryFunctionOfOneNumberInEveryType) {
  for (const DType dtype : types_of(Numbers())) {
    const Tensor data = odd_numbers(dtype, kShape);
    for (const auto kind : all_kinds<UnaryKind>()) {
      if (kind == UnaryKind::kBitNot && is_float(dtype)) continue;
      EXPECT_TRUE(as_oracle({&ops::kUnary, UnaryAttributes{kind}, {data}}));
    }
    for (const auto kind : all_kinds<ActivationKind>())
      EXPECT_TRUE(as_oracle({&ops::kActivation, ActivationAttributes{kind}, {data}}));
    EXPECT_TRUE(as_oracle({&ops::kNanToNum, NanToNumAttributes{}, {data}}));
    EXPECT_TRUE(as_oracle({&ops::kNanToNum, NanToNumAttributes{1, 2, -3}, {data}}));
    for (const std::int64_t decimals : {0, 2, -1, -3, -30, 400})
      EXPECT_TRUE(as_oracle({&ops::kAround, AroundAttributes{decimals}, {data}}));
    EXPECT_TRUE(as_oracle({&ops::kClip, ClipAttributes{-2.25, 40}, {data}}));
    EXPECT_TRUE(as_oracle({&ops::kClip, ClipAttributes{3, -1}, {data}}));
    EXPECT_TRUE(as_oracle({&ops::kClip, ClipAttributes{0, 6}, {data}}));
    EXPECT_TRUE(as_oracle({&ops::kClip, ClipAttributes{0.1, 1e30}, {data}}));
    EXPECT_TRUE(as_oracle({&ops::kQuadratic, QuadraticAttributes{0.5, -2, 3}, {data}}));
    EXPECT_TRUE(as_oracle({&ops::kDivSqrtDim, {}, {odd_numbers(dtype, {7, 24})}}));
  }
}

TEST(ElementwiseKernels, ComputeLeakyFunctionsOfFloats) {
  for (const DType dtype : types_of(Floats())) {
    const Tensor data = odd_numbers(dtype, {3, 5, 103});
    for (const auto kind : all_kinds<LeakyKind>()) {
      if (kind == LeakyKind::kPrelu) continue;
      // elu and selu of float32 have an exponential of their own, within 3 units in the last place.
      const bool is_exponential = kind == LeakyKind::kElu || kind == LeakyKind::kSelu;
      EXPECT_TRUE(as_oracle({&ops::kLeakyRelu, LeakyAttributes{kind, 0.3}, {data}}, !is_exponential                ? 0
                                                                                    : dtype_size_bytes(dtype) == 2 ? 1e-2
                                                                                                                   : 1e-6));
    }
    EXPECT_TRUE(as_oracle({&ops::kHardSigmoid, HardSigmoidAttributes{0.3, 0.4}, {data}}));
    const DType slopes = dtype == DType::kFloat64 ? dtype : DType::kFloat32;
    for (const Shape& shape : {Shape{5}, Shape{1}, Shape{3, 5}, Shape{3, 1}})
      EXPECT_TRUE(as_oracle({&ops::kLeakyRelu, LeakyAttributes{LeakyKind::kPrelu}, {data, odd_numbers(slopes, shape, 2)}}));
  }
}

TEST(ElementwiseKernels, ComputeEveryFunctionOfTwoNumbersInEveryType) {
  for (const DType dtype : types_of(Numbers())) {
    for (const auto kind : all_kinds<BinaryKind>()) {
      if (is_of_integers(kind) && is_float(dtype)) continue;
      const Tensor a = odd_numbers(dtype, kShape, 1), b = odd_numbers(dtype, kShape, 2);
      EXPECT_TRUE(as_oracle({&ops::kBinary, BinaryAttributes{kind}, {a, b}}));
      for (const double number : {0.0, 2.5, -3.0}) {
        for (const bool reversed : {false, true}) {
          EXPECT_TRUE(as_oracle({&ops::kScalar, ScalarAttributes{kind, number, reversed, true}, {a}}));
          EXPECT_TRUE(as_oracle({&ops::kScalar, ScalarAttributes{kind, number, reversed, false}, {a}}));
        }
      }
    }
  }
}

TEST(ElementwiseKernels, ComputeEveryFunctionOfBools) {
  const Tensor a = odd_numbers(DType::kBool, kShape, 1), b = odd_numbers(DType::kBool, kShape, 2);
  for (const auto kind : {UnaryKind::kLogicalNot, UnaryKind::kBitNot})
    EXPECT_TRUE(as_oracle({&ops::kUnary, UnaryAttributes{kind}, {a}}));
  for (const auto kind : all_kinds<BinaryKind>()) {
    if (!kind_of_bools(kind)) continue;
    EXPECT_TRUE(as_oracle({&ops::kBinary, BinaryAttributes{kind, true, Promotion::kCommon}, {a, b}}));
    for (const double number : {0.0, 3.0}) {
      EXPECT_TRUE(as_oracle({&ops::kScalar, ScalarAttributes{kind, number, false, true, Promotion::kCommon}, {a}}));
      EXPECT_TRUE(as_oracle({&ops::kScalar, ScalarAttributes{kind, number, true, true, Promotion::kCommon}, {a}}));
    }
  }
}

TEST(ElementwiseKernels, DivideEveryPairOfBytes) {
  for (const DType dtype : {DType::kInt8, DType::kUInt8, DType::kInt16, DType::kUInt16}) {
    Tensor a = Tensor::create(dtype, {65536}).value(), b = Tensor::create(dtype, {65536}).value();
    dispatch(Integers(), dtype, [&]<typename T>() {
      TensorView left = a.view(), right = b.view();
      for (std::int64_t i = 0; i < 65536; ++i) {
        elements<T>(left)[i] = static_cast<T>(sizeof(T) == 1 ? i / 256 : i);
        elements<T>(right)[i] = static_cast<T>(sizeof(T) == 1 ? i : i * 7919 % 523);
      }
    });
    EXPECT_TRUE(as_oracle({&ops::kBinary, BinaryAttributes{BinaryKind::kDiv}, {a, b}}));
  }
}

TEST(ElementwiseKernels, BroadcastAsNumPyDoes) {
  struct Pair {
    Shape a, b;
  };
  const Pair pairs[] = {{{4, 3, 5}, {3, 5}},
                        {{4, 3, 5}, {5}},
                        {{4, 3, 5}, {1}},
                        {{4, 3, 5}, {4, 1, 1}},
                        {{4, 1, 5}, {3, 1}},
                        {{1, 3, 1}, {4, 1, 5}},
                        {{}, {6}},
                        {{2, 1, 3, 1, 5}, {7, 1, 4, 1}},
                        {{600, 2}, {600, 1}},
                        {{3, 700}, {3, 1}},
                        {{1, 700}, {3, 1}},
                        {{0, 3}, {3}},
                        {{}, {}},
                        {{2, 3, 4, 5}, {3, 1, 5}},
                        {{31, 1, 900}, {1, 2, 1}}};
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kInt8, DType::kInt64}) {
    for (const Pair& pair : pairs) {
      const Tensor a = odd_numbers(dtype, pair.a, 1), b = odd_numbers(dtype, pair.b, 2);
      const BinaryAttributes minus{BinaryKind::kSub, true};
      EXPECT_TRUE(as_oracle({&ops::kBinary, minus, {a, b}})) << pair.a.to_string() << " and " << pair.b.to_string();
      EXPECT_TRUE(as_oracle({&ops::kBinary, minus, {b, a}})) << pair.b.to_string() << " and " << pair.a.to_string();
    }
  }
}

TEST(ElementwiseKernels, AddAnyNumberOfTensors) {
  for (const DType dtype : types_of(Numbers())) {
    std::vector<Tensor> src;
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
      src.push_back(odd_numbers(dtype, kLarge, seed));
      EXPECT_TRUE(as_oracle({&ops::kAddN, {}, src})) << seed;
    }
  }
}

TEST(ElementwiseKernels, SelectElementsOfEveryTypeByConditionsOfEveryType) {
  for (const DType dtype : types_of(AnyTypes())) {
    const Tensor x = odd_numbers(dtype, {4, 1, 301}, 1), y = odd_numbers(dtype, {3, 301}, 2);
    for (const DType condition : types_of(AnyTypes()))
      EXPECT_TRUE(as_oracle({&ops::kWhere, WhereAttributes{}, {odd_numbers(condition, {4, 3, 1}, 3), x, y}}));
    const Tensor a = odd_numbers(dtype, kLarge, 1), b = odd_numbers(dtype, kLarge, 2);
    EXPECT_TRUE(as_oracle({&ops::kWhere, WhereAttributes{true}, {odd_numbers(DType::kBool, kLarge, 3), a, b}}));
    EXPECT_TRUE(as_oracle({&ops::kWhere, WhereAttributes{true}, {odd_numbers(DType::kBool, {3}, 3), a, b}})) << "by rows";
  }
}

TEST(ElementwiseKernels, CastEveryTypeToEveryType) {
  for (const DType from : types_of(AnyTypes())) {
    for (const DType to : types_of(AnyTypes())) {
      EXPECT_TRUE(as_oracle({&ops::kCast, CastAttributes{to}, {odd_numbers(from, kLarge)}})) << dtype_name(to);
      EXPECT_TRUE(as_oracle({&ops::kCast, CastAttributes{to}, {odd_numbers(from, {})}})) << dtype_name(to);
    }
  }
  const std::vector<Tensor> mixed = {odd_numbers(DType::kFloat16, kShape), odd_numbers(DType::kFloat32, {3, 5}),
                                     odd_numbers(DType::kInt32, {9})};
  for (const bool narrow : {false, true}) EXPECT_TRUE(as_oracle({&ops::kAmpMulticast, MulticastAttributes{narrow}, mixed, 3}));
}

TEST(ElementwiseKernels, ConvertEveryHalfAndTheFloatsBetweenThem) {
  Tensor halves = Tensor::create(DType::kUInt16, {65536}).value();
  for (std::size_t i = 0; i < 65536; ++i) halves.values<std::uint16_t>()[i] = static_cast<std::uint16_t>(i);
  Tensor floats =
      Tensor::create(DType::kFloat32, {1 << 18}).value();  // the upper bits of every float, and roundings of the lower
  for (std::uint32_t i = 0; i < 1 << 18; ++i) {
    const std::uint32_t bits = i << 14 | (i % 3 == 0 ? 0 : i % 3 == 1 ? 1 : 0x2fff);
    floats.values<float>()[i] = std::bit_cast<float>(bits);
  }
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    TensorView half = halves.view();
    half.dtype = dtype;
    EXPECT_TRUE(as_oracle({&ops::kCast, CastAttributes{DType::kFloat32}, {Tensor(half, nullptr)}}));
    EXPECT_TRUE(as_oracle({&ops::kCast, CastAttributes{dtype}, {floats}}));
  }
}

TEST(ElementwiseKernels, WriteIntoAnInputThatNobodyNeeds) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kInt32, DType::kUInt8}) {
    const Tensor a = odd_numbers(dtype, kLarge, 1), b = odd_numbers(dtype, kLarge, 2), row = odd_numbers(dtype, {1001}, 3);
    EXPECT_TRUE(as_oracle_in_place({&ops::kUnary, UnaryAttributes{UnaryKind::kExp}, {a}}, 0));
    EXPECT_TRUE(as_oracle_in_place({&ops::kBinary, BinaryAttributes{BinaryKind::kMul}, {a, b}}, 1));
    EXPECT_TRUE(as_oracle_in_place({&ops::kBinary, BinaryAttributes{BinaryKind::kDiv, true}, {row, b}}, 1));
    EXPECT_TRUE(as_oracle_in_place({&ops::kAddN, {}, {a, b, a}}, 1));
    EXPECT_TRUE(as_oracle_in_place({&ops::kWhere, WhereAttributes{}, {a, b, row}}, 0));
    EXPECT_TRUE(as_oracle_in_place({&ops::kWhere, WhereAttributes{}, {row, a, b}}, 2));
  }
}

}  // namespace
}  // namespace shoal::worker
