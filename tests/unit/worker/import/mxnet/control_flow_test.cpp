// _foreach, _while_loop and _cond, as MXNet 1.9.1 writes them.
#include <gtest/gtest.h>

#include "shm/base/format.hpp"
#include "tests/support/interpreter.hpp"
#include "tests/support/scratch_directory.hpp"
#include "tests/support/vectors.hpp"
#include "tests/unit/worker/import/mxnet/array_files.hpp"
#include "tests/unit/worker/import/mxnet/refusals.hpp"
#include "worker/graph/operators.hpp"
#include "worker/import/mxnet/mxnet_importer.hpp"
#include "worker/ops/control_flow.hpp"

namespace shoal::worker {
namespace {

struct NodeText {
  std::string op, name;
  std::vector<std::string> inputs;  ///< names of nodes, "name:1" for their second output
  std::string attributes = "{}";
  std::string subgraphs = "";
};

/// The JSON of a graph.
std::string graph_with_heads(const std::vector<NodeText>& nodes, const std::vector<std::string>& heads,
                             const std::string& more = "") {
  const auto entry = [&](const std::string& text) {
    const auto colon = text.find(':');
    const std::string name = text.substr(0, colon), output = colon == std::string::npos ? "0" : text.substr(colon + 1);
    std::size_t id = 0;
    while (nodes.at(id).name != name) ++id;
    return format("[{}, {}, 0]", id, output);
  };
  const auto entries = [&](const std::vector<std::string>& names) {
    std::string text;
    for (const std::string& name : names) text += (text.empty() ? "" : ", ") + entry(name);
    return "[" + text + "]";
  };
  std::string list, variables;
  for (std::size_t id = 0; id < nodes.size(); ++id) {
    const NodeText& node = nodes[id];
    if (node.op == "null") variables += format("{}{}", variables.empty() ? "" : ", ", id);
    list +=
        format(R"({}{"op": "{}", "name": "{}", "attrs": {}, "inputs": {}{}})", id == 0 ? "" : ",\n", node.op, node.name,
               node.attributes, entries(node.inputs), node.subgraphs.empty() ? "" : ", \"subgraphs\": [" + node.subgraphs + "]");
  }
  return format(R"({"nodes": [{}], "arg_nodes": [{}], "heads": {}{}})", list, variables, entries(heads), more);
}
const std::string kVersion = R"(, "attrs": {"mxnet_version": ["int", 10901]})";

class ControlFlow : public ::testing::Test {
 protected:
  Result<MxnetSymbolImport> import(const std::string& json) const {
    return import_mxnet_symbol(ForeignFile{"m-symbol.json", std::as_bytes(std::span(json)), nullptr});
  }
  static Tensor tensor(const Shape& shape, const std::vector<float>& values) {
    Tensor made = Tensor::create(DType::kFloat32, shape).value();
    std::ranges::copy(values, made.values<float>().begin());
    return made;
  }
  void expect_outputs(const std::string& json, const Tensors& inputs, const Tensors& wanted) const {
    const auto imported = import(json);
    ASSERT_TRUE(imported.ok()) << imported.status().to_string();
    EXPECT_TRUE(imported->warnings.empty());
    const auto outputs = testing::interpret(imported->graph, inputs);
    ASSERT_TRUE(outputs.ok()) << outputs.status().to_string();
    ASSERT_EQ(outputs->size(), wanted.size());
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      EXPECT_EQ((*outputs)[i].name, wanted[i].name);
      EXPECT_TRUE(testing::close_to((*outputs)[i].tensor.view(), wanted[i].tensor.view(), 1e-6)) << wanted[i].name;
    }
  }
  void expect_refused(const std::string& json, StatusCode code, const std::vector<std::string>& parts) const {
    test::expect_refusal(import(json).status(), code, parts);
  }
};

// ---- _foreach: running sums, scaled by what the body takes from outside ----

/// row * weight + state is both the row and the new state. The body's variables are found in the order state, row, weight.
const std::string kSumBody =
    graph_with_heads({{"null", "state", {}},
                      {"null", "row", {}},
                      {"null", "weight", {}},
                      {"broadcast_mul", "product", {"row", "weight"}, R"({"__subgraph_name__": "foreach0"})"},
                      {"broadcast_add", "sum", {"state", "product"}, R"({"__subgraph_name__": "foreach0"})"},
                      {"_copy", "copy", {"sum"}}},
                     {"sum", "copy"});
const std::string kSumAttributes =
    R"json({"num_args": "4", "num_outputs": "2", "num_out_data": "1", "in_state_locs": "(0,)", )json"
    R"json("in_data_locs": "(1,)", "remain_locs": "(2,)"})json";
std::string sums(const std::string& attributes = kSumAttributes, const std::string& body = kSumBody,
                 const std::string& more = kVersion) {
  return graph_with_heads({{"null", "data", {}},
                           {"null", "begin", {}},
                           {"null", "weight", {}},
                           {"_foreach", "loop", {"data", "begin", "weight"}, attributes, body}},
                          {"loop", "loop:1"}, more);
}
/// The attributes with another text for one.
std::string with_attribute(std::string attributes, const std::string& key, const std::string& text) {
  const auto begin = attributes.find("\"" + key + "\": \"") + key.size() + 5, end = attributes.find('"', begin);
  return attributes.replace(begin, end - begin, text);
}

TEST_F(ControlFlow, ForeachGoesThroughRowsAndCarriesStates) {
  const Tensors inputs{
      {"data", tensor({3, 2}, {1, 2, 3, 4, 5, 6})}, {"begin", tensor({2}, {100, 200})}, {"weight", tensor({1}, {10})}};
  expect_outputs(sums(), inputs,
                 {{"loop_output0", tensor({3, 2}, {110, 220, 140, 260, 190, 320})}, {"loop_output1", tensor({2}, {190, 320})}});
}

TEST_F(ControlFlow, ForeachGivesRowsOfAVectorOneAxis) {
  const Tensors inputs{{"data", tensor({3}, {1, 2, 3})}, {"begin", tensor({1}, {0})}, {"weight", tensor({1}, {1})}};
  expect_outputs(sums(), inputs, {{"loop_output0", tensor({3, 1}, {1, 3, 6})}, {"loop_output1", tensor({1}, {6})}});
  const std::string np = R"(, "attrs": {"mxnet_version": ["int", 20000], "is_np_shape": ["int", 1]})";
  const Tensors scalars{{"data", tensor({3}, {1, 2, 3})}, {"begin", tensor({}, {0})}, {"weight", tensor({}, {1})}};
  std::string json = sums(kSumAttributes, kSumBody, np);
  json.replace(json.find("_foreach"), 8, "_npx_foreach");
  expect_outputs(json, scalars, {{"loop_output0", tensor({3}, {1, 3, 6})}, {"loop_output1", tensor({}, {6})}});
}

TEST_F(ControlFlow, ForeachIsAScan) {
  const auto imported = import(sums());
  ASSERT_TRUE(imported.ok()) << imported.status().to_string();
  ASSERT_EQ(imported->graph.nodes.size(), 1u);
  const Node& node = imported->graph.nodes[0];
  EXPECT_EQ(node.op, &ops::kScan);
  EXPECT_EQ(describe(node), "_foreach 'loop'");
  const auto& scan = node.attributes.get<ScanAttributes>();
  EXPECT_EQ(scan.scanned, 1);
  EXPECT_EQ(scan.states, 1);
  EXPECT_EQ(scan.least_rank, 1);
  EXPECT_EQ(node.bodies.at(0).inputs.size(), 3u);
  EXPECT_EQ(node.bodies.at(0).nodes.size(), 2u);
}

TEST_F(ControlFlow, ForeachWithinForeach) {
  // The outer body sums the running sums of a matrix.
  const std::string outer = graph_with_heads({{"null", "rows", {}},
                                              {"null", "state", {}},
                                              {"null", "w", {}},
                                              {"_foreach", "inner", {"rows", "state", "w"}, kSumAttributes, kSumBody},
                                              {"_copy", "copy", {"inner:1"}}},
                                             {"inner:1", "copy"});
  const std::string attributes = with_attribute(with_attribute(kSumAttributes, "in_data_locs", "(0,)"), "in_state_locs", "(1,)");
  const Tensors inputs{{"data", tensor({2, 2, 1}, {1, 2, 3, 4})}, {"begin", tensor({1}, {0})}, {"weight", tensor({1}, {1})}};
  expect_outputs(sums(attributes, outer), inputs,
                 {{"loop_output0", tensor({2, 1}, {3, 10})}, {"loop_output1", tensor({1}, {10})}});
}

TEST_F(ControlFlow, ForeachRefusesWhatDoesNotFit) {
  const auto refused = [&](const std::string& key, const std::string& text, StatusCode code, const std::string& part) {
    expect_refused(sums(with_attribute(kSumAttributes, key, text)), code, {"_foreach 'loop'", part});
  };
  refused("in_data_locs", "(3,)", StatusCode::kInvalidArgument, "in_data_locs holds 3");
  refused("in_data_locs", "(0,)", StatusCode::kInvalidArgument, "hold 0 twice");
  refused("in_data_locs", "(-1,)", StatusCode::kInvalidArgument, "in_data_locs");
  refused("in_data_locs", "()", StatusCode::kInvalidArgument, "in_data_locs is empty");
  refused("remain_locs", "()", StatusCode::kInvalidArgument, "for 2 inputs");
  refused("in_state_locs", "()", StatusCode::kUnimplemented, "0 of its 1 states");
  refused("num_out_data", "3", StatusCode::kInvalidArgument, "num_out_data");
  refused("num_outputs", "3", StatusCode::kUnimplemented, "1 of its 2 states");
  expect_refused(sums(kSumAttributes, ""), StatusCode::kInvalidArgument, {"_foreach 'loop'", "0 subgraphs"});
  expect_refused(sums(kSumAttributes, kSumBody + ", " + kSumBody), StatusCode::kInvalidArgument,
                 {"_foreach 'loop'", "2 subgraphs"});
  const std::string one_head = graph_with_heads(
      {{"null", "state", {}}, {"null", "row", {}}, {"null", "weight", {}}, {"add_n", "sum", {"state", "row", "weight"}}},
      {"sum"});
  expect_refused(sums(kSumAttributes, one_head), StatusCode::kInvalidArgument, {"_foreach 'loop'", "1 heads"});
  const std::string two_variables =
      graph_with_heads({{"null", "state", {}}, {"null", "row", {}}, {"_plus", "sum", {"state", "row"}}}, {"sum", "sum"});
  expect_refused(sums(kSumAttributes, two_variables), StatusCode::kInvalidArgument, {"_foreach 'loop'", "2 variables"});
}

TEST_F(ControlFlow, NamesWhatIsWrongInABody) {
  const auto body = [](const std::string& op, const std::string& attributes) {
    return graph_with_heads({{"null", "state", {}},
                             {"null", "row", {}},
                             {"null", "weight", {}},
                             {"add_n", "sum", {"state", "row", "weight"}},
                             {op, "odd", {"sum"}, attributes}},
                            {"odd", "sum"});
  };
  expect_refused(sums(kSumAttributes, body("NoSuchOperator", "{}")), StatusCode::kUnimplemented, {"NoSuchOperator 'odd'"});
  expect_refused(sums(kSumAttributes, body("Activation", R"({"act_type": "odd"})")), StatusCode::kInvalidArgument,
                 {"_foreach 'loop'", "Activation 'odd'", "act_type"});
  expect_refused(sums(kSumAttributes, body("elemwise_add", "{}")), StatusCode::kInvalidArgument,
                 {"_foreach 'loop'", "elemwise_add 'odd'", "1 inputs"});
  const auto imported = import(sums(kSumAttributes, body("relu", R"({"unheard_of": "1"})")));
  ASSERT_TRUE(imported.ok()) << imported.status().to_string();
  ASSERT_EQ(imported->warnings.size(), 1u);
  EXPECT_NE(imported->warnings[0].find("unheard_of"), std::string::npos);
}

TEST_F(ControlFlow, DamagedGraphsInANodeAreNamed) {
  const auto refused = [&](const std::string& subgraph, const std::string& part) {
    expect_refused(sums(kSumAttributes, subgraph), StatusCode::kDataLoss, {"m-symbol.json", "node 3 'loop', subgraphs", part});
  };
  refused("7", "no object");
  refused("{}", "'nodes'");
  refused(R"({"nodes": [], "arg_nodes": [], "heads": []})", "'heads'");
  refused(R"({"nodes": [{"op": "relu", "name": "r", "inputs": [[5, 0, 0]]}], "arg_nodes": [], "heads": [[0, 0, 0]]})",
          "node 5 of 1");
  refused(R"({"nodes": [{"op": "relu", "name": "r", "inputs": [[0, 0, 0]]}], "arg_nodes": [], "heads": [[0, 0, 0]]})", "cycle");
}

TEST_F(ControlFlow, GraphsWithinGraphsAreReadToALimit) {
  std::string body = kSumBody;
  for (int depth = 1; depth < 20; ++depth) {
    const auto imported = import(sums(kSumAttributes, body));
    if (!imported.ok()) {
      EXPECT_GE(depth, 10);
      EXPECT_EQ(imported.status().code(), StatusCode::kDataLoss);
      EXPECT_NE(imported.status().message().find("nested"), std::string::npos) << imported.status().to_string();
      return;
    }
    body = graph_with_heads({{"null", "state", {}},
                             {"null", "row", {}},
                             {"null", "weight", {}},
                             {"_foreach", "inner", {"row", "state", "weight"}, kSumAttributes, body}},
                            {"inner", "inner:1"});
  }
  FAIL() << "there is no limit";
}

// ---- _while_loop ----

/// x < limit.
const std::string kBelow =
    graph_with_heads({{"null", "x", {}}, {"null", "limit", {}}, {"broadcast_lesser", "below", {"x", "limit"}}}, {"below"});
/// Gives 10 x, then x + step and total + x.
const std::string kStep = graph_with_heads({{"null", "x", {}},
                                            {"_mul_scalar", "ten", {"x"}, R"({"scalar": "10"})"},
                                            {"null", "step", {}},
                                            {"elemwise_add", "next", {"x", "step"}},
                                            {"null", "total", {}},
                                            {"elemwise_add", "sum", {"total", "x"}}},
                                           {"ten", "next", "sum"});
// Inputs: x, limit (both of the condition), step, total.
const std::string kWhileAttributes =
    R"json({"num_args": "6", "num_outputs": "3", "num_out_data": "1", "max_iterations": "4", )json"
    R"json("cond_input_locs": "(0, 1)", "func_input_locs": "(0, 2, 3)", "func_var_locs": "(0, 2)"})json";
std::string counting(const std::string& attributes = kWhileAttributes) {
  return graph_with_heads({{"null", "x", {}},
                           {"null", "limit", {}},
                           {"null", "step", {}},
                           {"null", "total", {}},
                           {"_while_loop", "loop", {"x", "limit", "step", "total"}, attributes, kBelow + ", " + kStep}},
                          {"loop", "loop:1", "loop:2"}, kVersion);
}
Tensors counting_inputs(float limit) {
  const auto number = [](float value) {
    Tensor made = Tensor::create(DType::kFloat32, {1}).value();
    made.values<float>()[0] = value;
    return made;
  };
  return {{"x", number(1)}, {"limit", number(limit)}, {"step", number(2)}, {"total", number(100)}};
}

TEST_F(ControlFlow, WhileLoopPadsItsRows) {
  expect_outputs(counting(), counting_inputs(4),
                 {{"loop_output0", tensor({4, 1}, {10, 30, 0, 0})},
                  {"loop_output1", tensor({1}, {5})},
                  {"loop_output2", tensor({1}, {104})}});
  expect_outputs(
      counting(), counting_inputs(0),
      {{"loop_output0", tensor({4, 1}, {0, 0, 0, 0})}, {"loop_output1", tensor({1}, {1})}, {"loop_output2", tensor({1}, {100})}});
  expect_outputs(counting(), counting_inputs(1000),
                 {{"loop_output0", tensor({4, 1}, {10, 30, 50, 70})},
                  {"loop_output1", tensor({1}, {9})},
                  {"loop_output2", tensor({1}, {116})}});
}

TEST_F(ControlFlow, WhileLoopRefusesWhatDoesNotFit) {
  const auto refused = [&](const std::string& key, const std::string& text, const std::string& part) {
    expect_refused(counting(with_attribute(kWhileAttributes, key, text)), StatusCode::kInvalidArgument,
                   {"_while_loop 'loop'", part});
  };
  refused("max_iterations", "0", "max_iterations");
  refused("cond_input_locs", "(0, 4)", "cond_input_locs holds 4");
  refused("cond_input_locs", "(0,)", "2 variables");
  refused("func_input_locs", "(0, 2)", "func_var_locs holds 2");
  refused("func_input_locs", "(0, 2, 0)", "two states are input 0");
  refused("func_var_locs", "(0, 0)", "two states are input 0");
  refused("func_var_locs", "(0,)", "1 entries");
}

// A condition is lowered twice: before the first turn and after each. Loops within conditions would double at every depth.
TEST_F(ControlFlow, AConditionHoldsNoLoop) {
  const std::string attributes = R"json({"num_args": "1", "num_outputs": "1", "num_out_data": "0", "max_iterations": "2", )json"
                                 R"json("cond_input_locs": "(0,)", "func_input_locs": "(0,)", "func_var_locs": "(0,)"})json";
  const std::string step = graph_with_heads({{"null", "i", {}}, {"_plus_scalar", "next", {"i"}, R"({"scalar": "1"})"}}, {"next"});
  const NodeText less{"_lesser_scalar", "less", {"i"}, R"({"scalar": "3"})"};
  const auto loop_in = [&](const std::string& name, const std::string& condition) {
    return graph_with_heads({{"null", "i", {}}, {"_while_loop", name, {"i"}, attributes, condition + ", " + step}}, {name},
                            kVersion);
  };
  const std::string inner = loop_in("inner", graph_with_heads({{"null", "i", {}}, less}, {"less"}));
  EXPECT_TRUE(import(inner).ok());
  expect_refused(loop_in("outer", inner), StatusCode::kUnimplemented, {"_while_loop 'outer'", "'inner'"});
  const std::string chosen = graph_with_heads({{"null", "i", {}},
                                               {"_cond",
                                                "choice",
                                                {"i"},
                                                R"json({"num_args": "4", "num_outputs": "1", "cond_input_locs": "(0,)", )json"
                                                R"json("then_input_locs": "(0,)", "else_input_locs": "(0,)"})json",
                                                step + ", " + step + ", " + inner}},
                                              {"choice"});
  EXPECT_TRUE(import(chosen).ok());
  expect_refused(loop_in("outer", chosen), StatusCode::kUnimplemented, {"_while_loop 'outer'", "'inner'"});
}

// ---- _cond ----

std::string choice() {
  const std::string positive =
      graph_with_heads({{"null", "p", {}}, {"_greater_scalar", "positive", {"p"}, R"({"scalar": "0"})"}}, {"positive"});
  const std::string sum =
      graph_with_heads({{"null", "a", {}}, {"null", "b", {}}, {"elemwise_add", "sum", {"a", "b"}}}, {"sum", "a"});
  const std::string negative = graph_with_heads({{"null", "b", {}}, {"negative", "negative", {"b"}}}, {"negative", "b"});
  const std::string attributes = R"json({"num_args": "6", "num_outputs": "2", "cond_input_locs": "(0,)", )json"
                                 R"json("then_input_locs": "(2, 1)", "else_input_locs": "(1,)"})json";
  return graph_with_heads({{"null", "p", {}},
                           {"null", "b", {}},
                           {"null", "a", {}},
                           {"_cond", "choice", {"p", "b", "a"}, attributes, positive + ", " + sum + ", " + negative}},
                          {"choice", "choice:1"}, kVersion);
}

TEST_F(ControlFlow, CondTakesOneOfTwoGraphs) {
  const Tensors inputs{{"p", tensor({1}, {1})}, {"b", tensor({2}, {3, 4})}, {"a", tensor({2}, {10, 20})}};
  expect_outputs(choice(), inputs, {{"choice_output0", tensor({2}, {13, 24})}, {"choice_output1", tensor({2}, {10, 20})}});
  Tensors others = inputs;
  others[0].tensor = tensor({1}, {-1});
  expect_outputs(choice(), others, {{"choice_output0", tensor({2}, {-3, -4})}, {"choice_output1", tensor({2}, {3, 4})}});
}

TEST_F(ControlFlow, SurveysListTheOperatorsOfBodies) {
  const test::ScratchDirectory scratch;
  scratch.write("m-symbol.json", choice());
  scratch.write("m-0000.params", test::list({}, {}));
  const auto survey = survey_model({scratch.path("m-symbol.json"), scratch.path("m-0000.params")});
  ASSERT_TRUE(survey.ok()) << survey.status().to_string();
  std::vector<std::string> names;
  for (const Survey::Operator& op : survey->operators) names.push_back(op.name);
  std::ranges::sort(names);
  EXPECT_EQ(names, (std::vector<std::string>{"_cond", "_greater_scalar", "elemwise_add", "negative"}));
}

}  // namespace
}  // namespace shoal::worker
