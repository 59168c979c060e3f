// What `shoal inspect` is made of: a checkpoint's survey, on damaged copies of the model that ships.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "worker/import/importer.hpp"

namespace shoal::worker {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class SurveyTest : public testing::Test {
 protected:
  SurveyTest()
      : model_(fs::path(std::getenv("SHOAL_SOURCE_DIR") ? std::getenv("SHOAL_SOURCE_DIR") : ".") / "tools" / "shapes" / "model") {
    symbol_ = fs::temp_directory_path() / ("shoal-survey-" + std::to_string(::getpid()) + "-symbol.json");
    std::ifstream stream(model_ / "shapes-symbol.json");
    graph_ = json::parse(stream);
  }
  ~SurveyTest() override { fs::remove(symbol_); }

  Result<Survey> survey() {
    std::ofstream(symbol_) << graph_.dump();
    return survey_model({symbol_, model_ / "shapes-0000.params"});
  }
  Result<Import> import() const { return read_model({symbol_, model_ / "shapes-0000.params"}); }

  fs::path model_, symbol_;
  json graph_;
};

TEST_F(SurveyTest, OfASupportedModelIsWhatTheImportGives) {
  const Survey whole = survey().value();
  EXPECT_TRUE(whole.unsupported.empty());
  EXPECT_GT(whole.version, 0);
  ASSERT_FALSE(whole.operators.empty());
  EXPECT_EQ(whole.operators[0].count, 7u);
  EXPECT_EQ(whole.import.graph.nodes.size(), import().value().graph.nodes.size());
  EXPECT_EQ(whole.import.graph.outputs[0].name, "prob_output");
}

TEST_F(SurveyTest, ListsEveryUnsupportedNodeAndTheImportRefuses) {
  std::size_t changed = 0;
  for (json& node : graph_["nodes"]) {
    if (node["op"] == "Activation") node["op"] = "Frobnicate", node["name"] = "frob" + std::to_string(changed++);
  }
  const Survey whole = survey().value();
  ASSERT_EQ(whole.unsupported.size(), changed);
  for (const auto& entry : whole.unsupported) {
    EXPECT_EQ(entry.op, "Frobnicate");
    EXPECT_EQ(entry.node.substr(0, 4), "frob");
    EXPECT_EQ(entry.reason.find("frob"), std::string::npos) << entry.reason;
  }
  EXPECT_EQ(import().status().code(), StatusCode::kUnimplemented);
}

TEST_F(SurveyTest, AReaderOfAnOutputBeyondAllBoundsTakesNoMemory) {
  for (json& node : graph_["nodes"]) {
    if (node["op"] == "Activation") node["op"] = "Frobnicate";
  }
  graph_["heads"][0][1] = 2'000'000'000;
  EXPECT_FALSE(survey().ok());
}

}  // namespace
}  // namespace shoal::worker
