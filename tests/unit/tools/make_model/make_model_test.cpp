#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <fstream>
#include <map>

#include "tests/support/scratch_directory.hpp"
#include "tests/support/vectors.hpp"
#include "tools/make_model/checkpoint_writer.hpp"
#include "tools/make_model/parameter_rule.hpp"
#include "tools/make_model/rule_fill.hpp"
#include "worker/import/mxnet/mxnet_params.hpp"

namespace shoal::make_model {
namespace {

// The numbers of the rule's own example.
TEST(RuleFill, HashesAndScramblesAsWritten) {
  const std::uint64_t seed = fnv1a("resnetv10_conv0_weight");
  EXPECT_EQ(seed, 0x9967eb126ddbc90bu);
  EXPECT_EQ(bits24(seed, 0), 12281254u);
  EXPECT_EQ(bits24(seed, 3), 6810051u);
}

TEST(RuleFill, FillsBitForBit) {
  std::array<float, 4> values{};
  fill("resnetv10_conv0_weight", 0, 0.20203051f, 0, values);
  EXPECT_EQ(values, (std::array{0.093750149f, 0.0720231384f, -0.136759654f, -0.0380178317f}));
  fill("resnetv10_batchnorm0_gamma", 1, 0.25f, 0, values);
  EXPECT_EQ(values, (std::array{0.778601646f, 0.823789597f, 1.06038058f, 0.961752653f}));
  fill("resnetv10_batchnorm0_gamma", 1, 0.25f, 2, std::span(values).first(1));
  EXPECT_EQ(values[0], 1.06038058f);
}

TEST(RuleFill, MakesPicturesOfNoiseOnCoarseSquares) {
  std::array<float, 64> values{};
  fill_picture("data", 0, 1, 32, {1, 1, 1, 64}, values);
  EXPECT_EQ(values[0], -0.42659843f);
  EXPECT_EQ(values[3], -1.3902142f);
}

TEST(RuleFill, MakesIds) {
  std::array<float, 4> values{};
  fill_ids("data", 10000, values);
  EXPECT_EQ(values, (std::array{5767.f, 1117.f, 4870.f, 949.f}));
}

class MakeModel : public ::testing::Test {
 protected:
  std::filesystem::path write(const std::string& name, const std::string& text) {
    std::ofstream(directory_ / name) << text;
    return directory_ / name;
  }
  const test::ScratchDirectory scratch_;
  const std::filesystem::path directory_ = scratch_.path();
};

// x -> conv -> bn -> (+ x): the branch's last BatchNorm is damped.
constexpr const char* kResidual = R"json({"nodes": [
  {"op": "null", "name": "x", "inputs": []}, {"op": "null", "name": "c_weight", "inputs": []},
  {"op": "Convolution", "name": "c", "attrs": {"kernel": "(3, 3)", "pad": "(1, 1)", "num_filter": "2", "no_bias": "True"}, "inputs": [[0, 0, 0], [1, 0, 0]]},
  {"op": "null", "name": "n_gamma", "inputs": []}, {"op": "null", "name": "n_beta", "inputs": []},
  {"op": "null", "name": "n_moving_mean", "inputs": []}, {"op": "null", "name": "n_moving_var", "inputs": []},
  {"op": "BatchNorm", "name": "n", "inputs": [[2, 0, 0], [3, 0, 0], [4, 0, 0], [5, 0, 1], [6, 0, 1]]},
  {"op": "elemwise_add", "name": "sum", "inputs": [[7, 0, 0], [0, 0, 0]]}], "arg_nodes": [], "heads": [[8, 0, 0]]})json";

TEST_F(MakeModel, DerivesShapesRolesAndDampingFromTheGraph) {
  const std::vector<TensorSpec> inputs{{"x", DType::kFloat32, {1, 2, 5, 5}}};
  const auto rules = derive_parameter_rules(write("m-symbol.json", kResidual), inputs);
  ASSERT_TRUE(rules.ok()) << rules.status().to_string();
  std::vector<std::string> keys;
  for (const ParameterRule& rule : *rules) keys.push_back(rule.key);
  EXPECT_EQ(keys,
            (std::vector<std::string>{"arg:c_weight", "arg:n_gamma", "arg:n_beta", "aux:n_moving_mean", "aux:n_moving_var"}));
  EXPECT_EQ((*rules)[0].shape, (Shape{2, 2, 3, 3}));
  EXPECT_FLOAT_EQ((*rules)[0].scale, 0.57735026f);  // sqrt(6 / 18)
  EXPECT_EQ((*rules)[1].offset, 0.125f);            // 1 / 8
  EXPECT_EQ((*rules)[4].offset, 1.f);
}

