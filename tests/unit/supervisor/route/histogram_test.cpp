#include "supervisor/route/histogram.hpp"

#include <gtest/gtest.h>

namespace shoal::supervisor {
namespace {

TEST(Histogram, QuantilesAreRightToAFewPercent) {
  Histogram histogram;
  for (std::uint64_t value = 1; value <= 100'000; ++value) histogram.add(value);
  EXPECT_NEAR(static_cast<double>(histogram.quantile(0.5)), 50'000, 3'500);
  EXPECT_NEAR(static_cast<double>(histogram.quantile(0.99)), 99'000, 7'000);
  EXPECT_EQ(histogram.sum(), 5'000'050'000u);
  histogram.add(~std::uint64_t{0});
  EXPECT_GT(histogram.quantile(1.0 - 1e-9), 1'000'000u);
}

}  // namespace
}  // namespace shoal::supervisor
