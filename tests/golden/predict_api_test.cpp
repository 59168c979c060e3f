// Real checkpoints with known outputs, by MXNet's C predict API.
#include <gtest/gtest.h>

#include "tests/golden/real_models.hpp"
#include "tests/support/predict_api.hpp"

namespace shoal::testing {
namespace {

class RealPredictApi : public ::testing::TestWithParam<RealModel> {};

TEST_P(RealPredictApi, GivesTheExpectedOutputs) {
  const RealModel& real = GetParam();
  const std::vector<RealCase> cases = cases_of(real);
  if (cases.empty()) GTEST_SKIP() << "no model " << prefix_of(real) << "; set SHOAL_TEST_DATA";
  const test::Checkpoint files = test::read_checkpoint(prefix_of(real), real.epoch);
  test::PredictorPtr predictor;  // of the case before: programs reshape one for pictures of other sizes
  for (const auto& [name, inputs, wanted] : cases) {
    SCOPED_TRACE(name);
    test::InputShapes shapes;
    for (const NamedTensor& input : inputs)
      shapes.add(input.name, test::Sizes(input.tensor.shape().begin(), input.tensor.shape().end()));
    predictor = predictor ? test::reshape(predictor, shapes) : test::create(files, shapes);
    ASSERT_TRUE(predictor) << MXGetLastError();
    for (const NamedTensor& input : inputs) {
      const auto values = input.tensor.values<float>();
      test::set(predictor, input.name.c_str(), std::vector<float>(values.begin(), values.end()));
    }
    test::forward(predictor);
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const Tensor& want = wanted[i].tensor;
      const auto index = static_cast<std::uint32_t>(i);
      EXPECT_EQ(test::shape_of(predictor, index), test::Sizes(want.shape().begin(), want.shape().end()));
      const std::vector<float> got = test::output_of(predictor, index);
      const std::vector<double> want_values = as_doubles(want.view());
      EXPECT_TRUE(
          values_close(std::vector<double>(got.begin(), got.end()), want_values, real.tolerance * largest_magnitude(want_values)))
          << "output " << i;
    }
    std::uint32_t *shape = nullptr, rank = 0;
    EXPECT_EQ(MXPredGetOutputShape(predictor.get(), static_cast<std::uint32_t>(wanted.size()), &shape, &rank), -1);
  }
}

INSTANTIATE_TEST_SUITE_P(, RealPredictApi, ::testing::ValuesIn(kRealModels), [](const auto& info) {
  return test_name(std::string(info.param.folder) + "_" + info.param.prefix + "_epoch" + std::to_string(info.param.epoch));
});

}  // namespace
}  // namespace shoal::testing
