// What infer_naming_shapes() says.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/unit/worker/exec/graph_builder.hpp"
#include "worker/ops/pooling.hpp"
#include "worker/passes/infer.hpp"

namespace shoal::worker {
namespace {

using testing::GraphBuilder;

constexpr std::size_t kMostShapesBytes = 255;

/// The error of a layer whose window is larger than its source.
std::string said_of(GraphBuilder& b, ValueId src, const std::vector<TensorSpec>& inputs) {
  b.output(b.pool(src, {.kernel = {3, 3}, .stride = {1, 1}, .pad = {0, 0}}));
  Graph graph = b.graph();
  return infer_naming_shapes(graph, inputs).message();
}

TEST(InferNamingShapes, NamesTheShapesOfTheInputsAsFarAsTheyStayShort) {
  const auto said = [](std::size_t more_inputs) {
    GraphBuilder b;
    std::vector<TensorSpec> inputs{{"data", DType::kFloat32, {1, 3, 2, 2}}};
    const ValueId data = b.input("data");
    for (std::size_t i = 0; i < more_inputs; ++i) {
      inputs.push_back({"more" + std::to_string(i), DType::kFloat32, {1, 8}});
      b.input(inputs.back().name);
    }
    return said_of(b, data, inputs);
  };
  EXPECT_TRUE(said(1).starts_with("with data 1x3x2x2, more0 1x8: Pooling '")) << said(1);
  EXPECT_TRUE(said(1000).starts_with("with data 1x3x2x2, more0 1x8")) << said(1000);
  EXPECT_LT(said(1000).size(), said(0).size() + kMostShapesBytes);
}

TEST(InferNamingShapes, SaysNothingOfInputsThatThereAreNot) {
  GraphBuilder b;
  const std::string said = said_of(b, b.constant({1, 3, 2, 2}), {});
  EXPECT_TRUE(said.starts_with("Pooling '")) << said;
}

}  // namespace
}  // namespace shoal::worker
