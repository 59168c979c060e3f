// How far the answers of two devices lie apart.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

namespace shoal::fuzz {

/// Largest distance of two tensors, infinite where one has a NaN or an infinity that the other has not; and their largest number.
///   few_nan  up to 2 % of the elements, or one, may be NaN in one of them only
struct Distance {
  double apart = 0, largest = 1;
  Distance(const std::vector<double>& a, const std::vector<double>& b, bool few_nan) {
    constexpr std::size_t kFew = 50;
    std::size_t unlike = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      const double x = a[i], y = b[i];
      if (std::isfinite(x) && std::isfinite(y)) {
        apart = std::max(apart, std::abs(x - y));
        largest = std::max(largest, std::abs(y));
      } else if (few_nan && std::isnan(x) != std::isnan(y) && ++unlike <= std::max<std::size_t>(1, a.size() / kFew)) {
        continue;
      } else if (!(std::isnan(x) && std::isnan(y)) && x != y) {
        apart = std::numeric_limits<double>::infinity();
      }
    }
  }
};

}  // namespace shoal::fuzz
