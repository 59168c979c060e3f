#include "shoal/data_desc.hpp"

#include <gtest/gtest.h>

#include "tests/support/says.hpp"

namespace shoal {
namespace {

using test::says;

const std::vector<DataDesc> kModel{{"data", DType::kFloat32, {-1, 3, -1, 224}, {{1, 8}, {}, {32, 640}, {}}, "NCHW"},
                                   {"ids", DType::kInt64, {-1, -1}},
                                   {"free", DType::kFloat32}};

Result<std::vector<DataDesc>> match(const DataDesc& given) {
  return match_descriptors("model 'm'", "input", kModel, {&given, 1});
}

TEST(DataDesc, WhatAProgramLeavesOutIsTheModels) {
  EXPECT_EQ(match_descriptors("m", "input", kModel, {}).value(), kModel);
  EXPECT_EQ(match({"data", DType::kFloat32}).value(), kModel);
  EXPECT_EQ(match({"data", DType::kFloat32, {-1, 3, -1, -1 + 225}}).value(), kModel);
}

TEST(DataDesc, WhatAProgramSaysMoreCloselyCounts) {
  const DataDesc matched = match({"data", DType::kFloat32, {4, 3, -1, 224}, {{}, {}, {64, 128}, {}}}).value()[0];
  EXPECT_EQ(matched.shape, (Shape{4, 3, -1, 224}));
  EXPECT_EQ(matched.ranges[2], (DimRange{64, 128}));
  EXPECT_EQ(matched.layout, "NCHW");
  EXPECT_EQ(match({"ids", DType::kInt64, {-1, 128}, {}, "NT"}).value()[1], (DataDesc{"ids", DType::kInt64, {-1, 128}, {}, "NT"}));
  EXPECT_EQ(match({"free", DType::kFloat32, {2, -1}}).value()[2].shape, (Shape{2, -1}));
}

TEST(DataDesc, EveryMismatchNamesTheTensorAndBothSides) {
  const auto message = [](const DataDesc& given) {
    const Status status = match(given).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << descriptor_text(given);
    return status.message();
  };
  EXPECT_TRUE(
      says(message({"data", DType::kUInt8}), {"model 'm'", "'data'", "float32 1..8x3x32..640x224 NCHW", "uint8 any", "types"}));
  EXPECT_TRUE(says(message({"data", DType::kFloat32, {1, 3, 64}}), {"1x3x64", "numbers of dimensions"}));
  EXPECT_TRUE(says(message({"data", DType::kFloat32, {1, 1, 64, 224}}), {"1x1x64x224", "dimension 1"}));
  EXPECT_TRUE(says(message({"data", DType::kFloat32, {9, 3, 64, 224}}), {"9x3x64x224", "dimension 0"})) << "beyond the range";
  EXPECT_TRUE(says(message({"data", DType::kFloat32, {1, 3, 64, -1}}), {"1x3x64x?", "dimension 3"}))
      << "the model takes one size";
  EXPECT_TRUE(says(message({"data", DType::kFloat32, {1, 3, -1, 224}, {{}, {}, {1, 64}, {}}}), {"1..64", "dimension 2"}));
  EXPECT_TRUE(says(message({"data", DType::kFloat32, {1, 3, 64, 224}, {}, "NHWC"}), {"NHWC", "NCHW", "layouts"}));
  EXPECT_TRUE(says(message({"ids", DType::kInt64, {1, 2}, {}, "NTC"}), {"one letter per dimension"}));
  EXPECT_TRUE(says(message({"picture"}), {"no input 'picture'", "data, ids, free"}));
}

TEST(DataDesc, ALayoutNamesDimensions) {
  EXPECT_EQ(axis_of(kModel[0], 'H'), 2);
  EXPECT_EQ(axis_of(kModel[0], 'T'), -1);
  EXPECT_EQ(axis_of(kModel[1], 'N'), -1);
}

}  // namespace
}  // namespace shoal
