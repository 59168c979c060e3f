#include "shoal/tensor.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include "tests/support/says.hpp"

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

TEST(Shape, OfNineDimensionsIsAnErrorOfTheCaller) {
  try {
    const Shape nine{1, 1, 1, 1, 1, 1, 1, 1, 1};
    ADD_FAILURE() << nine.to_string();
  } catch (const Error& error) {
    EXPECT_EQ(error.status().code(), StatusCode::kInvalidArgument);
    EXPECT_TRUE(test::says(error.what(), {"9 dimensions", "at most 8"}));
  }
  const std::vector<std::int64_t> dims(9, 1);
  EXPECT_EQ(Shape::make(dims).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Shape::make(std::span(dims).first(8)).value().rank(), 8);
}

// What a temporary cannot give away safely does not compile.
template <typename S>
concept GivesDims = requires(S&& shape) {
  std::forward<S>(shape).dims();
};
static_assert(GivesDims<Shape&> && GivesDims<const Shape&> && !GivesDims<Shape>);
template <typename T>
concept GivesView = requires(T&& tensor) {
  std::forward<T>(tensor).view();
};
static_assert(GivesView<Tensor&> && GivesView<const Tensor&> && !GivesView<Tensor>);
template <typename T>
concept GivesValues = requires(T&& tensor) {
  std::forward<T>(tensor).template values<float>();
};
static_assert(GivesValues<Tensor&> && GivesValues<const Tensor&> && !GivesValues<Tensor>);
static_assert(!std::is_reference_v<decltype(std::declval<Tensor>().shape())>);
static_assert(!std::is_reference_v<decltype(std::declval<Tensor>().owner())>);
static_assert(!std::is_reference_v<decltype(std::declval<Shape>()[0])>);

TEST(Tensor, IsZeroedAlignedAndSharedByCopies) {
  Tensor tensor = Tensor::create(DType::kFloat32, {3, 5}).value();
  EXPECT_EQ(tensor.size_bytes(), 60u);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.view().data) % 64, 0u);
  for (const float value : tensor.values<float>()) EXPECT_EQ(value, 0.0f);
  const Tensor copy = tensor;
  tensor.values<float>()[7] = 2;
  EXPECT_EQ(copy.values<float>()[7], 2.0f);
}

template <typename T>
StatusCode code_of_values(const TensorView& view) {
  try {
    (void)view.values<T>();
    return StatusCode::kOk;
  } catch (const Error& error) {
    return error.status().code();
  }
}

TEST(Tensor, ThatWasMovedFromHasNoBytes) {
  Tensor tensor = Tensor::create(DType::kFloat32, {2, 3}).value();
  const void* const bytes = tensor.view().data;
  Tensor moved_to = std::move(tensor);
  EXPECT_EQ(moved_to.view().data, bytes);
  EXPECT_EQ(tensor.view().data, nullptr);
  EXPECT_EQ(tensor.size_bytes(), Tensor().size_bytes());
  EXPECT_EQ(tensor.shape(), Tensor().shape());
  tensor = std::move(moved_to);
  EXPECT_EQ(tensor.view().data, bytes);
  EXPECT_EQ(moved_to.view().data, nullptr);
}

TEST(TensorView, GivesItsValuesOnlyAsTheTypeThatTheyHave) {
  const Tensor four = Tensor::create(DType::kFloat32, {4}).value();
  EXPECT_EQ(four.values<float>().size(), 4u);
  EXPECT_EQ(code_of_values<double>(four.view()), StatusCode::kInvalidArgument);
  EXPECT_EQ(code_of_values<std::int32_t>(four.view()), StatusCode::kInvalidArgument);
  EXPECT_EQ(code_of_values<std::uint8_t>(four.view()), StatusCode::kInvalidArgument);
  const Tensor half = Tensor::create(DType::kFloat16, {4}).value(), flag = Tensor::create(DType::kBool, {4}).value();
  EXPECT_EQ(half.values<std::uint16_t>().size(), 4u);
  EXPECT_EQ(flag.values<bool>().size(), 4u);
  EXPECT_EQ(flag.values<std::uint8_t>().size(), 4u);
  const Tensor wide = Tensor::create(DType::kInt64, {4}).value();
  EXPECT_EQ(wide.values<long long>().size(), 4u);
  EXPECT_EQ(code_of_values<double>(wide.view()), StatusCode::kInvalidArgument);
}

TEST(TensorView, WithoutBytesHasNoValues) {
  const Tensor none;
  EXPECT_EQ(code_of_values<float>(none.view()), StatusCode::kInvalidArgument);
  EXPECT_EQ(code_of_values<float>({DType::kFloat32, Shape{4}, nullptr}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code_of_values<float>({DType::kFloat32, Shape{0}, nullptr}), StatusCode::kOk);
}

TEST(TensorView, OfAShapeThatIsOpenOrTooLargeHasNoBytes) {
  std::byte byte{};
  for (const Shape& shape : {Shape{-1}, Shape{2, -3}, Shape{std::int64_t{1} << 61, 8}, Shape{(std::int64_t{1} << 61) + 1}}) {
    const TensorView view{DType::kFloat64, shape, &byte};
    EXPECT_EQ(view.size_bytes(), 0u) << shape.to_string();
    EXPECT_TRUE(view.bytes().empty());
    EXPECT_TRUE(view.values<double>().empty());
  }
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
