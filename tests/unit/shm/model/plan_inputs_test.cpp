#include "shm/model/model_config.hpp"

#include <gtest/gtest.h>

#include "tests/support/says.hpp"

namespace shoal {
namespace {

using test::says;
const std::string kWhere = "model 'net' (net/model.toml)";
const TensorSpec kUnknown{"data"};

std::string error_of(const ModelConfig& config, const std::vector<TensorSpec>& graph_inputs) {
  const auto plan = plan_inputs(config, graph_inputs, kWhere);
  EXPECT_EQ(plan.status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(says(plan.status().message(), {kWhere}));
  return plan.status().message();
}

TEST(PlanInputs, CompilesAnOpenFirstDimensionAsOne) {
  const auto plan = plan_inputs({.inputs = {{"data", DType::kUInt8, {-1, 3, 8}}}}, std::vector{kUnknown}, kWhere);
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  EXPECT_EQ(plan->inputs, (std::vector<TensorSpec>{{"data", DType::kUInt8, {-1, 3, 8}}}));
  ASSERT_EQ(plan->input_sets.size(), 1u);
  EXPECT_EQ(plan->input_sets[0], (std::vector<TensorSpec>{{"data", DType::kUInt8, {1, 3, 8}}}));
}

TEST(PlanInputs, WantsShapesForAnyOtherOpenDimension) {
  const ModelConfig config{.inputs = {{"data", DType::kFloat32, {-1, 3, -1}}}};
  EXPECT_TRUE(says(error_of(config, {kUnknown}), {"'data'", "?x3x?", "shapes = [{data ="}));
}

TEST(PlanInputs, CompilesARangeAtItsSmallest) {
  const TensorSpec ranged{"data", DType::kFloat32, {-1, 3, -1}, {{2, 8}, {}, {32, 64}}};
  const auto plan = plan_inputs({.inputs = {ranged}}, std::vector{kUnknown}, kWhere);
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  EXPECT_EQ(plan->inputs[0], ranged);
  EXPECT_EQ(plan->input_sets[0], (std::vector<TensorSpec>{{"data", DType::kFloat32, {2, 3, 32}}}));
  EXPECT_TRUE(says(error_of({.inputs = {ranged}, .shapes = {{{"data", DType::kFloat32, {2, 3, 65}}}}}, {kUnknown}),
                   {"'shapes'", "'data'", "32..64"}));
}

TEST(PlanInputs, SaysTheLineToWriteWhenNothingIsKnown) {
  EXPECT_TRUE(says(error_of({}, {kUnknown}), {"'data'", "inputs = [{name = \"data\", shape = [-1, 3, 224, 224]}]", ".params"}));
}

TEST(PlanInputs, TakesWhatTheGraphSaysItself) {
  const auto plan = plan_inputs({}, std::vector<TensorSpec>{{"data", DType::kInt32, {2, 5}}}, kWhere);
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  EXPECT_EQ(plan->input_sets[0][0], (TensorSpec{"data", DType::kInt32, {2, 5}}));
  EXPECT_EQ(plan->inputs[0].shape, Shape({-1, 5}));  // the batch of the training is not the only one
}

TEST(PlanInputs, LeavesOpenWhatDiffersBetweenShapes) {
  const ModelConfig config{.shapes = {{{"data", DType::kFloat32, {1, 4}}}, {{"data", DType::kFloat32, {8, 4}}}}};
  const auto plan = plan_inputs(config, std::vector{kUnknown}, kWhere);
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  EXPECT_EQ(plan->inputs[0].shape, Shape({-1, 4}));
  EXPECT_EQ(plan->input_sets.size(), 2u);
}

TEST(PlanInputs, PutsInputsInTheModelsOrderWithTheirDtypes) {
  const ModelConfig config{.inputs = {{"b", DType::kInt64, {-1, 2}}, {"a", DType::kUInt8, {-1, 1}}},
                           .shapes = {{{"b", DType::kFloat32, {3, 2}}, {"a", DType::kFloat32, {3, 1}}}}};
  const auto plan = plan_inputs(config, std::vector<TensorSpec>{{"a"}, {"b"}}, kWhere);
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  EXPECT_EQ(plan->input_sets[0], (std::vector<TensorSpec>{{"a", DType::kUInt8, {3, 1}}, {"b", DType::kInt64, {3, 2}}}));
}

TEST(PlanInputs, AStateHasItsShapeFromItsKeyAndItsBatchFromTheOtherInputs) {
  const std::vector<TensorSpec> graph = {{"h_in", DType::kFloat16}, {"data"}, {"c_in"}};
  const ModelConfig config{.inputs = {{"data", DType::kFloat32, {-1, 4}}, {"c_in", DType::kFloat32, {-1, 2}}},
                           .state = {{"h_out", "h_in", {2, -1, 8}}, {"c_out", "c_in"}},
                           .shapes = {}};
  const auto plan = plan_inputs(config, graph, kWhere);
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  EXPECT_EQ(plan->inputs[0], (TensorSpec{"h_in", DType::kFloat16, {2, -1, 8}}));
  EXPECT_EQ(plan->input_sets[0][0], (TensorSpec{"h_in", DType::kFloat16, {2, 1, 8}}));
  EXPECT_EQ(plan->input_sets[0][2], (TensorSpec{"c_in", DType::kFloat32, {1, 2}}));
  ModelConfig with_shapes = config;
  with_shapes.shapes = {{{"data", DType::kFloat32, {3, 4}}},
                        {{"data", DType::kFloat32, {5, 4}}, {"h_in", DType::kFloat32, {2, 5, 8}}}};
  const auto planned = plan_inputs(with_shapes, graph, kWhere);
  ASSERT_TRUE(planned.ok()) << planned.status().to_string();
  EXPECT_EQ(planned->input_sets[0][0].shape, (Shape{2, 3, 8}));
  EXPECT_EQ(planned->input_sets[0][2].shape, (Shape{3, 2}));
  EXPECT_EQ(planned->input_sets[1][0].shape, (Shape{2, 5, 8}));
  EXPECT_EQ(named_inputs(config), (std::set<std::string>{"c_in", "data", "h_in"}));
}

TEST(PlanInputs, RefusesNamesAndShapesThatDoNotFit) {
  const TensorSpec dta{"dta", DType::kFloat32, {1}}, dat{"dat", DType::kFloat32, {1}};
  EXPECT_TRUE(says(error_of({.inputs = {dta, dat}}, {kUnknown}),
                   {": 'inputs' is wrong: the model has no input 'dat', 'dta' (it has: data)"}));
  EXPECT_TRUE(says(error_of({.shapes = {{dta}, {dat}}}, {kUnknown}),
                   {": 'shapes' is wrong: the model has no input 'dat', 'dta' (it has: data)"}));
  EXPECT_TRUE(says(error_of({.state = {{"out", "dta"}}, .shapes = {}}, {kUnknown}),
                   {": 'state' is wrong: the model has no input 'dta' (it has: data)"}));
  const TensorSpec open{"data", DType::kFloat32, {-1, 4}};
  EXPECT_TRUE(says(error_of({.inputs = {open}, .shapes = {{{"data", DType::kFloat32, {1, 5}}}}}, {kUnknown}), {"1x5", "?x4"}));
}

}  // namespace
}  // namespace shoal
