#include "shm/base/json_text.hpp"

#include <gtest/gtest.h>

#include <string>

namespace shoal {
namespace {

TEST(JsonText, DepthIsThatOfBracketsOutsideStrings) {
  EXPECT_EQ(json_depth("7"), 0);
  EXPECT_EQ(json_depth(R"({"a": [1, {"b": []}], "c": {}})"), 4);
  EXPECT_EQ(json_depth(R"({"a[[[\"[": "\\", "b{{": [1]})"), 2);
}

TEST(JsonText, IsRefusedIfItIsNestedTooDeeply) {
  const auto nested = [](std::size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_TRUE(parse_json(nested(13)).is_array());
  EXPECT_THROW(parse_json(nested(14)), std::runtime_error);
  EXPECT_THROW(parse_json(std::string(1'000'000, '[')), std::runtime_error);
  EXPECT_THROW(parse_json("[1"), nlohmann::json::parse_error);
}

// A parser that looks at all earlier objects for each one would take hours.
TEST(JsonText, OfManyObjectsIsRead) {
  std::string text = "[{}";
  for (int i = 0; i < 1'000'000; ++i) text += ",{}";
  EXPECT_EQ(parse_json(text + "]").size(), 1'000'001u);
}

}  // namespace
}  // namespace shoal
