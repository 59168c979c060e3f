#include "shm/tensor/spec.hpp"

#include <gtest/gtest.h>

namespace shoal {
namespace {

const TensorSpec kRanged{"data", DType::kFloat32, {-1, 3, -1, -1}, {{}, {}, {32, 64}, {1, DimRange().highest}}};

TEST(Spec, TakesSizesWithinTheirRange) {
  EXPECT_TRUE(check_matches(kRanged, DType::kFloat32, {7, 3, 32, 1}).ok());
  EXPECT_TRUE(check_matches(kRanged, DType::kFloat32, {1, 3, 64, 100000}).ok());
}

TEST(Spec, NamesTheInputTheDimensionAndItsRange) {
  const Status small = check_matches(kRanged, DType::kFloat32, {1, 3, 31, 40});
  EXPECT_EQ(small.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(small.message(), "input 'data' has shape 1x3x31x40: dimension 2 is 31 (wants 32..64)");
  EXPECT_EQ(check_matches(kRanged, DType::kFloat32, {1, 3, 40, 0}).message(),
            "input 'data' has shape 1x3x40x0: dimension 3 is 0 (wants 1..)");
  EXPECT_EQ(check_matches(kRanged, DType::kFloat32, {1, 4, 40, 40}).message(),
            "input 'data' has shape 1x4x40x40 (wants ?x3x32..64x1..)");
}

TEST(Spec, NamesAllInputsThatAModelDoesNotHave) {
  const std::vector<TensorSpec> inputs{{"data"}, {"ids"}};
  const std::vector<std::string> ignored{"label"};
  EXPECT_TRUE(check_input_names("model 'net'", inputs, ignored, {"ids", "label"}).ok());
  const Status wrong = check_input_names("model 'net'", inputs, ignored, {"dta", "ids", "label", "lable"});
  EXPECT_EQ(wrong.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(wrong.message(), "model 'net' has no input 'dta', 'lable' (it has: data, ids)");
}

TEST(Spec, AnErrorThatNamesManyInputsStaysShort) {
  std::vector<TensorSpec> inputs;
  std::set<std::string> unknown;
  for (int i = 10; i < 70; ++i) {
    inputs.push_back({std::string(200, 'i') + std::to_string(i)});
    unknown.insert(std::string(200, 'u') + std::to_string(i));
  }
  const Status wrong = check_input_names("model 'net'", inputs, {}, unknown);
  EXPECT_LT(wrong.message().size(), 600u);
  for (const char* part : {"model 'net' has no input 'uuu", " ... ", "u69' (it has: iii", "i69)"})
    EXPECT_NE(wrong.message().find(part), std::string::npos) << part << " is not in " << wrong.message();
}

TEST(Spec, ReadsRangesAsTheyAreWritten) {
  for (const char* text : {"224..640", "1..", "5..5", "0..3"}) {
    const auto range = parse_range(text);
    ASSERT_TRUE(range.ok()) << range.status().to_string();
    EXPECT_EQ(to_string(*range), text);
  }
  for (const char* text : {"", "..", "..5", "5", "6..5", "-1..5", "1..x", "1...5", "1..5 ", "99999999999999999999.."})
    EXPECT_EQ(parse_range(text).status().code(), StatusCode::kInvalidArgument) << text;
}

}  // namespace
}  // namespace shoal
