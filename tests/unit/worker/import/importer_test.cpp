// The door of the formats: which one reads a model, from disk and from memory, which outputs it has, and what is refused.
// tests/support/text_format.cpp is linked in, and nothing here or elsewhere knows its code.
#include "worker/import/importer.hpp"

#include <gtest/gtest.h>

#include "shm/model/model_config.hpp"
#include "shoal/engine.hpp"
#include "tests/support/checkpoint.hpp"
#include "tests/support/says.hpp"
#include "tests/support/scratch_directory.hpp"

namespace shoal::worker {
namespace {

using test::says;

constexpr std::string_view kGraph =
    "textgraph 1\ninput data 1 2\ndata weight 4 1 2\nAddN sum data weight\nAddN twice sum sum\noutput twice\n";
const float kData[] = {-1, 10, 20};  // the weight begins at byte 4

ForeignFile in_memory(std::string name, std::string_view text) { return {std::move(name), std::as_bytes(std::span(text)), {}}; }
ForeignFile data_file() { return {"g.textgraph.data", std::as_bytes(std::span(kData)), {}}; }
std::string text_of(const std::span<const float> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}

std::vector<std::string> output_names(const Graph& graph) {
  std::vector<std::string> names;
  for (const GraphOutput& output : graph.outputs) names.push_back(output.name);
  return names;
}

TEST(Importers, AreChosenByTheNamesOfTheFiles) {
  EXPECT_EQ(Importer::survey({{in_memory("g.textgraph", kGraph), data_file()}}).value().kind->name, "textgraph");
  const Status not_json = Importer::read({{in_memory("a-symbol.json", kGraph), data_file()}}).status();
  EXPECT_EQ(not_json.code(), StatusCode::kDataLoss) << "the name says what it should be: " << not_json.to_string();
}

TEST(Importers, AreChosenByTheContentsOfFilesWithOtherNames) {
  EXPECT_EQ(Importer::survey({{in_memory("memory", kGraph), data_file()}}).value().kind->name, "textgraph");
  const std::string_view symbol =
      R"( {"nodes": [{"op": "null", "name": "x", "inputs": []}], "arg_nodes": [0], "heads": [[0, 0]]})";
  const std::string arrays = std::string("\x12\x01", 2) + std::string(22 + 8, '\0');
  const auto survey = Importer::survey({{in_memory("memory", symbol), in_memory("arrays", arrays)}});
  ASSERT_TRUE(survey.ok()) << survey.status().to_string();
  EXPECT_EQ(survey->kind->name, "mxnet");
  EXPECT_EQ(output_names(survey->import.graph), std::vector<std::string>{"x"});
}

TEST(Importers, RefuseWhatNoFormatKnows) {
  const Status unknown = Importer::read({{in_memory("picture.png", "\x89PNG")}}).status();
  EXPECT_EQ(unknown.code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(says(unknown.message(), {"picture.png", "MXNet", "Text"}));
  EXPECT_EQ(Importer::read({}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(says(Importer::read({{in_memory("a-symbol.json", "{}")}}).status().message(), {"a-symbol.json", "two files"}));
}

TEST(Importers, GiveTheOutputsThatAreWantedInTheirOrder) {
  const ForeignModel wanted{{in_memory("g.textgraph", kGraph), data_file()}, {"sum", "twice"}};
  EXPECT_EQ(output_names(Importer::read(wanted).value().graph), (std::vector<std::string>{"sum", "twice"}));
  const auto inner = Importer::read({wanted.files, {"sum"}}).value();
  EXPECT_EQ(inner.graph.nodes.size(), 1u) << "what no output needs is gone";
  EXPECT_TRUE(says(Importer::read({wanted.files, {"sun"}}).status().message(), {"'sun'", "most alike are 'sum'"}));
}

class FormatOnDisk : public testing::Test {
 protected:
  FormatOnDisk() {
    scratch_.write("g.textgraph", std::string(kGraph));
    scratch_.write("g.textgraph.data", text_of(kData));
  }
  const test::ScratchDirectory scratch_;
};

TEST_F(FormatOnDisk, RunsInTheEngine) {
  Tensor data = Tensor::create(DType::kFloat32, {1, 2}).value();
  data.values<float>()[0] = 1;
  data.values<float>()[1] = 2;
  for (const std::string& path : {scratch_.path(), scratch_.path("g"), scratch_.path("g.textgraph")}) {
    auto engine = Engine::load(path, {.device = "cpu-reference"});
    ASSERT_TRUE(engine.ok()) << engine.status().to_string();
    const Tensors outputs = engine->run({{"data", data}}).value();
    EXPECT_EQ(outputs.at(0).name, "twice");
    EXPECT_EQ(outputs[0].tensor.values<float>()[0], 22);
    EXPECT_EQ(outputs[0].tensor.values<float>()[1], 44);
  }
}

TEST_F(FormatOnDisk, GivesTheOutputsThatModelTomlNames) {
  scratch_.write("model.toml", R"(outputs = ["twice", "sum"])");
  const ModelInfo info = Engine::load(scratch_.path(), {.device = "cpu-reference"}).value().describe().value();
  ASSERT_EQ(info.outputs.size(), 2u);
  EXPECT_EQ(info.outputs[1].name, "sum");
  scratch_.write("model.toml", R"(outputs = ["twise"])");
  const Status refused = Engine::load(scratch_.path()).status();
  EXPECT_EQ(refused.code(), StatusCode::kNotFound);
  EXPECT_TRUE(says(refused.message(), {"model 'g'", "'twise'", "'twice'"}));
}

TEST_F(FormatOnDisk, IsSurveyedLikeAnyOther) {
  scratch_.write("g.textgraph", std::string(kGraph) + "Frobnicate frob sum\noutput frob\n");
  const auto survey = survey_model(find_model(scratch_.path()).value().files).value();
  ASSERT_EQ(survey.unsupported.size(), 1u);
  EXPECT_EQ(survey.unsupported[0].node, "frob");
}

}  // namespace
}  // namespace shoal::worker
