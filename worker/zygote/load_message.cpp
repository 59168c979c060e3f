#include "worker/zygote/load_message.hpp"

#include <nlohmann/json.hpp>

#include "shm/base/errors.hpp"
#include "shm/base/json_text.hpp"
#include "shm/wire/control.hpp"
#include "shm/wire/tensor_json.hpp"

namespace shoal::worker {

using nlohmann::json;

Result<ModelSource> parse_load(std::string_view text) try {
  const json object = parse_json(text);
  SHOAL_RETURN_IF_ERROR(wire::check_build(object.value("build_id", wire::build_id())));
  ModelSource source{.name = object.at("name").get<std::string>(), .path = object.at("path").get<std::string>()};
  for (const json& file : object.value("files", json::array())) source.files.emplace_back(file.get<std::string>());
  source.config.outputs = object.value("outputs", source.config.outputs);
  source.config.state = wire::to_state(object.value("state", json::array()));
  source.config.device = object.value("device", source.config.device);
  source.config.fallback = object.value("fallback", source.config.fallback);
  source.config.precision = object.value("precision", source.config.precision);
  source.config.max_error = object.value("max_error", source.config.max_error);
  source.config.tuning_ms = wire::to_integer(object, "tuning_ms", source.config.tuning_ms);
  source.config.import_mb = wire::to_integer(object, "import_mb", source.config.import_mb);
  source.config.threads = wire::to_integer(object, "threads", source.config.threads);
  source.config.cache_mb = wire::to_integer(object, "cache_mb", source.config.cache_mb);
  source.config.max_batch = wire::to_integer(object, "max_batch", source.config.max_batch);
  source.config.memory_mb = wire::to_integer(object, "memory_mb", source.config.memory_mb);
  source.config.golden_file = object.value("golden", "");
  source.config.golden_tolerance = object.value("golden_tolerance", source.config.golden_tolerance);
  for (const json& each : object.value("buckets", json::array())) {
    source.config.buckets.push_back({.input = each.at("input").get<std::string>(),
                                     .dim = wire::to_integer<int>(each.at("dim")),
                                     .sizes = wire::to_integers<std::int64_t>(each.at("sizes")),
                                     .crop = {}});
    for (const auto& [output, dim] : each.at("crop").items())
      source.config.buckets.back().crop[output] = wire::to_integer<int>(dim);
  }
  source.config.sparse = object.value("sparse", source.config.sparse);
  source.config.inputs = wire::to_specs(object.value("inputs", json::array()));
  for (const json& set : object.value("shapes", json::array())) source.config.shapes.push_back(wire::to_specs(set));
  return source;
} catch (const std::exception& error) {
  return invalid_argument("the load message cannot be read: {}", error.what());
}

void add_warning(std::string& loaded, const std::string& warning) {
  json object = json::parse(loaded);
  object["warnings"].push_back(warning);
  if (std::string text = json_text(object); text.size() <= wire::kMaxControlText) loaded = std::move(text);
}

std::string loaded_text(const LoadedModel& loaded, const std::string& hash) {
  json object{{"inputs", wire::to_json(loaded.inputs)},
              {"outputs", wire::to_json(loaded.outputs)},
              {"state", wire::to_json(loaded.state)},
              {"ignored_inputs", loaded.model->ignored_inputs()},
              {"warnings", loaded.warnings},
              {"hash", hash},
              {"tuning", to_text(loaded.model->tuning())},
              {"precision", word_of(loaded.model->tuning().precision)},
              {"packed_bytes", loaded.model->packed_bytes()},
              {"parameter_bytes", loaded.parameter_bytes},
              {"arena_bytes", loaded.arena_bytes}};
  if (!loaded.fingerprint.empty()) object["fingerprint"] = loaded.fingerprint;
  return json_text(object);
}

}  // namespace shoal::worker
