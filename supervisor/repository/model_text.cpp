#include "supervisor/repository/model_text.hpp"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "shm/base/errors.hpp"
#include "shm/base/json_text.hpp"
#include "shm/model/preprocess_json.hpp"
#include "shm/tensor/spec.hpp"
#include "shm/wire/control.hpp"
#include "shm/wire/tensor_json.hpp"

namespace shoal::supervisor {
namespace {

using nlohmann::json;

json to_json(const std::vector<Buckets>& buckets) {
  json list = json::array();
  for (const Buckets& each : buckets)
    list.push_back({{"input", each.input}, {"dim", each.dim}, {"sizes", each.sizes}, {"crop", each.crop}});
  return list;
}

}  // namespace

std::uint32_t LoadReport::signature(std::string_view name) const {
  std::uint32_t hash = 2166136261;  // FNV-1a
  const auto mix = [&](std::string_view bytes) {
    for (const char byte : bytes) hash = (hash ^ static_cast<unsigned char>(byte)) * 16777619;
    hash = (hash ^ 0xff) * 16777619;
  };
  mix(name);
  for (const auto* tensors : {&inputs, &outputs}) {
    for (const TensorSpec& tensor : *tensors) {
      mix(tensor.name);
      mix(dtype_name(tensor.dtype));
      mix(shape_text(tensor));
    }
    mix("");
  }
  return hash ? hash : 1;
}

Result<std::string> load_text(const ServedModel& model) {
  std::vector<std::string> files;
  for (const auto& file : model.files.files) files.push_back(file.string());
  json shapes = json::array();
  for (const auto& set : model.config.shapes) shapes.push_back(wire::to_json(set));
  const std::string golden =
      model.config.golden_file.empty() ? std::string() : (model.files.directory / model.config.golden_file).string();
  std::string text = json_text({{"name", model.name},
                                {"path", model.path},
                                {"version", model.files.version},
                                {"files", files},
                                {"outputs", model.config.outputs},
                                {"device", model.config.device},
                                {"precision", model.config.precision},
                                {"tuning_ms", model.config.tuning_ms},
                                {"threads", model.config.threads},
                                {"import_mb", model.config.import_mb},
                                {"contexts", model.config.contexts},
                                {"cache_mb", model.config.cache_mb},
                                {"buckets", to_json(model.config.buckets)},
                                {"max_batch", model.config.max_batch},
                                {"memory_mb", model.config.memory_mb},
                                {"golden", golden},
                                {"golden_tolerance", model.config.golden_tolerance},
                                {"inputs", wire::to_json(model.config.inputs)},
                                {"shapes", shapes},
                                {"build_id", wire::build_id()}});
  if (text.size() <= wire::kMaxControlText) return text;
  return invalid_argument(
      "model '{}' at {}: its keys need {} bytes (at most {}): give fewer or shorter entries of `shapes`, `inputs`, `outputs` and "
      "`buckets`",
      model.name, model.path, text.size(), wire::kMaxControlText);
}

Result<LoadReport> parse_loaded(std::string_view text) try {
  const json object = json::parse(text);
  LoadReport loaded;
  loaded.inputs = wire::to_specs(object.at("inputs"));
  loaded.outputs = wire::to_specs(object.at("outputs"));
  loaded.ignored_inputs = object.value("ignored_inputs", std::vector<std::string>{});
  loaded.hash = object.value("hash", "");
  loaded.tuning = object.value("tuning", "");
  loaded.warnings = object.value("warnings", std::vector<std::string>{});
  loaded.packed_bytes = wire::to_integer(object, "packed_bytes", std::uint64_t{0});
  loaded.parameter_bytes = wire::to_integer(object, "parameter_bytes", std::uint64_t{0});
  loaded.arena_bytes = wire::to_integer(object, "arena_bytes", std::uint64_t{0});
  return loaded;
} catch (const std::exception& error) {
  return internal_error("the zygote's description of its model cannot be read: {}", error.what());
}

std::string describe_text(const ServedModel& model, const LoadReport& loaded, std::uint32_t model_id,
                          const std::vector<std::uint64_t>& versions) {
  return json_text({{"name", model.name},
                    {"model_id", model_id},
                    {"signature", loaded.signature(model.name)},
                    {"version", model.files.version},
                    {"versions", versions},
                    {"inputs", wire::to_json(loaded.inputs)},
                    {"outputs", wire::to_json(loaded.outputs)},
                    {"labels", model.labels},
                    {"preprocess", model.config.preprocess ? preprocess_json(*model.config.preprocess) : json()},
                    {"buckets", to_json(model.config.buckets)},
                    {"ignored_inputs", loaded.ignored_inputs},
                    {"timeout_ms", model.config.timeout_ms}});
}

}  // namespace shoal::supervisor
