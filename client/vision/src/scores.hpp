// From a row of a model's output to the classes of a picture.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "shoal/image_classifier.hpp"

namespace shoal::vision {

/// The row as it is when it is a distribution (no number negative, sum 1 within a thousandth), else its softmax.
std::vector<float> to_probabilities(std::span<const float> row);

/// The `top_k` most probable classes, the most probable first; of equal ones the lower index first.
Classes top_classes(std::span<const float> probabilities, std::span<const std::string> labels, std::size_t top_k);

}  // namespace shoal::vision
