#include "shm/model/model_config.hpp"

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <limits>
#include <set>
#include <sstream>

#include <nlohmann/json.hpp>

#include "shm/base/errors.hpp"
#include "shm/base/text_file.hpp"
#include "shm/model/toml_keys.hpp"

namespace shoal {
namespace {

Result<TensorSpec> parse_companion_entry(const nlohmann::json& entry, const std::string& where) {
  const auto shape = entry.is_object() ? entry.find("shape") : entry.end();
  if (!entry.is_object() || !entry.contains("name") || !entry["name"].is_string() || shape == entry.end() || !shape->is_array() ||
      shape->size() > kMaxRank) {
    return invalid_argument("{}: must be a list of {\"name\": TEXT, \"shape\": [at most {} numbers]}", where, kMaxRank);
  }
  std::vector<std::int64_t> dims;
  for (const nlohmann::json& dim : *shape) {
    if (!dim.is_number_integer())
      return invalid_argument("{}: the shape of '{}' has a dimension that is not a whole number", where,
                              entry["name"].get<std::string>());
    const auto size = dim.get<std::int64_t>();
    dims.push_back(size > 0 ? size : -1);  // MXNet writes 0 for an unknown dimension
  }
  return TensorSpec{entry["name"].get<std::string>(), DType::kFloat32, Shape(dims)};
}

/// prefix-shapes.json, SageMaker's companion file: [{"name": "data", "shape": [1, 3, 224, 224]}]. The shapes in it are compiled.
/// The model takes other batches, too.
Result<ModelConfig> parse_companion(const std::string& text, const std::string& where) {
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_array()) return invalid_argument("{}: is not a JSON list of inputs", where);
  if (json.size() > internal::kMostEntries)
    return invalid_argument("{}: has {} inputs; at most {} are possible", where, json.size(), internal::kMostEntries);
  ModelConfig config;
  std::set<std::string> names;
  for (const nlohmann::json& entry : json) {
    SHOAL_ASSIGN_OR_RETURN(TensorSpec spec, parse_companion_entry(entry, where));
    if (spec.name.empty() || !names.insert(spec.name).second)
      return invalid_argument("{}: '{}' is given twice, or is not a name", where, spec.name);
    config.inputs.push_back(std::move(spec));
  }
  const auto is_said = [](const TensorSpec& input) { return input.shape.element_count() >= 0; };
  if (config.inputs.empty() || !std::ranges::all_of(config.inputs, is_said)) return config;
  config.shapes = {config.inputs};
  for (TensorSpec& input : config.inputs) {
    if (input.shape.rank() > 0) input.shape[0] = -1;
  }
  return config;
}

template <typename T>
void take(const std::optional<T>& given, T& member) {
  if (given) member = *given;
}

}  // namespace

void apply_overrides(const ModelOverrides& overrides, ModelConfig& config) {
  if (overrides.inputs) config.shapes.clear();
  take(overrides.inputs, config.inputs);
  take(overrides.outputs, config.outputs);
  take(overrides.state, config.state);
  take(overrides.labels_file, config.labels_file);
  if (overrides.preprocess) config.preprocess = overrides.preprocess;
  take(overrides.shapes, config.shapes);
  take(overrides.buckets, config.buckets);
  take(overrides.sparse, config.sparse);
  take(overrides.device, config.device);
  take(overrides.fallback, config.fallback);
  take(overrides.precision, config.precision);
  take(overrides.max_error, config.max_error);
  take(overrides.tuning_ms, config.tuning_ms);
  take(overrides.workers, config.workers);
  take(overrides.contexts, config.contexts);
  take(overrides.threads, config.threads);
  take(overrides.queue_limit, config.queue_limit);
  take(overrides.import_mb, config.import_mb);
  take(overrides.cache_mb, config.cache_mb);
  take(overrides.timeout_ms, config.timeout_ms);
  take(overrides.max_batch, config.max_batch);
  take(overrides.max_delay_ms, config.max_delay_ms);
  take(overrides.run_limit_ms, config.run_limit_ms);
  take(overrides.quarantine_ms, config.quarantine_ms);
  take(overrides.load_timeout_s, config.load_timeout_s);
  take(overrides.memory_mb, config.memory_mb);
  take(overrides.golden_file, config.golden_file);
  take(overrides.golden_tolerance, config.golden_tolerance);
  take(overrides.versions, config.versions);
}

Result<ModelConfig> parse_model_config(const std::string& text, const std::string& where) {
  SHOAL_ASSIGN_OR_RETURN(const toml::table table, internal::parse_toml(text, where));
  SHOAL_ASSIGN_OR_RETURN(const ModelOverrides keys, internal::read_keys(where, table));
  ModelConfig config;
  apply_overrides(keys, config);
  return config;
}

Result<ModelConfig> read_model_config(const ModelFiles& files) {
  if (!files.config_file.empty()) {
    SHOAL_ASSIGN_OR_RETURN(const std::string text, read_text_file(files.config_file));
    return parse_model_config(text, files.config_file.string());
  }
  const std::filesystem::path companion = files.directory / (files.prefix + "-shapes.json");
  std::error_code error;
  if (!std::filesystem::exists(companion, error)) return ModelConfig{};
  SHOAL_ASSIGN_OR_RETURN(const std::string text, read_text_file(companion));
  return parse_companion(text, companion.string());
}

std::uint64_t lane_message_bytes(const ModelConfig& config) {
  if (config.memory_mb == 0) return std::numeric_limits<std::uint64_t>::max();
  return (static_cast<std::uint64_t>(config.memory_mb) << 20) / 8 / static_cast<std::uint64_t>(std::max(config.contexts, 1));
}

}  // namespace shoal
