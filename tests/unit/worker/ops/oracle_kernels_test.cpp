// The oracle kernels against what MXNet answers: they are the oracle of every other device.
#include <gtest/gtest.h>

#include "tests/support/interpreter.hpp"
#include "tests/support/vectors.hpp"
#include "worker/import/importer.hpp"

namespace shoal {
namespace {

using testing::close_to;
using testing::read_arrays;

void expect_case(const std::filesystem::path& prefix, double tolerance) {
  SCOPED_TRACE(prefix.filename().string());
  const auto import = worker::read_model({prefix.string() + "-symbol.json", prefix.string() + "-0000.params"});
  ASSERT_TRUE(import.ok()) << import.status().to_string();
  const Tensors inputs = read_arrays(prefix.string() + "-io.params", "in:").value(),
                expected = read_arrays(prefix.string() + "-io.params", "out:").value();
  const auto outputs = testing::interpret(import->graph, inputs);
  ASSERT_TRUE(outputs.ok()) << outputs.status().to_string();
  ASSERT_EQ(outputs->size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const std::size_t k = std::stoul(expected[i].name);
    EXPECT_TRUE(close_to((*outputs)[k].tensor.view(), expected[i].tensor.view(), tolerance)) << "output " << k;
  }
}

TEST(OracleKernels, AnswerWhatMxnetAnswersOnEveryVector) {
  for (const char* tier : {"tier1", "tier2", "tier3"}) {
    const auto folder = testing::test_data() / "vectors" / tier;
    const auto cases = testing::read_cases(folder / "cases.json");
    if (cases.empty()) GTEST_SKIP() << "no vectors in " << folder;
    for (const auto& vector : cases) expect_case(folder / vector.name, vector.tolerance);
  }
}

}  // namespace
}  // namespace shoal
