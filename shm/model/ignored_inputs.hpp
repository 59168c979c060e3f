// Inputs that a configuration may name and nobody needs.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "shm/model/model_config.hpp"

namespace shoal {

/// Takes the labels of a training graph out of `inputs` and `shapes`: files written for training name them. A warning for each.
std::vector<std::string> drop_ignored_inputs(ModelConfig& config, std::span<const std::string> ignored);

}  // namespace shoal
