// Labels: inputs that a configuration may name but no run needs.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "shm/model/model_config.hpp"

namespace shoal {

/// Removes the labels of a training graph from `inputs` and `shapes`, which files from training often name. Returns a warning for
/// each.
std::vector<std::string> drop_ignored_inputs(ModelConfig& config, std::span<const std::string> ignored);

}  // namespace shoal
