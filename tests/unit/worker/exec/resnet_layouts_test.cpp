// Weight layouts are chosen once, for the first shapes; other picture sizes must not fall off a cliff for it.
#include <gtest/gtest.h>

#include "tests/unit/worker/exec/graph_builder.hpp"
#include "worker/exec/planned_program.hpp"

namespace shoal::worker {
namespace {

class PictureSize : public ::testing::TestWithParam<std::int64_t> {};
INSTANTIATE_TEST_SUITE_P(ResNet50, PictureSize, ::testing::Values(160, 192, 256, 197, 331));

TEST_P(PictureSize, NeedsNoSlowPrimitiveWithLayoutsChosenAt224) {
  const auto model = testing::load(testing::make_bottleneck_network(), {testing::spec("data", {1, 3, 224, 224})});
  const auto program = model->program(std::vector{testing::spec("data", {1, 3, GetParam(), GetParam()})}).value();
  for (const auto& step : dynamic_cast<const PlannedProgram&>(*program).plan().steps) {
    const std::string implementation = step->implementation();
    EXPECT_FALSE(implementation.starts_with("ref") || implementation == "oracle") << step->name() << ": " << implementation;
  }
}

}  // namespace
}  // namespace shoal::worker
