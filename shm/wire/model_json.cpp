#include "shm/wire/model_json.hpp"

#include <filesystem>

#include "shm/base/errors.hpp"
#include "shm/base/json_text.hpp"
#include "shm/wire/control.hpp"
#include "shm/wire/tensor_json.hpp"

namespace shoal::wire {

using nlohmann::json;

json to_json(const std::vector<Buckets>& buckets) {
  json list = json::array();
  for (const Buckets& each : buckets)
    list.push_back({{"input", each.input}, {"dim", each.dim}, {"sizes", each.sizes}, {"crop", each.crop}});
  return list;
}

Result<std::string> load_text(const ServedModel& model) {
  std::vector<std::string> files;
  for (const auto& file : model.files.files) files.push_back(file.string());
  json shapes = json::array();
  for (const auto& set : model.config.shapes) shapes.push_back(to_json(set));
  std::string golden;
  if (!model.config.golden_file.empty()) golden = (model.files.directory / model.config.golden_file).string();
  std::string text = json_text({{"name", model.name},
                                {"path", model.path},
                                {"version", model.files.version},
                                {"files", files},
                                {"outputs", model.config.outputs},
                                {"state", to_json(model.config.state)},
                                {"device", model.config.device},
                                {"fallback", model.config.fallback},
                                {"precision", model.config.precision},
                                {"max_error", model.config.max_error},
                                {"tuning_ms", model.config.tuning_ms},
                                {"threads", model.config.threads},
                                {"import_mb", model.config.import_mb},
                                {"contexts", model.config.contexts},
                                {"cache_mb", model.config.cache_mb},
                                {"buckets", to_json(model.config.buckets)},
                                {"sparse", model.config.sparse},
                                {"max_batch", model.config.max_batch},
                                {"memory_mb", model.config.memory_mb},
                                {"golden", golden},
                                {"golden_tolerance", model.config.golden_tolerance},
                                {"inputs", to_json(model.config.inputs)},
                                {"shapes", shapes},
                                {"build_id", build_id()}});
  if (text.size() <= kMaxControlText) return text;
  return invalid_argument(
      "model '{}' at {}: its keys need {} bytes (at most {}): give fewer or shorter entries of `shapes`, `inputs`, `outputs` and "
      "`buckets`",
      model.name, model.path, text.size(), kMaxControlText);
}

}  // namespace shoal::wire
