// Turns a row of a model's output into the classes of a picture.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "shoal/image_classifier.hpp"

namespace shoal::vision {

/// Returns the row unchanged if it is a distribution (no negative number, sum 1 within a thousandth), else its softmax.
std::vector<float> to_probabilities(std::span<const float> row);

/// Returns the `top_k` most probable classes, the most probable first. Equal ones are ordered by index.
Classes top_classes(std::span<const float> probabilities, std::span<const std::string> labels, std::size_t top_k);

}  // namespace shoal::vision
