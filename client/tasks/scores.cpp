#include "client/tasks/scores.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace shoal::tasks {
namespace {

// The error of a softmax over 20 000 classes in float16 is smaller.
constexpr double kSumTolerance = 1e-3;

bool is_distribution(std::span<const float> row) {
  const double sum = std::accumulate(row.begin(), row.end(), 0.0);
  return std::ranges::none_of(row, [](float value) { return value < 0; }) && std::abs(sum - 1) <= kSumTolerance;
}

}  // namespace

std::vector<float> to_probabilities(std::span<const float> row) {
  std::vector<float> probabilities(row.begin(), row.end());
  if (row.empty() || is_distribution(row)) return probabilities;
  float largest = -std::numeric_limits<float>::infinity();
  for (const float value : row) largest = std::fmax(largest, value);  // leaves NaN out
  double sum = 0;
  for (float& value : probabilities) {
    value = std::exp(value - largest);
    if (!std::isnan(value)) sum += value;
  }
  for (float& value : probabilities) value = static_cast<float>(value / sum);
  return probabilities;
}

Classes top_classes(std::span<const float> probabilities, std::span<const std::string> labels, std::size_t top_k) {
  std::vector<std::size_t> order(probabilities.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  // NaN comes last, so that this is a valid ordering for any output.
  const auto is_before = [&](std::size_t a, std::size_t b) {
    const bool a_nan = std::isnan(probabilities[a]), b_nan = std::isnan(probabilities[b]);
    if (a_nan != b_nan) return b_nan;
    return a_nan || probabilities[a] == probabilities[b] ? a < b : probabilities[a] > probabilities[b];
  };
  const std::size_t count = top_k == 0 ? order.size() : std::min(top_k, order.size());
  if (top_k > 0) std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count), order.end(), is_before);
  Classes classes;
  for (const std::size_t index : std::span(order).first(count)) {
    classes.push_back(
        {static_cast<std::int64_t>(index), index < labels.size() ? labels[index] : std::string(), probabilities[index]});
  }
  return classes;
}

}  // namespace shoal::tasks
