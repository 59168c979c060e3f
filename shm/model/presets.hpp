// The presets of [preprocess].
#pragma once

#include <string>
#include <vector>

namespace shoal {

/// The names that preprocess_preset() takes.
std::vector<std::string> preset_names();

}  // namespace shoal
