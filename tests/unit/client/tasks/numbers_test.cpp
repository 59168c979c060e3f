#include "shoal/numbers.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <random>

#include "shm/base/errors.hpp"
#include "shm/tensor/floats.hpp"
#include "tests/support/says.hpp"

namespace shoal {
namespace {

using test::says;

constexpr DType kAllTypes[] = {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16, DType::kUInt8,
                               DType::kInt8,    DType::kInt16,   DType::kUInt16,  DType::kInt32,    DType::kUInt32,
                               DType::kInt64,   DType::kUInt64,  DType::kBool};

Result<Tensor> converted(const Numbers& numbers, DType dtype) {
  Tensor dst = Tensor::create(dtype, {static_cast<std::int64_t>(numbers.size())}).value();
  if (Status status = numbers.copy_to(dst.view(), "x"); !status.ok()) return status;
  return dst;
}

template <typename T>
Status refusal(T value, DType dtype) {
  const Status status = converted(std::array<T, 1>{value}, dtype).status();
  EXPECT_TRUE(status.ok() || status.code() == StatusCode::kInvalidArgument) << status.to_string();
  return status;
}

static_assert(dtype_of<float>() == DType::kFloat32 && dtype_of<long>() == DType::kInt64 &&
              dtype_of<long long>() == DType::kInt64 && dtype_of<unsigned short>() == DType::kUInt16 &&
              dtype_of<signed char>() == DType::kInt8 && dtype_of<bool>() == DType::kBool);
static_assert(!Number<char> && !Number<long double> && !std::convertible_to<std::string, Numbers>);

TEST(Numbers, AreViewsOfWhateverHoldsThemInARow) {
  const float in_c[] = {1, 2, 3};
  const std::vector<std::int16_t> vector{1, 2};
  const std::array<double, 1> array{1};
  EXPECT_EQ(Numbers(in_c).size(), 3u);
  EXPECT_EQ(Numbers(vector).dtype(), DType::kInt16);
  EXPECT_EQ(Numbers(array).dtype(), DType::kFloat64);
  EXPECT_EQ(Numbers(std::span(vector)).size(), 2u);
  EXPECT_EQ(Numbers(std::span<const float>()).size(), 0u);
  EXPECT_TRUE(converted(std::vector<float>(), DType::kInt8).ok());
}

TEST(Numbers, OfEveryTypeBecomeEveryTypeThatHoldsThem) {
  const std::vector<int> values{0, 1, 1, 0, 1};  // a bool holds them, too
  for (const DType from : kAllTypes) {
    const Tensor src = converted(values, from).value();
    for (const DType to : kAllTypes) {
      const Tensor dst = converted(Numbers(src.view()), to).value();
      EXPECT_EQ(Numbers(dst.view()).as<int>().value(), values) << dtype_name(from) << " to " << dtype_name(to);
    }
  }
}

TEST(Numbers, ManyOfThemAreConvertedBlockByBlock) {
  std::vector<std::uint8_t> bytes(3 * 1000 + 7);
  std::mt19937 random(1);
  for (auto& byte : bytes) byte = static_cast<std::uint8_t>(random());
  const std::vector<float> floats = Numbers(bytes).as<float>().value();
  for (std::size_t i = 0; i < bytes.size(); ++i) ASSERT_EQ(floats[i], bytes[i]) << i;
  EXPECT_EQ(Numbers(floats).as<std::uint8_t>().value(), bytes);
}

TEST(Numbers, FractionsAreRoundedToTheNearestFloat) {
  EXPECT_EQ(Numbers(std::array{0.1}).as<float>().value()[0], 0.1f);
  const Tensor half = converted(std::array{0.1f}, DType::kFloat16).value();
  EXPECT_EQ(Numbers(half.view()).as<float>().value()[0], static_cast<float>(Half(0.1f)));
  const Tensor brain = converted(std::array{0.1f}, DType::kBFloat16).value();
  EXPECT_EQ(Numbers(brain.view()).as<float>().value()[0], static_cast<float>(BFloat16(0.1f)));
}

TEST(Numbers, ThatAreNotNumbersOrInfiniteStayInFloats) {
  const std::vector<double> odd{std::nan(""), std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()};
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kFloat64}) {
    const Tensor stored = converted(odd, dtype).value();
    const std::vector<double> back = Numbers(stored.view()).as<double>().value();
    EXPECT_TRUE(std::isnan(back[0]) && back[1] == odd[1] && back[2] == odd[2]) << dtype_name(dtype);
  }
}

