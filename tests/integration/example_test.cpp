// The example programs print what they promise.
#include <gtest/gtest.h>

#include <cstdio>

#include "tests/support/pool_fixture.hpp"

namespace shoal::test {
namespace {

TEST(Example, PredictPrintsWhatTheModelAnswered) {
  const DaemonFixture daemon;
  const std::string command =
      "SHOAL_DIR=" + daemon.directory() + " " + (binary_directory() / "example_predict").string() + " echo";
  FILE* pipe = ::popen(command.c_str(), "r");
  char line[256] = "";
  EXPECT_NE(std::fgets(line, sizeof line, pipe), nullptr);
  EXPECT_EQ(::pclose(pipe), 0);
  EXPECT_STREQ(line, "data_output: float32 of shape 4\n");
}

}  // namespace
}  // namespace shoal::test
