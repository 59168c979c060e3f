#include "shm/model/ignored_inputs.hpp"

#include "shm/base/format.hpp"

namespace shoal {

std::vector<std::string> drop_ignored_inputs(ModelConfig& config, std::span<const std::string> ignored) {
  std::vector<std::string> warnings;
  for (const std::string& name : ignored) {
    const auto is_it = [&](const TensorSpec& spec) { return spec.name == name; };
    std::size_t dropped = std::erase_if(config.inputs, is_it);
    for (std::vector<TensorSpec>& set : config.shapes) dropped += std::erase_if(set, is_it);
    if (dropped > 0) warnings.push_back(format("input '{}' is a label, which is not needed: its entries are ignored", name));
  }
  return warnings;
}

}  // namespace shoal
