// Graphs and parameters that must be refused, with a message that names what is wrong.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <ostream>

#include "tests/golden/devices.hpp"
#include "tests/support/vectors.hpp"
#include "worker/import/mxnet/mxnet_importer.hpp"

namespace shoal::testing {
namespace {

struct Refusal {
  std::string name, why;
  std::vector<std::string> must_name;
  std::vector<TensorSpec> inputs;
};
void PrintTo(const Refusal& refusal, std::ostream* out) { *out << refusal.name << ": " << refusal.why; }

std::filesystem::path folder() { return test_data() / "vectors" / "refusals"; }

std::vector<Refusal> refusals(const char* index) {
  std::vector<Refusal> all;
  std::ifstream file(folder() / index);
  if (!file) return all;
  for (const auto& entry : nlohmann::json::parse(file)) {
    Refusal refusal{entry.at("name"), entry.at("why"), entry.value("must_name", std::vector<std::string>()), {}};
    const auto shapes = entry.value("shapes", nlohmann::json::object());
    for (const auto& [name, dims] : shapes.items()) {
      refusal.inputs.push_back({name, DType::kFloat32, Shape(dims.get<std::vector<std::int64_t>>())});
    }
    all.push_back(std::move(refusal));
  }
  return all;
}

class Refusals : public ::testing::TestWithParam<Refusal> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Refusals);

TEST_P(Refusals, NameWhatIsWrong) {
  const Refusal& refusal = GetParam();
  for (const char* device : kDevices) {
    const auto model = load_checkpoint((folder() / refusal.name).string(), 0, device, refusal.inputs);
    ASSERT_FALSE(model.ok()) << "was loaded on " << device;
    const std::string& message = model.status().message();
    // Operators of later tiers are refused by name; their attributes are not read.
    const bool unknown_operator = model.status().code() == StatusCode::kUnimplemented &&
                                  message.find("operators that Shoal does not have") != std::string::npos;
    for (std::size_t i = 0; i < refusal.must_name.size(); ++i) {
      if (unknown_operator && i >= 2) break;  // the first two name operator and node
      EXPECT_NE(message.find(refusal.must_name[i]), std::string::npos)
          << "does not name " << refusal.must_name[i] << ": " << message;
    }
    EXPECT_NE(model.status().code(), StatusCode::kInternal) << message;
  }
}

INSTANTIATE_TEST_SUITE_P(, Refusals, ::testing::ValuesIn(refusals("cases.json")),
                         [](const auto& info) { return test_name(info.param.name); });

TEST(RefusalsOfText, NameTheFile) {
  const auto all = refusals("malformed.json");
  if (all.empty()) GTEST_SKIP() << "no refusals in " << folder() << "; set SHOAL_TEST_DATA";
  for (const Refusal& refusal : all) {
    const auto symbol = folder() / (refusal.name + "-symbol.json");
    const auto import = worker::import_mxnet_symbol(symbol);
    ASSERT_FALSE(import.ok()) << refusal.name << ": " << refusal.why;
    EXPECT_EQ(import.status().code(), StatusCode::kDataLoss) << import.status().to_string();
    EXPECT_NE(import.status().message().find(symbol.string()), std::string::npos) << import.status().to_string();
  }
}

}  // namespace
}  // namespace shoal::testing
