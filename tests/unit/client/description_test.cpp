#include "client/src/description.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/support/child_process.hpp"
#include "tests/support/says.hpp"
#include "tests/support/scratch_directory.hpp"

namespace shoal::client {
namespace {

constexpr char kJson[] = R"({"name": "net", "version": 3, "model_id": 7, "signature": 9,
  "inputs": [{"name": "data", "dtype": "float32", "shape": [-1, 3]}, {"name": "ids", "dtype": "int64", "shape": [2]}],
  "outputs": [{"name": "out", "dtype": "float32", "shape": [-1]}], "ignored_inputs": ["softmax_label"], "labels": ["a", "b"],
  "preprocess": {"resize": 256, "crop": [224, 200], "order": "BGR", "mean": [1, 2, 3], "scale": [1, 1, 1]}})";

TEST(Description, IsReadFromTheDaemonsJson) {
  const Description model = parse_description(kJson).value();
  EXPECT_EQ(model.info.name, "net");
  EXPECT_EQ(model.info.version, 3u);
  EXPECT_EQ(model.model_id, 7u);
  EXPECT_EQ(model.signature, 9u);
  EXPECT_EQ(model.info.inputs[0], (TensorSpec{"data", DType::kFloat32, Shape{-1, 3}}));
  EXPECT_EQ(model.info.labels, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(model.info.preprocess->crop_width, 200);
  EXPECT_EQ(model.info.preprocess->order, "BGR");
}

TEST(Description, HasLayoutsAndALetterboxIfTheDaemonKnowsThem) {
  const ModelInfo older = parse_description(kJson).value().info;
  EXPECT_EQ(older.inputs[0].layout, "");
  EXPECT_FALSE(older.preprocess->letterbox);
  nlohmann::json object = nlohmann::json::parse(kJson);
  object["inputs"][0]["layout"] = "NC";
  object["preprocess"]["letterbox"] = true;
  object["preprocess"]["border"] = 114;
  const ModelInfo info = parse_description(object.dump()).value().info;
  EXPECT_EQ(info.inputs[0], (TensorSpec{"data", DType::kFloat32, Shape{-1, 3}, {}, "NC"}));
  EXPECT_TRUE(info.preprocess->letterbox);
  EXPECT_EQ(info.preprocess->border, 114);
  object["preprocess"]["border"] = 256;
  EXPECT_EQ(parse_description(object.dump()).status().code(), StatusCode::kInternal);
  object["preprocess"]["border"] = 0;
  object["inputs"][0]["layout"] = "NCHW";
  EXPECT_EQ(parse_description(object.dump()).status().code(), StatusCode::kInternal) << "letters for dimensions it does not have";
}

TEST(Description, HasAFingerprintIfTheDaemonTellsOne) {
  EXPECT_EQ(parse_description(kJson).value().fingerprint, "") << "a daemon before 0.3, or another format";
  nlohmann::json object = nlohmann::json::parse(kJson);
  object["fingerprint"] = "mxnet1:00ff";
  EXPECT_EQ(parse_description(object.dump()).value().fingerprint, "mxnet1:00ff");
  object["fingerprint"] = 7;
  EXPECT_EQ(parse_description(object.dump()).status().code(), StatusCode::kInternal);
}

TEST(Description, HasStatesIfTheDaemonKnowsThem) {
  EXPECT_TRUE(parse_description(kJson).value().info.state.empty()) << "a daemon before 0.3";
  nlohmann::json object = nlohmann::json::parse(kJson);
  object["state"] = {{{"out", "out"}, {"in", "ids"}, {"shape", {2}}}, {{"out", "o"}, {"in", "i"}, {"shape", nullptr}}};
  EXPECT_EQ(parse_description(object.dump()).value().info.state,
            (std::vector<StatePair>{{"out", "ids", {2}}, {"o", "i", Shape::any()}}));
  object["state"][0]["shape"] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  EXPECT_EQ(parse_description(object.dump()).status().code(), StatusCode::kInternal);
}

TEST(Description, JsonOfAnotherKindIsAnErrorNotAnException) {
  for (const char* text :
       {"", "[]", "{}", "{\"name\": 3}", R"({"name": "x", "inputs": [{"name": "a", "dtype": "float3", "shape": []}]})"}) {
    EXPECT_EQ(parse_description(text).status().code(), StatusCode::kInternal) << text;
  }
}

TEST(Description, NumbersThatAreNoIntegersOrTooLargeAreErrors) {
  ASSERT_TRUE(parse_description(kJson).ok());
  for (const char* wrong : {"1.8e22", "-1e30", "1.5", "-1", "4294967296", "18446744073709551616"}) {
    nlohmann::json object = nlohmann::json::parse(kJson);
    object["signature"] = nlohmann::json::parse(wrong);
    EXPECT_EQ(parse_description(object.dump()).status().code(), StatusCode::kInternal) << wrong;
  }
  nlohmann::json object = nlohmann::json::parse(kJson);
  object["inputs"][0]["shape"][0] = 1.8e22;
  EXPECT_EQ(parse_description(object.dump()).status().code(), StatusCode::kInternal);
}

TEST(Change, ARelativePathIsMadeAbsolute) {
  const auto text_of = [](std::string_view path) {
    return nlohmann::json::parse(change_json({.what = "load", .model = "net", .path = path}).value()).value("text", "");
  };
  EXPECT_EQ(text_of("models/net,workers=2"), (std::filesystem::current_path() / "models/net,workers=2").string());
  EXPECT_EQ(text_of("/models/net@3"), "/models/net@3");
  EXPECT_EQ(text_of("builtin:identity"), "builtin:identity");
  EXPECT_EQ(text_of("s3://bucket/m"), "s3://bucket/m");
  EXPECT_EQ(text_of(""), "");
  EXPECT_EQ(change_json({.what = "scale", .model = "net", .workers = 3}).value(),
            R"({"model":"net","what":"scale","workers":3})");
  EXPECT_EQ(control_json("describe", "net", 2), R"({"model":"net","version":2,"what":"describe"})");
}

// Otherwise the daemon would look for it in its own directory.
TEST(Change, ARelativePathInADirectoryThatIsGoneIsAnError) {
  const int code = test::exit_code_of([] {
    {
      const test::ScratchDirectory gone;
      std::filesystem::current_path(gone.path());
    }
    const auto change = change_json({.what = "load", .model = "net", .path = "models/net"});
    return change.status().code() == StatusCode::kNotFound && test::says(change.status().message(), {"models/net"}) ? 0 : 1;
  });
  EXPECT_EQ(code, 0);
}

TEST(Change, ItsOutcomeIsReadFromTheDaemonsJson) {
  const auto change =
      parse_change(R"({"model": "net", "outcome": "reloaded", "version": 3, "versions": [2, 3], "workers": 4, "ms": 1500})");
  ASSERT_TRUE(change.ok()) << change.status().to_string();
  EXPECT_EQ(change->outcome, "reloaded");
  EXPECT_EQ(change->version, 3u);
  EXPECT_EQ(change->versions, (std::vector<std::uint64_t>{2, 3}));
  EXPECT_EQ(change->workers, 4);
  EXPECT_EQ(change->took, std::chrono::milliseconds(1500));
  EXPECT_EQ(parse_change(R"({"outcome": "unloaded", "version": null, "versions": [], "workers": 0, "ms": 1})").value().version,
            0u);
  for (const char* text : {"", "[]", "{}", R"({"outcome": "x", "version": 1, "versions": [-1], "workers": 0, "ms": 1})"})
    EXPECT_EQ(parse_change(text).status().code(), StatusCode::kInternal) << text;
}

TEST(MatchInputs, FindsTheModelsOrderAndLeavesLabelsOut) {
  const Description model = parse_description(kJson).value();
  const std::vector<TensorSpec> given = {
      {"ids", DType::kInt64, Shape{2}}, {"softmax_label", DType::kFloat32, Shape{1}}, {"data", DType::kFloat32, Shape{5, 3}}};
  std::vector<std::size_t> order;
  EXPECT_TRUE(match_inputs(model, given, order).ok());
  EXPECT_EQ(order, (std::vector<std::size_t>{2, 0}));
}

TEST(MatchInputs, EveryMistakeIsNamed) {
  const Description model = parse_description(kJson).value();
  const TensorSpec data{"data", DType::kFloat32, Shape{5, 3}}, ids{"ids", DType::kInt64, Shape{2}};
  const auto message = [&](std::vector<TensorSpec> given) {
    std::vector<std::size_t> order;
    const Status matched = match_inputs(model, given, order);
    EXPECT_EQ(matched.code(), StatusCode::kInvalidArgument);
    return matched.message();
  };
  EXPECT_EQ(message({data, {"idz", DType::kInt64, Shape{2}}}), "model 'net' has no input 'idz' (it has: data, ids)");
  EXPECT_EQ(message({data, data}), "model 'net': input 'data' is given twice");
  EXPECT_EQ(message({ids}), "model 'net': input 'data' is missing (1 given, it has: data, ids)");
  EXPECT_EQ(message({{"data", DType::kFloat64, Shape{5, 3}}, ids}), "model 'net': input 'data' is float64 (wants float32)");
  EXPECT_EQ(message({{"data", DType::kFloat32, Shape{5, 4}}, ids}), "model 'net': input 'data' has shape 5x4 (wants ?x3)");
  EXPECT_EQ(message({{"data", DType::kFloat32, Shape{3}}, ids}), "model 'net': input 'data' has shape 3 (wants ?x3)");
}

}  // namespace
}  // namespace shoal::client
