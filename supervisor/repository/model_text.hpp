// What the supervisor says and hears of a model, as JSON: to the zygote, from the zygote, to clients.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "shm/model/model_config.hpp"
#include "shoal/result.hpp"
#include "shoal/tensor.hpp"

namespace shoal::supervisor {

/// What a zygote reports of a model that it loaded.
struct LoadedModel {
  std::vector<TensorSpec> inputs, outputs;
  std::vector<std::string> ignored_inputs;
  std::string hash;    // of the files
  std::string tuning;  // where the choice of algorithms comes from
  std::vector<std::string> warnings;
  std::uint64_t packed_bytes = 0, parameter_bytes = 0, arena_bytes = 0;

  /// Changes when the model's name, inputs or outputs do. Never 0.
  std::uint32_t signature(std::string_view name) const;
};

/// The text of kLoad.
std::string load_text(const ServedModel& model);
/// The text of kLoaded. Errors: kInternal, it is not what a zygote says.
Result<LoadedModel> parse_loaded(std::string_view text);
/// The answer to {"what": "describe"}. `versions` are all that are served.
std::string describe_text(const ServedModel& model, const LoadedModel& loaded, std::uint32_t model_id,
                          const std::vector<std::uint64_t>& versions);

}  // namespace shoal::supervisor
