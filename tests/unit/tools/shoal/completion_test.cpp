#include "tools/shoal/completion.hpp"

#include <gtest/gtest.h>

namespace shoal::tool {
namespace {

TEST(Completion, AsksForTheInputsOnlyOfAModelThatIsServed) {
  const std::string stats =
      R"({"models": [{"name": "m", "serving": false}, {"name": "m", "serving": true}, {"name": "n", "serving": false}]})";
  EXPECT_TRUE(is_served(stats, "m"));
  EXPECT_FALSE(is_served(stats, "n"));
  EXPECT_FALSE(is_served(stats, "o"));
}

TEST(Completion, AnAnswerOfAnotherFormServesNothing) {
  for (const char* stats :
       {"", "{", "[]", "7", "{}", R"({"models": 7})", R"({"models": [7]})", R"({"models": {"m": 1}})",
        R"({"models": [{"name": "m"}]})", R"({"models": [{"name": ["m"]}]})", R"({"models": [{"name": "m", "serving": "yes"}]})"})
    EXPECT_NO_THROW(EXPECT_FALSE(is_served(stats, "m")) << stats) << stats;
}

}  // namespace
}  // namespace shoal::tool
