// Turns a row of a model's output into classes.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "shoal/classifier.hpp"

namespace shoal::tasks {

/// Returns the row unchanged if it is a distribution (no negative number, sum 1 within a thousandth), else the softmax of its
/// numbers; NaN stays.
std::vector<float> to_probabilities(std::span<const float> row);

/// Returns the `top_k` most probable classes, the most probable first, or with 0 all of them in their order. Equal ones are
/// ordered by index, and NaN comes last.
Classes top_classes(std::span<const float> probabilities, std::span<const std::string> labels, std::size_t top_k);

}  // namespace shoal::tasks