TEST(Numbers, WhatWouldBeAnotherNumberIsAnError) {
  const double nan = std::nan(""), infinity = std::numeric_limits<double>::infinity();
  for (const DType whole : {DType::kUInt8, DType::kInt8, DType::kInt32, DType::kInt64, DType::kUInt64, DType::kBool}) {
    EXPECT_FALSE(refusal(0.5, whole).ok()) << dtype_name(whole);
    EXPECT_FALSE(refusal(nan, whole).ok()) << dtype_name(whole);
    EXPECT_FALSE(refusal(infinity, whole).ok()) << dtype_name(whole);
    EXPECT_FALSE(refusal(1e30, whole).ok()) << dtype_name(whole);
  }
  EXPECT_FALSE(refusal(256, DType::kUInt8).ok());
  EXPECT_FALSE(refusal(-1, DType::kUInt8).ok());
  EXPECT_FALSE(refusal(-1.0, DType::kUInt64).ok());
  EXPECT_FALSE(refusal(2, DType::kBool).ok());
  EXPECT_FALSE(refusal(128.0, DType::kInt8).ok());
  EXPECT_TRUE(refusal(-128.0, DType::kInt8).ok());
  EXPECT_FALSE(refusal(0x1p63, DType::kInt64).ok());
  EXPECT_TRUE(refusal(-0x1p63, DType::kInt64).ok());
  EXPECT_TRUE(refusal(0x1p63, DType::kUInt64).ok());
  EXPECT_FALSE(refusal(0x1p64, DType::kUInt64).ok());
  EXPECT_FALSE(refusal(std::numeric_limits<std::uint64_t>::max(), DType::kInt64).ok());
  EXPECT_FALSE(refusal(1e39, DType::kFloat32).ok()) << "larger than every float32";
  EXPECT_FALSE(refusal(65520.0, DType::kFloat16).ok()) << "rounds to infinity";
  EXPECT_TRUE(refusal(65504.0, DType::kFloat16).ok());
}

// The numbers of tokens, of which a float32 has no more than 2^24.
TEST(Numbers, WholeNumbersMustBeExactInAFloat) {
  EXPECT_TRUE(refusal(1 << 24, DType::kFloat32).ok());
  EXPECT_FALSE(refusal((1 << 24) + 1, DType::kFloat32).ok());
  EXPECT_TRUE(refusal(std::int64_t{1} << 40, DType::kFloat32).ok());
  EXPECT_TRUE(refusal(std::numeric_limits<std::int64_t>::min(), DType::kFloat32).ok());
  EXPECT_FALSE(refusal(std::numeric_limits<std::int64_t>::max(), DType::kFloat64).ok());
  EXPECT_TRUE(refusal(2048, DType::kFloat16).ok());
  EXPECT_FALSE(refusal(2049, DType::kFloat16).ok());
  EXPECT_FALSE(refusal(65536, DType::kFloat16).ok());
  EXPECT_FALSE(refusal(257, DType::kBFloat16).ok());
}

TEST(Numbers, AnErrorNamesTheNumberItsPlaceAndTheType) {
  std::vector<double> values(1500, 1);
  values[1234] = 3.5;
  Tensor dst = Tensor::create(DType::kInt32, {1500}).value();
  EXPECT_TRUE(says(Numbers(values).copy_to(dst.view(), "input 'ids'").message(), {"input 'ids'", "number 1234", "3.5", "int32"}));
  Tensor small = Tensor::create(DType::kInt32, {2, 3}).value();
  EXPECT_TRUE(says(Numbers(values).copy_to(small.view(), "x").message(), {"1500", "2x3"}));
}

TEST(Numbers, ABoolOfAnyBitsIsTrue) {
  Tensor odd = Tensor::create(DType::kBool, {2}).value();
  odd.view().data[0] = std::byte{2};
  EXPECT_EQ(Numbers(odd.view()).as<int>().value(), (std::vector<int>{1, 0}));
}

TEST(Numbers, OfATensorWithoutBytesAreNone) {
  EXPECT_EQ(Numbers(TensorView()).size(), 0u);
  EXPECT_EQ(Numbers(TensorView{DType::kFloat32, Shape::any(), nullptr}).size(), 0u);
}

}  // namespace
}  // namespace shoal
