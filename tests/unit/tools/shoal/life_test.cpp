#include "tools/shoal/life.hpp"

#include <gtest/gtest.h>

namespace shoal::tool {
namespace {

TEST(Life, TellsOfTheVersionThatIsLoaded) {
  const std::string stats =
      R"({"models": [{"name": "m", "version": 1, "state": "ready"}, {"name": "n", "version": 7, "state": "loading"},
                     {"name": "m", "version": 2, "state": "loading", "workers": [{}], "wanted_workers": 4}]})";
  EXPECT_EQ(state_of("m", stats), "version 2 is loading, 1 of 4 workers");
  EXPECT_EQ(state_of("o", stats), "waiting");
}

TEST(Life, AnAnswerOfAnotherFormTellsNothing) {
  for (const char* stats :
       {"", "{", "[]", "7", R"({"models": 7})", R"({"models": [7]})", R"({"models": {"m": 1}})",
        R"({"models": [{"name": ["m"]}]})", R"({"models": [{"name": "m", "state": "loading", "version": "2"}]})",
        R"({"models": [{"name": "m", "state": "draining", "version": 1}, 7]})"})
    EXPECT_NO_THROW(EXPECT_EQ(state_of("m", stats), "waiting") << stats) << stats;
}

}  // namespace
}  // namespace shoal::tool
