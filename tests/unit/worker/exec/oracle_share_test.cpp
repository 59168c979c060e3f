// Which nodes run by oracle kernels, and how much of the time they take.
#include "worker/exec/oracle_share.hpp"

#include <gtest/gtest.h>

#include "tests/unit/worker/exec/graph_builder.hpp"

namespace shoal::worker {
namespace {

using testing::GraphBuilder;
using testing::load;

TEST(OracleNodes, AreNamedWithTheirShareOfTheTime) {
  const std::vector<StepInfo> steps = {
      {"Convolution 'a'", "jit", 6e9, 1e6}, {"Pooling 'b'", "oracle", 0, 4e7}, {"LRN 'c'", "oracle", 0, 1e7}};
  const auto estimated = find_oracle_nodes(steps);
  ASSERT_EQ(estimated.size(), 2U);
  EXPECT_EQ(estimated[0].name, "Pooling 'b'");
  EXPECT_GT(estimated[0].share, estimated[1].share);
  const std::vector<std::uint64_t> times = {50, 10, 40};
  const auto measured = find_oracle_nodes(steps, times);
  EXPECT_EQ(measured[0].name, "LRN 'c'");
  EXPECT_DOUBLE_EQ(measured[0].share, 0.4);
  EXPECT_DOUBLE_EQ(measured[1].share, 0.1);
}

TEST(OracleNodes, OfBodiesAreNamedWithTheNodeThatRunsThem) {
  const StepInfo loop{
      .name = "Loop 'l'",
      .implementation = "bodies",
      .bodies = {{{"Sqrt 'fast'", "kernel", 0, 8e6}, {"Inverse 'slow'", "oracle", 9e6, 0}}, {{"Tile 't'", "oracle", 0, 2e6}}}};
  const std::vector<StepInfo> steps = {loop, {"Convolution 'a'", "jit", 6e7, 0}};
  const auto estimated = find_oracle_nodes(steps);  // 1, 3 and 1 ms in the loop, 1 ms behind it
  ASSERT_EQ(estimated.size(), 2U);
  EXPECT_EQ(estimated[0].name, "Loop 'l', Inverse 'slow'");
  EXPECT_DOUBLE_EQ(estimated[0].share, 0.5);
  const std::vector<std::uint64_t> times = {50, 50};
  const auto measured = find_oracle_nodes(steps, times);
  EXPECT_DOUBLE_EQ(measured[0].share, 0.3);
  EXPECT_DOUBLE_EQ(measured[1].share, 0.1);
}

TEST(OracleNodes, OfAProgramAreDescribedInOneLine) {
  GraphBuilder b;
  const ValueId x = b.conv(b.input("data"), 3, 4, 3);
  b.output(b.node("AdaptiveAvgPooling", {x}, AdaptivePoolingAttributes{3, 3}));
  const std::vector<TensorSpec> inputs = {testing::spec("data", {1, 3, 8, 8})};
  const auto slow = load(b.graph(), inputs);
  const std::string text = describe_oracle_nodes(**slow->program(inputs));
  EXPECT_NE(text.find("AdaptiveAvgPooling 'AdaptiveAvgPooling1' ("), std::string::npos) << text;
  GraphBuilder fast;
  fast.output(fast.conv(fast.input("data"), 3, 4, 3));
  EXPECT_EQ(describe_oracle_nodes(**load(fast.graph(), inputs)->program(inputs)), "");
}

}  // namespace
}  // namespace shoal::worker
