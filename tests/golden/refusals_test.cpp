// Graphs and parameters that must be refused, with a message that names what is wrong.
#include <gtest/gtest.h>

#include "tests/golden/devices.hpp"
#include "tests/golden/refusal_case.hpp"
#include "tests/support/vectors.hpp"
#include "worker/import/mxnet/mxnet_importer.hpp"

namespace shoal::testing {
namespace {

class Refusals : public ::testing::TestWithParam<Refusal> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Refusals);

TEST_P(Refusals, NameWhatIsWrong) {
  const Refusal& refusal = GetParam();
  for (const char* device : kDevices) {
    const auto model = load_checkpoint((refusals_folder() / refusal.name).string(), 0, device, refusal.inputs);
    ASSERT_FALSE(model.ok()) << "was loaded on " << device;
    expect_refused(refusal, model.status());
  }
}

TEST(RefusalsOfThePast, RunNow) {
  if (read_refusals("cases.json").empty()) GTEST_SKIP() << "no refusals in " << refusals_folder() << "; set SHOAL_TEST_DATA";
  for (const char* name : kRunNow) {
    for (const char* device : kDevices) {
      const std::vector<TensorSpec> inputs{{"data", DType::kFloat32, {1, 3, 8, 8}}};
      const auto model = load_checkpoint((refusals_folder() / name).string(), 0, device, inputs);
      EXPECT_TRUE(model.ok()) << name << " on " << device << ": " << model.status().to_string();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, Refusals, ::testing::ValuesIn(read_refusals("cases.json")),
                         [](const auto& info) { return test_name(info.param.name); });

TEST(RefusalsOfText, NameTheFile) {
  const auto all = read_refusals("malformed.json");
  if (all.empty()) GTEST_SKIP() << "no refusals in " << refusals_folder() << "; set SHOAL_TEST_DATA";
  for (const Refusal& refusal : all) {
    const auto symbol = refusals_folder() / (refusal.name + "-symbol.json");
    const auto import = worker::import_mxnet_symbol(symbol);
    ASSERT_FALSE(import.ok()) << refusal.name << ": " << refusal.why;
    EXPECT_EQ(import.status().code(), StatusCode::kDataLoss) << import.status().to_string();
    EXPECT_NE(import.status().message().find(symbol.string()), std::string::npos) << import.status().to_string();
  }
}

}  // namespace
}  // namespace shoal::testing
