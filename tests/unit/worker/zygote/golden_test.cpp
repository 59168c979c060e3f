#include "worker/zygote/golden.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/support/checkpoint.hpp"
#include "tests/support/scratch_directory.hpp"
#include "tests/unit/worker/import/mxnet/array_files.hpp"

namespace shoal::worker {
namespace {

using test::archive;
using test::floats;
using test::npy;

class GoldenTest : public ::testing::Test {
 protected:
  GoldenTest() { source_.config.inputs = {{"data", DType::kFloat32, Shape{-1, 3}, {{2, 8}, {}}}}; }

  Result<GoldenCase> read() { return read_golden(source_, load_model(source_).value()); }
  Result<GoldenCase> read(const std::vector<test::Member>& arrays) {
    source_.config.golden_file = directory_.path("golden.npz");
    std::ofstream(source_.config.golden_file, std::ios::binary) << archive(arrays).bytes;
    return read();
  }

  const test::ScratchDirectory directory_;
  ModelSource source_{.name = "echo", .path = "builtin:identity"};
  const std::string rows_ = npy("<f4", "False", "(2, 3)", floats(6));
};

TEST_F(GoldenTest, HoldsInputsAndWhatTheyMustGive) {
  source_.config.golden_tolerance = 0.5;
  const auto golden = read({{"data.npy", rows_}, {"data_output.npy", rows_}});
  ASSERT_TRUE(golden.ok()) << golden.status().to_string();
  EXPECT_EQ(golden->inputs.at(0).shape(), (Shape{2, 3}));
  EXPECT_EQ(golden->inputs.at(0).values<float>()[5], 5);
  EXPECT_EQ(golden->outputs.at(0).name, "data_output");
  EXPECT_EQ(golden->outputs.at(0).tensor.values<float>()[4], 4);
  EXPECT_EQ(golden->tolerance, 0.5);
}

TEST_F(GoldenTest, WithoutAFileItIsZerosOfTheSmallestSizes) {
  const auto golden = read();
  ASSERT_TRUE(golden.ok()) << golden.status().to_string();
  EXPECT_EQ(golden->inputs.at(0).shape(), (Shape{2, 3}));
  EXPECT_EQ(golden->inputs.at(0).values<float>()[5], 0);
  EXPECT_TRUE(golden->outputs.empty());
}

TEST_F(GoldenTest, AFileThatDoesNotFitTheModelIsAnErrorThatNamesBoth) {
  const auto refusal = [&](const std::vector<test::Member>& arrays) {
    const auto golden = read(arrays);
    EXPECT_FALSE(golden.ok());
    const std::string text = golden.status().to_string();
    EXPECT_NE(text.find("model 'echo': golden " + source_.config.golden_file), std::string::npos) << text;
    return text;
  };
  EXPECT_NE(refusal({{"data_output.npy", rows_}}).find("no array for input 'data'"), std::string::npos);
  EXPECT_NE(refusal({{"data.npy", rows_}}).find("no array for any output"), std::string::npos);
  EXPECT_NE(refusal({{"data.npy", rows_}, {"prob.npy", rows_}}).find("'prob' is neither an input nor an output"),
            std::string::npos);
  EXPECT_NE(refusal({{"data.npy", npy("<f4", "False", "(2, 2)", floats(4))}, {"data_output.npy", rows_}})
                .find("input 'data' has shape 2x2"),
            std::string::npos);
  EXPECT_NE(refusal({{"data.npy", rows_}, {"data_output.npy", npy("<i4", "False", "(2, 3)", floats(6))}})
                .find("'data_output' is int32"),
            std::string::npos);
  source_.config.golden_file = directory_.path("gone.npz");
  EXPECT_EQ(read().status().code(), StatusCode::kNotFound);
  std::ofstream(source_.config.golden_file) << "no archive";
  EXPECT_EQ(read().status().code(), StatusCode::kDataLoss);
}

// The sum of the data and the state is the next state.
TEST_F(GoldenTest, AStateThatItLeavesOutIsZeros) {
  test::write_graph(directory_.path("sum"), "sum", R"json({"nodes": [
      {"op": "null", "name": "data", "inputs": []}, {"op": "null", "name": "h_in", "inputs": []},
      {"op": "elemwise_add", "name": "h", "inputs": [[0, 0, 0], [1, 0, 0]]}], "arg_nodes": [0, 1], "heads": [[2, 0, 0]]})json",
                    "[]");
  source_.path = directory_.path("sum/sum");
  source_.files = {source_.path + "-symbol.json", source_.path + "-0000.params"};
  source_.config.inputs = {{"data", DType::kFloat32, Shape{-1, 3}}};
  source_.config.state = {{"h_output", "h_in", Shape{-1, 3}}};
  const auto golden = read({{"data.npy", rows_}, {"h_output.npy", rows_}});
  ASSERT_TRUE(golden.ok()) << golden.status().to_string();
  ASSERT_EQ(golden->inputs.size(), 2u);
  EXPECT_EQ(golden->inputs[1].shape(), (Shape{2, 3}));
  EXPECT_EQ(golden->inputs[1].values<float>()[5], 0);
}

}  // namespace
}  // namespace shoal::worker
