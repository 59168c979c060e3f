#include "worker/c/program_inputs.hpp"

#include <gtest/gtest.h>

#include "tests/support/says.hpp"

namespace shoal::c {
namespace {

using test::says;

// A symbol of two data inputs, two parameters and a label.
const std::vector<std::string> kVariables = {"data", "w", "mask", "b", "label"};
const std::vector<TensorSpec> kInputs = {{"data"}, {"mask"}};
const std::vector<std::string> kLabels = {"label"};

Result<ProgramFlags> flags(const std::vector<const char*>& keys, const std::vector<const char*>& values) {
  return program_flags(keys.data(), values.data(), keys.size());
}

Result<std::vector<std::string>> inputs_by(const std::vector<const char*>& keys, const std::vector<const char*>& values) {
  const auto read = flags(keys, values);
  return read.ok() ? program_inputs(*read, kVariables, kInputs, kLabels) : read.status();
}

using Names = std::vector<std::string>;

TEST(ProgramInputs, AreThoseWithoutAValueIfNobodySays) {
  EXPECT_EQ(inputs_by({}, {}).value(), (Names{"data", "mask"}));
  EXPECT_EQ(inputs_by({"param_indices"}, {"[1, 3, 4]"}).value(), (Names{"data", "mask"})) << "MXNet's callers count labels so";
}

TEST(ProgramInputs, HaveTheOrderOfDataIndices) {
  EXPECT_EQ(inputs_by({"data_indices"}, {"[2, 0]"}).value(), (Names{"mask", "data"}));
  EXPECT_EQ(inputs_by({"data_indices", "param_indices"}, {"(0, 2)", "(1, 3)"}).value(), (Names{"data", "mask"}));
  EXPECT_EQ(inputs_by({"data_indices"}, {"[0, 4, 2]"}).value(), (Names{"data", "label", "mask"}));
}

TEST(ProgramInputs, ThatCannotBeAreRefusedByName) {
  const auto why = [](const std::vector<const char*>& keys, const std::vector<const char*>& values) {
    const auto names = inputs_by(keys, values);
    EXPECT_EQ(names.status().code(), StatusCode::kInvalidArgument);
    return names.status().message();
  };
  EXPECT_TRUE(says(why({"data_indices"}, {"[0]"}), {"data_indices", "input 2 ('mask') is missing"}));
  EXPECT_TRUE(says(why({"data_indices"}, {"[0, 2, 1]"}), {"data_indices", "input 1 ('w') is a parameter"}));
  EXPECT_TRUE(says(why({"data_indices"}, {"[0, 2, 5]"}), {"no input 5", "5 (data, w, mask, b, label)"}));
  EXPECT_TRUE(says(why({"data_indices"}, {"[0, 2, 18446744073709551615]"}), {"data_indices"}));
  EXPECT_TRUE(says(why({"data_indices"}, {"[0, 2, 0]"}), {"input 0 ('data') is in data_indices already"}));
  EXPECT_TRUE(
      says(why({"data_indices", "param_indices"}, {"[0, 2]", "[1, 2]"}), {"param_indices", "is in data_indices already"}));
  EXPECT_TRUE(says(why({"param_indices"}, {"[0]"}), {"param_indices", "no value of input 0 ('data')"}));
}

TEST(ProgramFlags, AreThoseOfMxnet) {
  EXPECT_TRUE(flags({"static_alloc", "static_shape", "is_dynamic", "inline_limit", "forward_bulk_size", "backward_bulk_size"},
                    {"True", "1", "false", "2", "15", "15"})
                  .ok());
  EXPECT_TRUE(flags({"is_dynamic"}, {"True"}).ok());
  const auto why = [](const char* key, const char* value) { return flags({key}, {value}).status().message(); };
  EXPECT_TRUE(says(why("subgraph", "MKLDNN"), {"there is no key 'subgraph'", "data_indices"}));
  EXPECT_TRUE(says(why("static_alloc", "yes"), {"static_alloc is 'yes'"}));
  EXPECT_TRUE(says(why("static_shape", "true"), {"static_alloc is not"}));
  EXPECT_TRUE(says(why("is_dynamic", "2"), {"is_dynamic is '2'"}));
  EXPECT_TRUE(says(why("inline_limit", "(1, 2)"), {"whole number"}));
  EXPECT_TRUE(says(why("data_indices", "[0, -1]"), {"must be positions"}));
  EXPECT_TRUE(says(why("data_indices", "[0"), {"must be positions"}));
}

}  // namespace
}  // namespace shoal::c
