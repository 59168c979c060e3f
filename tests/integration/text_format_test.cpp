// A format that the daemon has never heard of (tests/support/text_format.cpp) is found, loaded and served by the worker that has
// it.
#include <gtest/gtest.h>

#include "tests/support/pool_fixture.hpp"
#include "tests/support/scratch_directory.hpp"

namespace shoal::test {
namespace {

TEST(TextFormat, IsServedThroughTheZygote) {
  const ScratchDirectory models;
  models.write("g.textgraph", "textgraph 1\ninput data 1 2\nAddN sum data data\nAddN four sum sum\noutput four\n");
  models.write("model.toml", R"(outputs = ["four", "sum"])");
  const DaemonFixture daemon(
      {.models = {"g=" + models.path("g.textgraph") + ",device=cpu-reference"}, .worker = "shoal-worker-faulty"});
  Pool pool = daemon.connect();
  const auto outputs = pool.predict("g", {{"data", counting(Shape{1, 2}, 3)}});
  ASSERT_TRUE(outputs.ok()) << outputs.status().to_string();
  ASSERT_EQ(outputs->size(), 2u);
  EXPECT_EQ((*outputs)[0].name, "four");
  EXPECT_EQ((*outputs)[0].tensor.values<float>()[1], 16);
  EXPECT_EQ((*outputs)[1].name, "sum");
  EXPECT_EQ((*outputs)[1].tensor.values<float>()[0], 6);
}

}  // namespace
}  // namespace shoal::test
