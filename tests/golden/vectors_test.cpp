// Every vector of all tiers on both devices: MXNet's answers for each setting of each operator, and for small graphs.
#include <gtest/gtest.h>

#include <cstdlib>
#include <ostream>

#include "tests/golden/devices.hpp"
#include "tests/support/vectors.hpp"

namespace shoal::testing {
namespace {

struct VectorRun {
  std::string device, tier;
  VectorCase vector;
};
void PrintTo(const VectorRun& parameter, std::ostream* out) { *out << parameter.vector.name << " on " << parameter.device; }

/// These cases are beside this file, with the script that made them: quantized networks, and NumPy's operators.
constexpr const char *kQuantized = "quantized", *kNumpy = "numpy";

std::filesystem::path tier_folder(const std::string& tier) {
  const char* const source = std::getenv("SHOAL_SOURCE_DIR");
  if (tier == kQuantized || tier == kNumpy)
    return std::filesystem::path(source == nullptr ? "." : source) / "tests" / "golden" / tier;
  return test_data() / "vectors" / tier;
}

std::vector<VectorRun> vector_runs() {
  std::vector<VectorRun> all;
  for (const char* tier : {"tier1", "tier2", "tier3", "tier4", "tier5", "tier6", kQuantized, kNumpy}) {
    for (const VectorCase& vector : read_cases(tier_folder(tier) / "cases.json")) {
      for (const char* device : kDevices) all.push_back({device, tier, vector});
    }
  }
  return all;
}

class Vectors : public ::testing::TestWithParam<VectorRun> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Vectors);

TEST_P(Vectors, GiveMxnetsOutputs) {
  const auto& [device, tier, vector] = GetParam();
  const std::string prefix = (tier_folder(tier) / vector.name).string();
  const Tensors inputs = read_arrays(prefix + "-io.params", "in:").value();
  auto model = load_checkpoint(prefix, 0, device, specs_of(inputs));
  ASSERT_TRUE(model.ok()) << model.status().to_string();
  const auto outputs = run(**model, inputs);
  ASSERT_TRUE(outputs.ok()) << outputs.status().to_string();
  const Tensors expected = read_arrays(prefix + "-io.params", "out:").value();
  ASSERT_EQ(outputs->size(), expected.size());
  for (const NamedTensor& want : expected) {
    const NamedTensor& got = outputs->at(std::stoul(want.name));
    EXPECT_TRUE(close_to(got.tensor.view(), want.tensor.view(), vector.tolerance))
        << "output " << want.name << " ('" << got.name << "')";
  }
}

INSTANTIATE_TEST_SUITE_P(, Vectors, ::testing::ValuesIn(vector_runs()), [](const auto& info) {
  return test_name(info.param.tier + "_" + info.param.vector.name + "_on_" + info.param.device);
});

TEST(VectorsData, IsThere) {
  if (read_cases(tier_folder("tier1") / "cases.json").empty())
    GTEST_SKIP() << "no vectors in " << tier_folder("tier1") << "; set SHOAL_TEST_DATA";
}

}  // namespace
}  // namespace shoal::testing
