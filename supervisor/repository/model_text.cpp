#include "supervisor/repository/model_text.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "shm/base/errors.hpp"
#include "shm/base/format.hpp"
#include "shm/base/json_text.hpp"
#include "shm/base/shortened.hpp"
#include "shm/model/preprocess_json.hpp"
#include "shm/tensor/spec.hpp"
#include "shm/wire/messages.hpp"
#include "shm/wire/model_json.hpp"
#include "shm/wire/tensor_json.hpp"

namespace shoal::supervisor {

using nlohmann::json;

namespace {
// Of what a zygote tells, and the log repeats.
constexpr std::size_t kMostWarnings = 16, kLongestText = 1000, kLongestFingerprint = 64;

bool is_fingerprint(std::string_view text) {
  return text.size() <= kLongestFingerprint && std::ranges::all_of(text, [](char letter) {
           return (letter >= 'a' && letter <= 'z') || (letter >= '0' && letter <= '9') || letter == ':';
         });
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
  for (const StatePair& pair : state) {
    mix(pair.out);
    mix(pair.in);
    if (!pair.batch_input.empty() || pair.batch_axis != 0) mix(format("{}[{}]", pair.batch_input, pair.batch_axis));
  }
  return hash ? hash : 1;
}

Result<LoadReport> parse_loaded(std::string_view text) try {
  const json object = parse_json(text);
  LoadReport loaded;
  loaded.inputs = wire::to_specs(object.at("inputs"));
  loaded.outputs = wire::to_specs(object.at("outputs"));
  if (loaded.inputs.size() + loaded.outputs.size() > wire::kMaxTensors) {
    return internal_error("the zygote describes a model of {} inputs and {} outputs; a request has room for at most {} tensors",
                          loaded.inputs.size(), loaded.outputs.size(), wire::kMaxTensors);
  }
  loaded.state = wire::to_state(object.value("state", json::array()));
  loaded.ignored_inputs = object.value("ignored_inputs", std::vector<std::string>{});
  loaded.hash = shortened(object.value("hash", ""), kLongestText);
  loaded.fingerprint = object.value("fingerprint", "");
  if (!is_fingerprint(loaded.fingerprint)) {
    return internal_error("the zygote describes its model by a fingerprint that none writes: '{}'",
                          shortened(loaded.fingerprint, kLongestFingerprint));
  }
  loaded.tuning = shortened(object.value("tuning", ""), kLongestText);
  loaded.precision = shortened(object.value("precision", "f32"), kLongestText);
  loaded.warnings = object.value("warnings", std::vector<std::string>{});
  if (loaded.warnings.size() > kMostWarnings) {
    const std::string left_out = format("{} more warnings", loaded.warnings.size() - (kMostWarnings - 1));
    loaded.warnings.resize(kMostWarnings - 1);
    loaded.warnings.push_back(left_out);
  }
  for (std::string& warning : loaded.warnings) warning = shortened(warning, kLongestText);
  loaded.packed_bytes = wire::to_integer(object, "packed_bytes", std::uint64_t{0});
  loaded.parameter_bytes = wire::to_integer(object, "parameter_bytes", std::uint64_t{0});
  loaded.arena_bytes = wire::to_integer(object, "arena_bytes", std::uint64_t{0});
  return loaded;
} catch (const std::exception& error) {
  return internal_error("the zygote's description of its model cannot be read: {}", error.what());
}

std::string describe_text(const ServedModel& model, const LoadReport& loaded, std::uint32_t model_id,
                          const std::vector<std::uint64_t>& versions) {
  json object{{"name", model.name},
              {"model_id", model_id},
              {"signature", loaded.signature(model.name)},
              {"version", model.files.version},
              {"versions", versions},
              {"inputs", wire::to_json(loaded.inputs)},
              {"outputs", wire::to_json(loaded.outputs)},
              {"state", wire::to_json(loaded.state)},
              {"labels", model.labels},
              {"preprocess", model.config.preprocess ? preprocess_json(*model.config.preprocess) : json()},
              {"buckets", wire::to_json(model.config.buckets)},
              {"ignored_inputs", loaded.ignored_inputs},
              {"scalars", true},  // a shape of [] means that; to clients and daemons before 0.3 it is any shape
              {"precision", loaded.precision},
              {"timeout_ms", model.config.timeout_ms}};
  if (!loaded.fingerprint.empty()) object["fingerprint"] = loaded.fingerprint;
  return json_text(object);
}

}  // namespace shoal::supervisor
