// MXNet's answers to graphs with sparse inputs and parameters (tests/fixtures/sparse). Requests bring dense inputs, or their
// parts.
#include <gtest/gtest.h>

#include <filesystem>
#include <ostream>

#include "shoal/engine.hpp"
#include "tests/golden/devices.hpp"
#include "tests/golden/vector_case.hpp"
#include "tests/support/scratch_directory.hpp"
#include "tests/support/vectors.hpp"

namespace shoal::testing {
namespace {

namespace fs = std::filesystem;

struct SparseRun {
  std::string device;
  VectorCase vector;
};
void PrintTo(const SparseRun& parameter, std::ostream* out) { *out << parameter.vector.name << " on " << parameter.device; }

std::vector<SparseRun> sparse_runs() {
  std::vector<SparseRun> all;
  for (const VectorCase& vector : read_cases(sparse_folder() / "cases.json")) {
    for (const char* device : kDevices) all.push_back({device, vector});
  }
  return all;
}

class SparseCases : public ::testing::TestWithParam<SparseRun> {
 protected:
  void expect_mxnets(const Tensors& outputs) { expect_answers(prefix(), outputs, GetParam().vector.tolerance); }
  static std::string prefix() { return (sparse_folder() / GetParam().vector.name).string(); }

  /// The model with its sparse inputs as parts.
  Result<Engine> load_parts(const PartsRequest& request) {
    const std::string& name = GetParam().vector.name;
    for (const char* end : {"-symbol.json", "-0000.params"})
      fs::copy_file(prefix() + end, scratch_.path(name + end), fs::copy_options::overwrite_existing);
    scratch_.write("model.toml", inputs_toml(request.inputs, request.sparse));
    return Engine::load(scratch_.path(name), {.device = GetParam().device, .tuning_ms = 0});
  }

  test::ScratchDirectory scratch_;
};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(SparseCases);

TEST_P(SparseCases, GiveMxnetsOutputsForDenseInputs) {
  if (GetParam().vector.name == kOnlyAsParts) GTEST_SKIP() << "a dense product has 0 * NaN";
  const Tensors inputs = read_arrays(prefix() + "-io.params", "in:").value();
  auto model = load_checkpoint(prefix(), 0, GetParam().device, specs_of(inputs));
  ASSERT_TRUE(model.ok()) << model.status().to_string();
  const auto outputs = run(**model, inputs);
  ASSERT_TRUE(outputs.ok()) << outputs.status().to_string();
  expect_mxnets(*outputs);
}

TEST_P(SparseCases, GiveMxnetsOutputsForTheirParts) {
  for (const std::int64_t extra : {0, 3}) {  // elements behind the last row count for nothing
    const PartsRequest request = read_parts(prefix(), extra);
    auto engine = load_parts(request);
    ASSERT_TRUE(engine.ok()) << engine.status().to_string();
    const auto outputs = engine->run(request.tensors);
    ASSERT_TRUE(outputs.ok()) << outputs.status().to_string();
    expect_mxnets(*outputs);
  }
}

INSTANTIATE_TEST_SUITE_P(, SparseCases, ::testing::ValuesIn(sparse_runs()),
                         [](const auto& info) { return test_name(info.param.vector.name + "_on_" + info.param.device); });

}  // namespace
}  // namespace shoal::testing
