// Every vector of all tiers on both devices: MXNet's answers for each setting of each operator, and for small graphs.
#include <gtest/gtest.h>

#include <filesystem>
#include <ostream>

#include "tests/golden/devices.hpp"
#include "tests/golden/vector_case.hpp"
#include "tests/support/vectors.hpp"

namespace shoal::testing {
namespace {

struct VectorRun {
  std::string device;
  std::filesystem::path folder;
  VectorCase vector;
};
void PrintTo(const VectorRun& parameter, std::ostream* out) { *out << parameter.vector.name << " on " << parameter.device; }

std::vector<VectorRun> vector_runs() {
  std::vector<VectorRun> all;
  for (const std::filesystem::path& folder : vector_folders()) {
    for (const VectorCase& vector : read_cases(folder / "cases.json")) {
      for (const char* device : kDevices) all.push_back({device, folder, vector});
    }
  }
  return all;
}

class Vectors : public ::testing::TestWithParam<VectorRun> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Vectors);

TEST_P(Vectors, GiveMxnetsOutputs) {
  const auto& [device, folder, vector] = GetParam();
  const std::string prefix = (folder / vector.name).string();
  const Tensors inputs = read_arrays(prefix + "-io.params", "in:").value();
  auto model = load_checkpoint(prefix, 0, device, specs_of(inputs));
  ASSERT_TRUE(model.ok()) << model.status().to_string();
  const auto outputs = run(**model, inputs);
  ASSERT_TRUE(outputs.ok()) << outputs.status().to_string();
  expect_answers(prefix, *outputs, vector.tolerance);
}

INSTANTIATE_TEST_SUITE_P(, Vectors, ::testing::ValuesIn(vector_runs()), [](const auto& info) {
  return test_name(info.param.folder.filename().string() + "_" + info.param.vector.name + "_on_" + info.param.device);
});

TEST(VectorsData, IsThere) {
  const auto folders = vector_folders();
  for (const auto& ours : {folders[folders.size() - 2], folders.back(), sparse_folder()})
    EXPECT_FALSE(read_cases(ours / "cases.json").empty()) << ours << "; set SHOAL_SOURCE_DIR";
  const std::filesystem::path& first = folders.front();
  if (read_cases(first / "cases.json").empty()) GTEST_SKIP() << "no vectors in " << first << "; set SHOAL_TEST_DATA";
}

}  // namespace
}  // namespace shoal::testing
