#include "worker/graph/promotion.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace shoal::worker {
namespace {

using Types = std::vector<DType>;

TEST(Promotion, FindsTheCommonType) {
  EXPECT_EQ(common_type(Types{DType::kFloat16, DType::kInt64}), DType::kFloat16);
  EXPECT_EQ(common_type(Types{DType::kFloat16, DType::kFloat64, DType::kFloat32}), DType::kFloat64);
  EXPECT_EQ(common_type(Types{DType::kFloat16, DType::kBFloat16}), DType::kFloat32);
  EXPECT_EQ(common_type(Types{DType::kUInt8, DType::kInt32}), DType::kInt32);
  EXPECT_EQ(common_type(Types{DType::kBool, DType::kBool}), DType::kBool);
  EXPECT_EQ(common_type(Types{DType::kBool, DType::kUInt8}), DType::kUInt8);
}

TEST(Promotion, HasNoTypeForNumbersWithAndWithoutASignOfOneSize) {
  EXPECT_EQ(common_type(Types{DType::kInt8, DType::kUInt8}), DType::kInvalid);
  EXPECT_EQ(common_type(Types{DType::kInt8, DType::kUInt64}), DType::kInvalid);
  Types types{DType::kInt8, DType::kUInt8};
  promote_all(Promotion::kCommon, types);
  EXPECT_EQ(types, (Types{DType::kInt8, DType::kUInt8})) << "the rule of the operator reports them";
}

TEST(Promotion, MakesNumbersOfBoolsAndRealsOfIntegers) {
  const Types bools{DType::kBool}, whole{DType::kInt8}, halves{DType::kFloat16};
  EXPECT_EQ(promoted_type(Promotion::kNumbers, bools), DType::kInt64);
  EXPECT_EQ(promoted_type(Promotion::kNumbers, whole), DType::kInt8);
  EXPECT_EQ(promoted_type(Promotion::kReals, bools), DType::kFloat32);
  EXPECT_EQ(promoted_type(Promotion::kReals, whole), DType::kFloat32);
  EXPECT_EQ(promoted_type(Promotion::kReals, halves), DType::kFloat16);
}

}  // namespace
}  // namespace shoal::worker
