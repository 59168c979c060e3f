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

/// A PATH that begins so names a model that is built in and has no files.
inline constexpr std::string_view kBuiltinPrefix = "builtin:";

/// resolve_model(), and the built-in models: "builtin:identity" takes one input `data` of any float32 shape and returns it.
///   Errors  those of resolve_model, kNotFound (no such built-in model)
Result<ServedModel> resolve_served_model(const ModelRequest& request);

/// What a zygote reports of a model that it loaded.
struct LoadedModel {
  std::vector<TensorSpec> inputs, outputs;
  std::vector<std::string> ignored_inputs;
  std::string hash;    // of the files
  std::string tuning;  // where the choice of algorithms comes from
  std::vector<std::string> warnings;
  std::uint64_t packed_bytes = 0, parameter_bytes = 0, arena_bytes = 0;

  /// Changes when the model's name or inputs do. Never 0.
  std::uint32_t signature(std::string_view name) const;
};

/// The text of kLoad.
std::string load_text(const ServedModel& model);
/// The text of kLoaded. Errors: kInternal, it is not what a zygote says.
Result<LoadedModel> parse_loaded(std::string_view text);
/// The answer to {"what": "describe"}.
std::string describe_text(const ServedModel& model, const LoadedModel& loaded, std::uint32_t model_id);

}  // namespace shoal::supervisor