TEST_F(MakeModel, SaysWhichParameterHasNoRole) {
  const auto symbol = write(
      "m-symbol.json", R"json({"nodes": [{"op": "null", "name": "x", "inputs": []}, {"op": "null", "name": "odd", "inputs": []},
    {"op": "elemwise_add", "name": "sum", "inputs": [[0, 0, 0], [1, 0, 0]]}], "arg_nodes": [], "heads": [[2, 0, 0]]})json");
  const std::vector<TensorSpec> inputs{{"x", DType::kFloat32, {1, 2}}};
  const auto rules = derive_parameter_rules(symbol, inputs);
  ASSERT_FALSE(rules.ok());
  EXPECT_NE(rules.status().message().find("'odd'"), std::string::npos) << rules.status().to_string();
}

TEST_F(MakeModel, WritesWhatTheImporterReads) {
  const std::vector<ParameterRule> rules{{"arg:a_weight", 0, 0.5f, {3, 5}}, {"aux:b_moving_var", 1, 0.25f, {7}}};
  ASSERT_TRUE(write_params(directory_ / "x.params", rules).ok());
  const auto arrays = worker::read_mxnet_params(directory_ / "x.params");
  ASSERT_TRUE(arrays.ok()) << arrays.status().to_string();
  ASSERT_EQ(arrays->size(), 2u);
  EXPECT_EQ((*arrays)[1].name, "aux:b_moving_var");
  EXPECT_EQ((*arrays)[0].array.shape, (Shape{3, 5}));
  EXPECT_EQ((*arrays)[0].array.bytes.size(), 60u);
}

TEST_F(MakeModel, CopiesConstantsBehindTheComputedArrays) {
  Tensor anchors = Tensor::create(DType::kFloat32, {2}).value();
  anchors.values<float>()[0] = 10;
  anchors.values<float>()[1] = 13;
  std::vector<NamedTensor> given;
  given.push_back({"arg:anchors", std::move(anchors)});
  ASSERT_TRUE(write_params(directory_ / "c.params", {}, given).ok());
  const auto constants = read_constants(directory_ / "c.params");
  ASSERT_TRUE(constants.ok()) << constants.status().to_string();
  const std::vector<ParameterRule> rules{{"arg:a_weight", 0, 0.5f, {3}}};
  ASSERT_TRUE(write_params(directory_ / "x.params", rules, *constants).ok());
  const auto arrays = worker::read_mxnet_params(directory_ / "x.params").value();
  ASSERT_EQ(arrays.size(), 2u);
  EXPECT_EQ(arrays[1].name, "arg:anchors");
  float numbers[2];
  ASSERT_EQ(arrays[1].array.bytes.size(), sizeof(numbers));
  std::memcpy(numbers, arrays[1].array.bytes.data(), sizeof(numbers));
  EXPECT_EQ(numbers[1], 13.f);
  EXPECT_EQ(read_constants(directory_ / "missing.params").status().code(), StatusCode::kNotFound);
}

TEST_F(MakeModel, RefusesARuleFileByLine) {
  const auto rules = read_parameter_rules(write("p.txt", "arg:a_weight 0 0.5 3 5\narg:b_weight 0 x 3\n"));
  ASSERT_FALSE(rules.ok());
  EXPECT_NE(rules.status().message().find("p.txt:2"), std::string::npos) << rules.status().to_string();
}

TEST(MakeModelData, GivesTheListedRulesOfEveryNetwork) {
  const auto folder = shoal::testing::test_data() / "vectors" / "networks";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no networks in " << folder << "; set SHOAL_TEST_DATA";
  const std::map<std::string, Shape> inputs{{"resnet50-v2", {1, 3, 224, 224}},
                                            {"inception-bn", {1, 3, 224, 224}},
                                            {"mobilefacenet", {1, 3, 112, 112}},
                                            {"lenet", {1, 1, 28, 28}}};
  for (const auto& [name, shape] : inputs) {
    const std::string stem = (folder / name / name).string();
    const std::vector<TensorSpec> specs{{"data", DType::kFloat32, shape}};
    const auto derived = derive_parameter_rules(stem + "-symbol.json", specs);
    ASSERT_TRUE(derived.ok()) << derived.status().to_string();
    const auto listed = read_parameter_rules(stem + "-parameters.txt").value();
    ASSERT_EQ(derived->size(), listed.size()) << name;
    for (std::size_t i = 0; i < listed.size(); ++i) {
      EXPECT_EQ((*derived)[i].key, listed[i].key) << name;
      EXPECT_EQ((*derived)[i].offset, listed[i].offset) << listed[i].key;
      EXPECT_EQ((*derived)[i].scale, listed[i].scale) << listed[i].key;
      EXPECT_EQ((*derived)[i].shape, listed[i].shape) << listed[i].key;
    }
  }
}

}  // namespace
}  // namespace shoal::make_model
