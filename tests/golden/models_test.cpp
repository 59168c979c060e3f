// Real checkpoints with known outputs, on both devices.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "tests/golden/devices.hpp"
#include "tests/golden/real_models.hpp"

namespace shoal::testing {
namespace {

class Models : public ::testing::TestWithParam<std::tuple<const char*, RealModel>> {};

TEST_P(Models, GiveTheExpectedOutputs) {
  const auto& [device, real] = GetParam();
  const std::vector<RealCase> cases = cases_of(real);
  if (cases.empty()) GTEST_SKIP() << "no model " << prefix_of(real) << "; set SHOAL_TEST_DATA";
  for (const auto& [name, inputs, wanted] : cases) {
    SCOPED_TRACE(name);
    auto model = load_checkpoint(prefix_of(real), real.epoch, device, specs_of(inputs));
    ASSERT_TRUE(model.ok()) << model.status().to_string();
    const auto outputs = run(**model, inputs);
    ASSERT_TRUE(outputs.ok()) << outputs.status().to_string();
    ASSERT_EQ(outputs->size(), wanted.size());
    for (std::size_t i = 0; i < outputs->size(); ++i) {
      const Tensor& want = wanted[i].tensor;
      const auto got_values = as_doubles(outputs->at(i).tensor.view()), want_values = as_doubles(want.view());
      EXPECT_EQ(outputs->at(i).tensor.shape(), want.shape());
      EXPECT_TRUE(values_close(got_values, want_values, real.tolerance * largest_magnitude(want_values))) << "output " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, Models, ::testing::Combine(::testing::ValuesIn(kDevices), ::testing::ValuesIn(kRealModels)),
                         [](const auto& info) {
                           const RealModel& real = std::get<1>(info.param);
                           return test_name(std::string(real.folder) + "_" + real.prefix + "_epoch" + std::to_string(real.epoch) +
                                            "_on_" + std::get<0>(info.param));
                         });

// A picture whose two best classes are closer than the error of bf16 may change its class.
TEST(ModelsInBf16, ClassifyAsInFloat32) {
  constexpr double kBf16Error = 2e-2;
  int cases = 0, classified = 0;
  for (const RealModel& real : kRealModels) {
    if (!real.classifies) continue;
    for (const auto& [name, inputs, wanted] : cases_of(real)) {
      SCOPED_TRACE(format("{} {}", real.folder, name));
      ++cases;
      auto model = load_checkpoint(prefix_of(real), real.epoch, "cpu", specs_of(inputs), {.precision = worker::Precision::kBf16});
      ASSERT_TRUE(model.ok()) << model.status().to_string();
      const auto outputs = run(**model, inputs);
      ASSERT_TRUE(outputs.ok()) << outputs.status().to_string();
      const auto got = as_doubles(outputs->at(0).tensor.view()), want = as_doubles(wanted[0].tensor.view());
      const auto classes = static_cast<std::size_t>(wanted[0].tensor.shape()[1]);
      ASSERT_EQ(got.size(), want.size());
      for (std::size_t row = 0; row < want.size(); row += classes) {
        const auto best = [&](const std::vector<double>& values) {
          const auto first = values.begin() + static_cast<std::ptrdiff_t>(row);
          return std::max_element(first, first + static_cast<std::ptrdiff_t>(classes)) - first;
        };
        std::vector<double> sorted(want.begin() + static_cast<std::ptrdiff_t>(row),
                                   want.begin() + static_cast<std::ptrdiff_t>(row + classes));
        std::ranges::sort(sorted, std::ranges::greater());
        if (sorted[0] - sorted[1] <= 2 * kBf16Error * std::max(1.0, largest_magnitude(want))) continue;
        EXPECT_EQ(best(got), best(want)) << "row " << row / classes;
        ++classified;
      }
    }
  }
  if (cases == 0) GTEST_SKIP() << "no models; set SHOAL_TEST_DATA";
  EXPECT_GT(classified, 0) << "no picture of a class that is clear";
}

}  // namespace
}  // namespace shoal::testing
