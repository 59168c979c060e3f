// What `shoal inspect --nodes` lists, of the model that ships.
#include "tools/shoal/node_list.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "worker/graph/operators.hpp"
#include "worker/import/importer.hpp"
#include "worker/passes/infer.hpp"

namespace shoal::tool {
namespace {

namespace fs = std::filesystem;

worker::Graph read_graph() {
  const char* const source = std::getenv("SHOAL_SOURCE_DIR");
  const fs::path model = fs::path(source != nullptr ? source : ".") / "tools" / "shapes" / "model";
  return worker::read_model({model / "shapes-symbol.json", model / "shapes-0000.params"}).value().graph;
}

const ListedNode* find(const std::vector<ListedNode>& nodes, const std::string& name) {
  for (const ListedNode& node : nodes) {
    if (node.name == name) return &node;
  }
  return nullptr;
}

TEST(NodeList, SaysWhatRunsEachNodeAndInWhichTypes) {
  worker::Graph graph = read_graph();
  const std::vector<TensorSpec> inputs = {{"data", DType::kFloat32, Shape({1, 3, 64, 64})}};
  ASSERT_TRUE(worker::infer(graph, inputs).ok());
  const worker::Node& first = graph.nodes.front();
  const std::string name = worker::describe(first);
  const std::vector<worker::StepInfo> steps = {
      {.name = name, .implementation = "copy"},
      {.name = name, .implementation = "jit", .flops = 9},
      {.name = name, .implementation = "reorder", .flops = 1},
      {.name = worker::describe(graph.nodes.back()), .implementation = "fake", .on_device = true}};
  const auto nodes = list_nodes(graph, &steps, "fake", "cpu");
  ASSERT_EQ(nodes.size(), graph.nodes.size());
  EXPECT_EQ(nodes.front().by, "jit") << "the step that computes, not the copies beside it";
  EXPECT_EQ(nodes.front().device, "cpu");
  EXPECT_EQ(nodes.front().op, "Convolution");
  EXPECT_TRUE(nodes.front().types.starts_with("float32, ") && nodes.front().types.ends_with(" -> float32"))
      << nodes.front().types;
  EXPECT_EQ(nodes.back().device, "fake");
  EXPECT_EQ(nodes[1].by, "fused");
  EXPECT_EQ(nodes[1].device, "");
}

TEST(NodeList, NamesConstantsAndWhatIsMissing) {
  worker::Graph graph = read_graph();
  const worker::ValueId weight = graph.nodes.front().inputs[1];
  const worker::ValueId folded = graph.add_value({.name = "folded", .dtype = DType::kFloat32});
  graph.nodes.insert(graph.nodes.begin(),
                     {.op = graph.nodes[1].op, .name = "of_a_weight", .inputs = {weight}, .outputs = {folded}});
  const std::vector<worker::StepInfo> steps = {{.name = "other"}};
  const std::vector<worker::RefusedNode> refused = {{.op = "Custom", .node = "mine", .reason = "is a program"},
                                                    {.op = "Convolution", .node = graph.nodes[1].name, .reason = "does not fit"}};
  auto nodes = list_nodes(graph, &steps, "cpu", "cpu");
  add_refused(refused, nodes);
  EXPECT_EQ(nodes.size(), graph.nodes.size() + 1);
  EXPECT_EQ(find(nodes, graph.nodes[1].name)->missing, "does not fit");
  EXPECT_EQ(find(nodes, "of_a_weight")->by, "constant");
  const ListedNode* const missing = find(nodes, "mine");
  ASSERT_NE(missing, nullptr);
  EXPECT_EQ(missing->op, "Custom");
  EXPECT_EQ(missing->missing, "is a program");
  EXPECT_EQ(missing->by, "");
}

}  // namespace
}  // namespace shoal::tool
