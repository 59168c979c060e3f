// The graph's reader: JSON of every era, what MXNet upgrades, and damage.
#include "worker/import/mxnet/mxnet_symbol.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/worker/import/mxnet/refusals.hpp"
#include "worker/graph/graph.hpp"
#include "worker/import/mxnet/mxnet_importer.hpp"
#include "worker/passes/infer.hpp"

namespace shoal::worker {
namespace {

ForeignFile file(const std::string& text) { return {"m-symbol.json", std::as_bytes(std::span(text)), nullptr}; }

Result<MxnetSymbol> parse(const std::string& text, const ImportLimits& limits = {}) {
  MemoryBudget budget(limits);
  return parse_mxnet_symbol(file(text), budget);
}

void expect_symbol_refused(const std::string& text, const std::vector<std::string>& parts) {
  const Status status = parse(text).status();
  std::vector<std::string> wanted = parts;
  wanted.insert(wanted.end(), {"m-symbol.json", "offset"});
  test::expect_refusal(status, StatusCode::kDataLoss, wanted);
  EXPECT_LT(status.message().size(), 400u);
}

/// A graph of `nodes` whose head is the last of `count`; `more`: other members.
std::string graph_with_last_head(const std::string& nodes, int count, const std::string& more = "") {
  return "{\"nodes\": [" + nodes + "], \"arg_nodes\": [0], \"heads\": [[" + std::to_string(count - 1) + ", 0]]" + more + "}";
}
std::string version(int number) { return ", \"attrs\": {\"mxnet_version\": [\"int\", " + std::to_string(number) + "]}"; }

const std::string kData = R"({"op": "null", "name": "data", "inputs": []})";

std::vector<std::string> inputs_of(const MxnetSymbol& symbol, std::size_t node) {
  std::vector<std::string> names;
  for (const MxnetEntry& input : symbol.nodes[node].inputs) names.push_back(symbol.nodes[input.node].name);
  return names;
}

/// A BatchNorm of MXNet 0.8: its auxiliary states are not in the graph.
const std::string kOldBatchNorm = R"({"op": "null", "param": {}, "name": "data", "inputs": [], "backward_source_id": -1},
  {"op": "null", "param": {}, "name": "n_gamma", "inputs": [], "backward_source_id": -1},
  {"op": "null", "param": {}, "name": "n_beta", "inputs": [], "backward_source_id": -1},
  {"op": "BatchNorm", "param": {"eps": "0.001"}, "name": "n", "inputs": [[0, 0], [1, 0], [2, 0]], "backward_source_id": -1,
   "attr": {"ctx_group": "dev1", "gamma_lr_mult": "0.0"}})";

TEST(MxnetSymbol, OfTheParamEraGainsItsAuxiliaryStates) {
  const auto symbol = parse(graph_with_last_head(kOldBatchNorm, 4));
  ASSERT_TRUE(symbol.ok()) << symbol.status().to_string();
  EXPECT_EQ(inputs_of(*symbol, 3), (std::vector<std::string>{"data", "n_gamma", "n_beta", "n_moving_mean", "n_moving_var"}));
  const auto import = import_mxnet_symbol(file(graph_with_last_head(kOldBatchNorm, 4)));
  ASSERT_TRUE(import.ok()) << import.status().to_string();
  EXPECT_EQ(import->auxiliaries, (std::set<std::string>{"n_moving_mean", "n_moving_var"}));
  EXPECT_TRUE(import->warnings.empty()) << import->warnings.front();  // hints of the trainer are known
}

TEST(MxnetSymbol, FromVersion900OnGainsNothing) {
  EXPECT_EQ(parse(graph_with_last_head(kOldBatchNorm, 4, version(899))).value().nodes.size(), 6u);
  EXPECT_EQ(parse(graph_with_last_head(kOldBatchNorm, 4, version(900))).value().nodes.size(), 4u);
  EXPECT_FALSE(import_mxnet_symbol(file(graph_with_last_head(kOldBatchNorm, 4, version(900)))).ok());
}

TEST(MxnetSymbol, OfTheParamEraGainsEveryInputThatIsMadeAtBinding) {
  const auto gained = [](const std::string& op, const std::string& param, const std::string& name = "n") {
    const auto symbol = parse(graph_with_last_head(
        kData + R"(, {"op": ")" + op + R"(", "name": ")" + name + R"(", "param": )" + param + R"(, "inputs": [[0, 0]]})", 2));
    std::vector<std::string> inputs = inputs_of(*symbol, 1);
    inputs.erase(inputs.begin());
    return inputs;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(gained("Convolution", "{}"), (Names{"n_weight", "n_bias"}));
  EXPECT_EQ(gained("FullyConnected", R"({"no_bias": "True"})"), Names{"n_weight"});
  EXPECT_EQ(gained("FullyConnected", "{}", ""), (Names{"weight", "bias"}));
  EXPECT_EQ(gained("Deconvolution", "{}"), Names{"n_weight"});
  EXPECT_EQ(gained("LeakyReLU", R"({"act_type": "prelu"})"), Names{"n_gamma"});
  EXPECT_EQ(gained("LeakyReLU", R"({"act_type": "leaky"})"), Names{});
  EXPECT_EQ(gained("SoftmaxOutput", "{}"), Names{"n_label"});
  EXPECT_EQ(gained("Activation", R"({"act_type": "relu"})"), Names{});
}

TEST(MxnetSymbol, ReadsAttributesUnderEveryKeyOfTheEras) {
  const auto text = [](const std::string& attributes) {
    return graph_with_last_head(kData + R"(, {"op": "Activation", "name": "a", "inputs": [[0, 0]], )" + attributes + "}", 2);
  };
  for (const char* key : {"attrs", "attr", "param"}) {
    const auto symbol = parse(text("\"" + std::string(key) + R"(": {"act_type": "tanh"})"));
    ASSERT_TRUE(symbol.ok()) << symbol.status().to_string();
    EXPECT_EQ(symbol->nodes[1].attributes.at("act_type"), "tanh");
  }
  const auto both = parse(text(R"("param": {"act_type": "relu", "x": "1"}, "attr": {"act_type": "tanh"})"));
  EXPECT_EQ(both->nodes[1].attributes, (std::map<std::string, std::string>{{"act_type", "tanh"}, {"x", "1"}}));
}

TEST(MxnetSymbol, ForgetsTheOldDefaultAxisOfArgmaxBefore095) {
  const auto axis = [](int number, const std::string& text) {
    const auto symbol = parse(graph_with_last_head(
        kData + R"(, {"op": "argmax", "name": "a", "attr": {"axis": ")" + text + R"("}, "inputs": [[0, 0]]})", 2,
        number == 0 ? "" : version(number)));
    return symbol->nodes[1].attributes.contains("axis");
  };
  EXPECT_FALSE(axis(0, "-1"));
  EXPECT_FALSE(axis(904, "-1"));
  EXPECT_TRUE(axis(904, "1"));
  EXPECT_TRUE(axis(905, "-1"));
}

TEST(MxnetSymbol, KnowsPoolingFromBefore08ByTheAttributeThatItLacks) {
  const auto height = [](const std::string& attributes) {
    auto import = import_mxnet_symbol(
        file(graph_with_last_head(kData + R"(, {"op": "Pooling", "name": "p", "inputs": [[0, 0]], )" + attributes + "}", 2)));
    EXPECT_TRUE(import.ok()) << import.status().to_string();
    EXPECT_TRUE(infer(import->graph, std::vector<TensorSpec>{{"data", DType::kFloat32, {1, 1, 7, 6}}}).ok());
    return import->graph.value(import->graph.outputs[0].value).shape[2];
  };
  const std::string all = R"json("kernel": "(2, 2)", "stride": "(2, 2)", "pad": "(0, 0)", "pool_type": "max")json";
  EXPECT_EQ(height("\"param\": {" + all + "}"), 4);  // min(7 - 2 + 2 - 1, 7 - 1) / 2 + 1
  EXPECT_EQ(height("\"param\": {" + all + R"(, "pooling_convention": "valid"})"), 3);
  EXPECT_EQ(height("\"attr\": {" + all + "}"), 3);
  EXPECT_EQ(height(R"json("param": {"kernel": "(2, 2)", "stride": "(2, 2)"})json"),
            3);  // not one of the writers that stored everything
}

TEST(MxnetSymbol, KnowsPoolingOfMxnet2AndRefusesItsOutputSize) {
  const auto import = [](const std::string& size) {
    return import_mxnet_symbol(file(graph_with_last_head(kData + R"json(, {"op": "Pooling", "name": "p", "inputs": [[0, 0]],
        "attrs": {"kernel": "(2, 2)", "output_size": ")json" +
                                                             size + "\"}}",
                                                         2)));
  };
  const auto none = import("None");
  ASSERT_TRUE(none.ok()) << none.status().to_string();
  EXPECT_TRUE(none->warnings.empty()) << none->warnings.front();
  const Status refused = import("(3, 3)").status();
  EXPECT_NE(refused.message().find("output_size='(3, 3)'"), std::string::npos) << refused.to_string();
}

TEST(MxnetSymbol, BeginsNoOldPoolingWindowBehindThePadding) {
  const std::string pooling = R"json(, {"op": "Pooling", "name": "p", "inputs": [[0, 0]], "param": {"kernel": "(1, 1)",
    "stride": "(3, 3)", "pad": "(0, 0)", "pool_type": "max"}})json";
  auto import = import_mxnet_symbol(file(graph_with_last_head(kData + pooling, 2)));
  ASSERT_TRUE(import.ok());
  ASSERT_TRUE(infer(import->graph, std::vector<TensorSpec>{{"data", DType::kFloat32, {1, 1, 6, 7}}}).ok());
  EXPECT_EQ(import->graph.value(import->graph.outputs[0].value).shape, (Shape{1, 1, 2, 3}));  // a plain ceil would give 3x3
}

TEST(MxnetSymbol, TellsZeroSizesFromUnknownOnesByTheNumpyMark) {
  const auto shape = [](const std::string& more, const std::string& text) {
    const auto import = import_mxnet_symbol(file(graph_with_last_head(
        R"({"op": "null", "name": "data", "inputs": [], "attrs": {"__shape__": ")" + text + R"("}})", 1, more)));
    return import->graph.input_specs()[0].shape;
  };
  EXPECT_EQ(shape("", "(0, 3, -1)"), (Shape{-1, 3, -1}));
  EXPECT_EQ(shape(R"(, "attrs": {"is_np_shape": ["int", 1]})", "(0, 3, -1)"), (Shape{0, 3, -1}));
}

TEST(MxnetSymbol, ToleratesWhatItDoesNotKnow) {
  EXPECT_TRUE(parse(graph_with_last_head(
                        R"({"op": "null", "name": "data", "inputs": [], "color": {"deep": [1]}, "subgraphs": []})", 1,
                        R"(, "node_row_ptr": [0, 99], "odd": null, "attrs": {"x": ["str", "y"], "mxnet_version": "new"})"))
                  .ok());
}

TEST(MxnetSymbol, ReadsEntriesOfTwoAndThreeNumbersAndControlDependencies) {
  const auto symbol =
      parse(graph_with_last_head(kData + R"(, {"op": "_copy", "name": "c", "inputs": [[0, 0, 1]], "control_deps": [0]})", 2));
  ASSERT_TRUE(symbol.ok()) << symbol.status().to_string();
  EXPECT_EQ(symbol->nodes[0].offset, std::string("{\"nodes\": [").size());
  EXPECT_EQ(symbol->nodes[1].offset, symbol->nodes[0].offset + kData.size() + 2);
  expect_symbol_refused(
      graph_with_last_head(kData + R"(, {"op": "_copy", "name": "c", "inputs": [[0, 0]], "control_deps": [7]})", 2),
      {"'c'", "control_deps", "7"});
}

TEST(MxnetSymbol, IsRefusedByNodeAndField) {
  const auto with_node = [](const std::string& node) { return graph_with_last_head(kData + ", " + node, 2); };
  expect_symbol_refused("", {"JSON"});
  expect_symbol_refused("[1, 2]", {"graph"});
  expect_symbol_refused(R"({"nodes": [], "arg_nodes": []})", {"heads"});
  expect_symbol_refused(R"({"nodes": [], "arg_nodes": [], "heads": []})", {"heads"});
  expect_symbol_refused(R"({"nodes": [], "arg_nodes": [], "heads": [[0, 0]]})", {"heads", "node 0 of 0"});
  std::string heads = "[0, 0]";
  for (int i = 0; i < 4096; ++i) heads += ", [0, 0]";
  expect_symbol_refused("{\"nodes\": [" + kData + "], \"arg_nodes\": [0], \"heads\": [" + heads + "]}",
                        {"'heads'", "4097", "4096"});
  expect_symbol_refused(with_node("7"), {"node 1"});
  expect_symbol_refused(with_node(R"({"name": "c", "inputs": []})"), {"node 1", "op"});
  expect_symbol_refused(with_node(R"({"op": "_copy", "name": "c"})"), {"node 1 'c'", "inputs"});
  expect_symbol_refused(with_node(R"({"op": "_copy", "name": "c", "inputs": [[0]]})"), {"node 1 'c'", "inputs"});
  expect_symbol_refused(with_node(R"({"op": "_copy", "name": "c", "inputs": [[9, 0]]})"), {"node 1 'c'", "inputs", "9 of 2"});
  expect_symbol_refused(with_node(R"({"op": "_copy", "name": "c", "inputs": [[1, 0]]})"), {"node 1 'c'", "cycle"});
  expect_symbol_refused(with_node(R"({"op": "_copy", "name": "c", "inputs": [[0, -1]]})"), {"node 1 'c'", "inputs"});
  expect_symbol_refused(with_node(R"({"op": "_copy", "name": "c", "inputs": [[0, 0]], "attrs": {"k": 3}})"), {"node 1 'c'", "k"});
  expect_symbol_refused(with_node(R"({"op": "null", "name": "c", "inputs": [[0, 0]]})"), {"node 1 'c'", "inputs"});
  expect_symbol_refused(
      R"({"nodes": [)" + kData + R"(, {"op": "_copy", "name": "c", "inputs": [[0, 0]]}], "arg_nodes": [1], "heads": [[1, 0]]})",
      {"arg_nodes", "'c'"});
}

TEST(MxnetSymbol, ErrorsAreShortWhateverTheFileHolds) {
  const std::string deep = std::string(40, '[') + std::string(40, ']');
  expect_symbol_refused(graph_with_last_head(kData + R"(, {"op": "_copy", "name": "c", "inputs": [)" + deep + "]}", 2),
                        {"inputs"});
  expect_symbol_refused(
      graph_with_last_head(kData + R"(, {"op": "_copy", "name": "c", "inputs": [")" + std::string(100000, 'x') + R"("]})", 2),
      {"inputs"});
  expect_symbol_refused(std::string(100000, '['), {"JSON", "deep"});
  expect_symbol_refused("{\"" + std::string(100000, 'x'), {"JSON", "syntax error while parsing", "expected string"});
  const Status alien = parse("[\"" + std::string("\xf0\x28\x8c\x28") + "\"]").status();
  EXPECT_TRUE(std::ranges::all_of(alien.message(), [](char c) { return c >= ' ' && c <= '~'; })) << alien.to_string();
}

TEST(MxnetSymbol, TakesNoMoreMemoryThanIsAllowed) {
  const std::string text = graph_with_last_head(kData, 1);
  const auto symbol = parse(text, {.memory_bytes = 1000});
  ASSERT_FALSE(symbol.ok());
  EXPECT_EQ(symbol.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(symbol.status().message().find("1000 bytes"), std::string::npos) << symbol.status().to_string();
}

}  // namespace
}  // namespace shoal::worker
