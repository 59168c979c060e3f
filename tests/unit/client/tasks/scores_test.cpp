#include "client/tasks/scores.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace shoal::tasks {
namespace {

constexpr float kTolerance = 1e-6f;  // rounding of a sum of a few floats

TEST(Scores, ProbabilitiesStayAsTheyAre) {
  const std::vector<float> row{0.25f, 0.5f, 0.25f};
  EXPECT_EQ(to_probabilities(row), row);
}

TEST(Scores, LogitsBecomeTheirSoftmaxHoweverLarge) {
  const auto probabilities = to_probabilities(std::vector<float>{1000, 1000, -1000});
  EXPECT_NEAR(probabilities[0], 0.5f, kTolerance);
  EXPECT_NEAR(probabilities[1], 0.5f, kTolerance);
  EXPECT_NEAR(probabilities[2], 0, kTolerance);
}

TEST(Scores, ARowThatSumsToOneButIsNegativeIsNoDistribution) {
  const auto probabilities = to_probabilities(std::vector<float>{2, -1});
  EXPECT_NEAR(probabilities[0], 1 / (1 + std::exp(-3.0f)), kTolerance);
}

TEST(Scores, TheMostProbableClassesComeFirstWithTheirLabels) {
  const std::vector<std::string> labels{"a", "b"};
  const Classes classes = top_classes(std::vector<float>{0.2f, 0.3f, 0.5f}, labels, 2);
  ASSERT_EQ(classes.size(), 2u);
  EXPECT_EQ(classes[0].index, 2);
  EXPECT_EQ(classes[0].label, "");
  EXPECT_EQ(classes[1].index, 1);
  EXPECT_EQ(classes[1].label, "b");
  EXPECT_EQ(classes[1].probability, 0.3f);
}

TEST(Scores, EqualOnesComeInOrderAndNanComesLast) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Classes classes = top_classes(std::vector<float>{nan, 0.5f, 0.5f, nan}, {}, 9);
  std::vector<std::int64_t> order;
  for (const ClassScore& score : classes) order.push_back(score.index);
  EXPECT_EQ(order, (std::vector<std::int64_t>{1, 2, 0, 3}));
}

}  // namespace
}  // namespace shoal::tasks
