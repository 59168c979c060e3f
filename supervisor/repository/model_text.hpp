// The JSON texts about a model: from the zygote, and to clients.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "shm/model/model_config.hpp"
#include "shoal/result.hpp"
#include "shoal/tensor.hpp"

namespace shoal::supervisor {

/// What a zygote reports about the model that it loaded.
struct LoadReport {
  std::vector<TensorSpec> inputs, outputs;
  std::vector<StatePair> state;
  std::vector<std::string> ignored_inputs;
  std::string hash;         // of the files
  std::string tuning;       // how the algorithms were chosen
  std::string fingerprint;  // of the graph in the file; empty: its format has none
  std::string precision;    // in which the model runs: "f32", "f32-fast" or "bf16"
  std::vector<std::string> warnings;
  std::uint64_t packed_bytes = 0, parameter_bytes = 0, arena_bytes = 0;

  /// Changes when the model's name, inputs, outputs or state change. Never 0.
  std::uint32_t signature(std::string_view name) const;
};

/// Parses the text of kLoaded. Errors: kInternal: the text is malformed.
Result<LoadReport> parse_loaded(std::string_view text);
/// The answer to {"what": "describe"}. `versions` are all versions that are served.
std::string describe_text(const ServedModel& model, const LoadReport& loaded, std::uint32_t model_id,
                          const std::vector<std::uint64_t>& versions);

}  // namespace shoal::supervisor
