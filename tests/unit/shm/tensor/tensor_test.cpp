#include "shoal/tensor.hpp"

#include <gtest/gtest.h>

#include <cstdint>

namespace shoal {
namespace {

TEST(DType, NamesAndSizesAgree) {
  for (int number = 1; number <= static_cast<int>(DType::kBool); ++number) {
    const auto dtype = static_cast<DType>(number);
    EXPECT_GT(dtype_size_bytes(dtype), 0u);
    EXPECT_EQ(parse_dtype(dtype_name(dtype)).value(), dtype);
  }
  EXPECT_EQ(dtype_size_bytes(static_cast<DType>(0)), 0u);
  EXPECT_EQ(dtype_size_bytes(static_cast<DType>(200)), 0u);
  EXPECT_EQ(dtype_name(static_cast<DType>(200)), "invalid");
  EXPECT_EQ(parse_dtype("float33").status().code(), StatusCode::kInvalidArgument);
}

TEST(Shape, CountsElements) {
  EXPECT_EQ(Shape{}.element_count(), 1);
  EXPECT_EQ((Shape{2, 3, 4}).element_count(), 24);
  EXPECT_EQ((Shape{2, 0}).element_count(), 0);
  EXPECT_EQ((Shape{2, -1}).element_count(), -1);
  EXPECT_EQ((Shape{std::int64_t{1} << 40, std::int64_t{1} << 40}).element_count(), -1);
}

TEST(Shape, ReadsAsText) {
  EXPECT_EQ((Shape{1, 3, -1}).to_string(), "1x3x?");
  EXPECT_EQ(Shape{}.to_string(), "scalar");
}

TEST(ShapeDeathTest, TakesNoMoreThanEightDimensions) { EXPECT_DEATH((Shape{1, 1, 1, 1, 1, 1, 1, 1, 1}), "check failed"); }

TEST(Tensor, IsZeroedAlignedAndSharedByCopies) {
  Tensor tensor = Tensor::create(DType::kFloat32, {3, 5}).value();
  EXPECT_EQ(tensor.size_bytes(), 60u);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.view().data) % 64, 0u);
  for (const float value : tensor.values<float>()) EXPECT_EQ(value, 0.0f);
  const Tensor copy = tensor;
  tensor.values<float>()[7] = 2;
  EXPECT_EQ(copy.values<float>()[7], 2.0f);
}

TEST(Tensor, OfNoElementsOrNoDimensionsIsATensor) {
  EXPECT_EQ(Tensor::create(DType::kInt64, {0, 4}).value().size_bytes(), 0u);
  EXPECT_EQ(Tensor::create(DType::kInt64, {}).value().size_bytes(), 8u);
}

TEST(Tensor, CannotBeOfAnOpenOrAbsurdShape) {
  EXPECT_EQ(Tensor::create(DType::kInt8, {-1}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Tensor::create(DType::kFloat64, {std::int64_t{1} << 62}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Tensor::create(DType::kInvalid, {1}).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace shoal
