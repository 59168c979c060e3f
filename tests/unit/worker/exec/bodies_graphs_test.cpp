// Bodies as a part of graphs: names, the hash, shapes and types, and what is refused.
#include <gtest/gtest.h>

#include "tests/support/custom_operator.hpp"
#include "tests/support/dynamic_operators.hpp"
#include "tests/support/says.hpp"
#include "tests/unit/worker/exec/bodies_graphs.hpp"
#include "worker/exec/graph_hash.hpp"
#include "worker/exec/padding.hpp"
#include "worker/ops/control_flow.hpp"
#include "worker/ops/reduce.hpp"
#include "worker/passes/constant_folding.hpp"
#include "worker/passes/infer.hpp"

namespace shoal::worker {
namespace {

using test::says;
using testing::doubling_loop;
using testing::GraphBuilder;
using testing::kLoopInputs;
using testing::nested_branches;
using testing::scaled;
using testing::spec;

TEST(BodiesOfGraphs, AreWalkedAfterTheGraphAroundThemAndHaveNamesOfTheirOwn) {
  Graph graph = nested_branches();
  name_scopes(graph);
  std::vector<std::string> scopes;
  for_each_graph(graph, [&](const Graph& each) { scopes.push_back(each.scope); });
  EXPECT_EQ(scopes, (std::vector<std::string>{"", "n3.0/", "n3.0/n2.0/", "n3.0/n2.1/", "n3.1/"}));
  Graph changed = graph;
  changed.nodes[0].bodies[0].nodes[0].bodies[1] = scaled(4);
  name_scopes(changed);
  EXPECT_NE(hash_graph(graph), hash_graph(changed));
  changed.nodes[0].bodies[0].nodes[0].bodies[1] = scaled(3);
  name_scopes(changed);
  EXPECT_EQ(hash_graph(graph), hash_graph(changed));
}

TEST(BodiesOfGraphs, ReadConstantsThatFoldingFindsAsConstants) {
  GraphBuilder branch;
  const ValueId x = branch.input("x"), halved = branch.scalar(BinaryKind::kMul, branch.input("w"), 0.5);
  branch.output(branch.add(x, halved));
  GraphBuilder b;
  const ValueId condition = b.input("condition"), data = b.input("data");
  const ValueId doubled = b.scalar(BinaryKind::kMul, b.constant({4}), 2);
  b.output(b.node_with_bodies("If", {condition, data, doubled}, {branch.graph(), branch.graph()}));
  Graph graph = b.graph();
  name_scopes(graph);
  ASSERT_TRUE(infer(graph, std::vector{spec("condition", {1}), spec("data", {4})}).ok());
  ASSERT_TRUE(fold_constants(graph).ok());
  ASSERT_EQ(graph.nodes.size(), 1u);
  EXPECT_EQ(graph.nodes[0].inputs, (std::vector<ValueId>{condition, data}));
  EXPECT_EQ(graph.nodes[0].bodies[1].nodes.size(), 1u) << "its product is folded, too";
  EXPECT_EQ(constant_key(graph.nodes[0].bodies[1], 1), constant_key(graph, doubled));
}

TEST(BodiesOfGraphs, ThatDoNotFitAreRefusedByTheNamesOfNodeBodyAndValue) {
  const auto refusal = [](Graph graph, const std::vector<TensorSpec>& inputs) {
    return Model::load(std::move(graph), {.input_sets = {inputs}}).status().message();
  };
  Graph graph = doubling_loop();
  const std::vector<TensorSpec> wide{spec("data", {1}), spec("go", {1}), spec("added", {2})};
  EXPECT_TRUE(says(refusal(graph, wide), {"Loop 'Loop0'", "body 0", "'Binary1'", "1", "2"}));
  graph.nodes[0].bodies.clear();
  EXPECT_TRUE(says(refusal(graph, kLoopInputs), {"Loop 'Loop0'", "0 bodies; 1"}));
  graph = doubling_loop();
  graph.nodes[0].inputs.pop_back();
  EXPECT_TRUE(says(refusal(graph, kLoopInputs), {"Loop 'Loop0'", "body 0 has 3 inputs and is given 2"}));
  graph = doubling_loop();
  graph.nodes[0].inputs.resize(2);
  EXPECT_TRUE(says(refusal(graph, kLoopInputs), {"Loop 'Loop0'", "2 inputs; it reads 3"}));
  graph = doubling_loop();
  graph.nodes[0].bodies[0].outputs.pop_back();
  EXPECT_TRUE(says(refusal(graph, kLoopInputs), {"Loop 'Loop0'", "body 0 has 1 outputs; 2"}));
  graph = doubling_loop();
  graph.nodes[0].attributes = LoopAttributes{.states = -3};
  EXPECT_FALSE(refusal(graph, kLoopInputs).empty());
  graph.nodes[0].attributes = LoopAttributes{.states = std::int64_t{1} << 62};
  EXPECT_FALSE(refusal(graph, kLoopInputs).empty());
}

/// A state that changes its shape; a condition of two numbers; branches of different shapes.
TEST(BodiesOfGraphs, KeepTheShapesOfStates) {
  GraphBuilder body;
  body.input("turn");
  const ValueId x = body.input("x");
  body.output(body.number(1));
  body.output(body.concat({x, x}, 0));
  GraphBuilder b;
  b.output(b.node_with_bodies("Loop", {b.number(3), b.number(1), b.input("data")}, {body.graph()}, LoopAttributes{}));
  Graph graph = b.graph();
  const std::vector<TensorSpec> inputs{spec("data", {2})};
  EXPECT_TRUE(
      says(infer(graph, inputs).message(), {"Loop 'Loop0'", "body 0", "Concat0_output0", "float32 4", "float32 2", "data"}));

  GraphBuilder c;
  const ValueId data = c.input("data");
  c.output(c.node_with_bodies("If", {data, data, data}, {scaled(1), scaled(2)}));
  graph = c.graph();
  EXPECT_TRUE(says(infer(graph, inputs).message(), {"If 'If0'", "the condition 'data'", "one number"}));

  GraphBuilder sum;
  sum.output(sum.node("Reduce", {sum.input("x")}, ReduceAttributes{}));
  GraphBuilder same;
  same.output(same.input("x"));
  GraphBuilder d;
  d.output(d.node_with_bodies("If", {d.number(1), d.input("data")}, {sum.graph(), same.graph()}));
  graph = d.graph();
  EXPECT_TRUE(says(infer(graph, inputs).message(), {"If 'If0'", "body 1 gives 'x'", "float32 2", "float32 1"}));
}

TEST(BodiesOfGraphs, NeitherTakeNorGiveSizesThatDependOnData) {
  test::register_dynamic_operators();
  GraphBuilder b;
  const ValueId data = b.input("data");
  const ValueId positions = b.node("_dynamic_nonzero", {data}, CustomAttributes{});
  b.output(b.node_with_bodies("If", {b.number(1), b.number(1), positions}, {scaled(2), scaled(3)}));
  Graph graph = b.graph();
  const std::vector<TensorSpec> inputs{spec("data", {2})};
  Status refused = infer(graph, inputs);
  EXPECT_EQ(refused.code(), StatusCode::kUnimplemented);
  EXPECT_TRUE(says(refused.message(), {"If 'If1'", "_dynamic_nonzero0_output0", "depends on data"}));

  GraphBuilder inner;
  inner.output(inner.node("_dynamic_nonzero", {inner.input("x")}, CustomAttributes{}));
  GraphBuilder c;
  c.output(c.node_with_bodies("If", {c.number(1), c.input("data")}, {inner.graph(), inner.graph()}));
  graph = c.graph();
  refused = infer(graph, inputs);
  EXPECT_EQ(refused.code(), StatusCode::kUnimplemented);
  EXPECT_TRUE(says(refused.message(), {"If 'If0': body 0", "_dynamic_nonzero0_output0", "depends on data"}));
}

TEST(BodiesOfGraphs, AreInferredForSizesThatAreNotKnownYet) {
  Graph graph = nested_branches();
  const auto table = std::make_shared<DimTable>();
  const Dim size = table->symbol("n", {1, 100});
  const std::vector<SizedInput> inputs{
      {"condition", DType::kFloat32, {1}}, {"other", DType::kFloat32, {1}}, {"data", DType::kFloat32, {size, 3}}};
  ASSERT_TRUE(infer_sizes(graph, table, inputs).ok());
  EXPECT_EQ(graph.value(graph.outputs[0].value).sizes().to_string(), "nx3");
  const Status joinable = check_joinable(nested_branches(), {spec("condition", {-1}), spec("other", {-1}), spec("data", {-1})},
                                         {spec("condition", {1}), spec("other", {1}), spec("data", {1})});
  EXPECT_EQ(joinable.code(), StatusCode::kUnimplemented) << "a condition is that of all rows: " << joinable.to_string();
}

}  // namespace
}  // namespace shoal::worker
