#include "worker/import/mxnet/mxnet_fingerprint.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "tests/unit/worker/import/mxnet/array_files.hpp"
#include "worker/import/importer.hpp"

namespace shoal::worker {
namespace {

using nlohmann::json;

/// data ─▶ FullyConnected 'fc' (weight) ─▶ relu 'act' ─▶ argmax 'best'.
const char* const kNetwork = R"({"nodes": [
  {"op": "null", "name": "data", "inputs": []},
  {"op": "null", "name": "fc_weight", "attrs": {"__lr_mult__": "0.1"}, "inputs": []},
  {"op": "FullyConnected", "name": "fc", "attrs": {"no_bias": "True", "num_hidden": "4"}, "inputs": [[0, 0, 0], [1, 0, 0]]},
  {"op": "Activation", "name": "act", "attrs": {"act_type": "relu"}, "inputs": [[2, 0, 0]]},
  {"op": "argmax", "name": "best", "attrs": {"axis": "1"}, "inputs": [[3, 0, 0]]}],
  "arg_nodes": [0, 1], "heads": [[3, 0, 0]], "attrs": {"mxnet_version": ["int", 10901]}})";

std::string fingerprint_of(const std::string& text) {
  MemoryBudget budget{ImportLimits()};
  const auto symbol = parse_mxnet_symbol({"symbol", std::as_bytes(std::span(text)), nullptr}, budget);
  EXPECT_TRUE(symbol.ok()) << symbol.status().to_string();
  return symbol.ok() ? fingerprint(*symbol) : "";
}

template <typename Change>
std::string changed_by(Change change) {
  json symbol = json::parse(kNetwork);
  change(symbol);
  return fingerprint_of(symbol.dump());
}

// Daemons and clients of other releases compare it: if it must change, the number before the colon does, too.
TEST(MxnetFingerprint, IsTheSameInEveryRelease) {
  EXPECT_EQ(fingerprint_of(kNetwork), "mxnet1:c1748afcc55e291957a16f6b5b08de41");
}

TEST(MxnetFingerprint, DoesNotDependOnHowTheFileIsWritten) {
  const std::string same = fingerprint_of(kNetwork);
  EXPECT_EQ(changed_by([](json&) {}), same) << "spaces and the order of keys";
  EXPECT_EQ(changed_by([](json& symbol) { symbol["attrs"]["mxnet_version"][1] = 10300; }), same);
  EXPECT_EQ(changed_by([](json& symbol) { symbol.erase("attrs"); }),
            changed_by([](json& symbol) { symbol["attrs"]["mxnet_version"][1] = 800; }));
  for (const char* const key : {"attr", "param"}) {
    EXPECT_EQ(changed_by([&](json& symbol) {
                for (json& node : symbol["nodes"]) {
                  if (!node.contains("attrs")) continue;
                  node[key] = node["attrs"];
                  node.erase("attrs");
                }
              }),
              same)
        << key;
  }
  EXPECT_EQ(changed_by([](json& symbol) {
              symbol["nodes"][0]["attrs"] = {{"__shape__", "(1, 3)"}, {"__dtype__", "0"}};
              symbol["nodes"][1]["attrs"] = {{"__lr_mult__", "2"}, {"__init__", "zeros"}};
              symbol["nodes"][2]["attrs"]["weight_lr_mult"] = "2";
              symbol["nodes"][3]["attrs"]["ctx_group"] = "gpu";
            }),
            same)
      << "hints";
  EXPECT_EQ(changed_by([](json& symbol) {  // the weight before the data
              std::swap(symbol["nodes"][0], symbol["nodes"][1]);
              symbol["nodes"][2]["inputs"] = {{1, 0, 0}, {0, 0, 0}};
            }),
            same)
      << "the order of nodes";
  EXPECT_EQ(changed_by([](json& symbol) { symbol["nodes"].erase(4); }), same) << "a node that no output needs";
}

TEST(MxnetFingerprint, ChangesWithWhatIsComputed) {
  std::set<std::string> seen{fingerprint_of(kNetwork)};
  const auto is_new = [&](auto change) { return seen.insert(changed_by(change)).second; };
  EXPECT_TRUE(is_new([](json& symbol) { symbol["nodes"][3]["attrs"]["act_type"] = "sigmoid"; }));
  EXPECT_TRUE(is_new([](json& symbol) { symbol["nodes"][3]["op"] = "LeakyReLU"; }));
  EXPECT_TRUE(is_new([](json& symbol) { symbol["nodes"][3]["name"] = "act2"; }));
  EXPECT_TRUE(is_new([](json& symbol) { symbol["nodes"][2]["attrs"].erase("no_bias"); }));
  EXPECT_TRUE(is_new([](json& symbol) { symbol["nodes"][2]["attrs"]["more"] = ""; }));
  EXPECT_TRUE(is_new([](json& symbol) { symbol["nodes"][2]["attrs"] = {{"no_bias", "True4"}, {"num_hidden", ""}}; }));
  EXPECT_TRUE(is_new([](json& symbol) { symbol["nodes"][1]["name"] = "weight"; }));
  EXPECT_TRUE(is_new([](json& symbol) { symbol["nodes"][2]["inputs"] = {{1, 0, 0}, {0, 0, 0}}; }));
  EXPECT_TRUE(is_new([](json& symbol) { symbol["nodes"][3]["inputs"] = {{2, 1, 0}}; }));
  EXPECT_TRUE(is_new([](json& symbol) { symbol["heads"] = {{4, 0, 0}}; }));
  EXPECT_TRUE(is_new([](json& symbol) { symbol["heads"] = {{3, 0, 0}, {4, 0, 0}}; }));
  EXPECT_TRUE(is_new([](json& symbol) { symbol["heads"] = {{4, 0, 0}, {3, 0, 0}}; }));
  EXPECT_TRUE(is_new([](json& symbol) { symbol["attrs"]["is_np_shape"] = {"int", 1}; }));
  const auto with_body = [](const char* op) {
    return [op](json& symbol) {
      json body = json::parse(kNetwork);
      body["nodes"][3]["attrs"]["act_type"] = op;
      symbol["nodes"][3]["subgraphs"] = json::array({body});
    };
  };
  EXPECT_TRUE(is_new(with_body("relu")));
  EXPECT_TRUE(is_new(with_body("sigmoid")));
}

// Two outputs of one graph are outputs of the same graph.
TEST(MxnetFingerprint, DoesNotDependOnTheOutputsThatAreWanted) {
  const std::string symbol = kNetwork, params = test::list({}, {});
  const auto import = [&](std::vector<std::string> outputs) {
    return Importer::survey({{{"net-symbol.json", std::as_bytes(std::span(symbol)), nullptr},
                              {"net-0000.params", std::as_bytes(std::span(params)), nullptr}},
                             std::move(outputs)})
        .value()
        .import.fingerprint;
  };
  EXPECT_EQ(import({}), fingerprint_of(kNetwork));
  EXPECT_EQ(import({"fc_output"}), fingerprint_of(kNetwork));
}

}  // namespace
}  // namespace shoal::worker
