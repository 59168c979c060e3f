#include "client/src/description.hpp"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "shm/base/errors.hpp"
#include "shm/base/json_text.hpp"
#include "shm/base/shortened.hpp"
#include "shm/base/url.hpp"
#include "shm/tensor/spec.hpp"
#include "shm/wire/messages.hpp"
#include "shm/wire/tensor_json.hpp"

namespace shoal::client {
namespace {

using nlohmann::json;

Preprocess to_preprocess(const json& object) {
  Preprocess preprocess;
  preprocess.resize = wire::to_integer(object, "resize", preprocess.resize);
  if (const auto crop = wire::to_integers<std::int64_t>(object.value("crop", json::array())); crop.size() == 2) {
    preprocess.crop_height = crop[0];
    preprocess.crop_width = crop[1];
  }
  preprocess.order = object.value("order", preprocess.order.string());
  preprocess.mean = object.value("mean", std::vector<float>(preprocess.mean.begin(), preprocess.mean.end()));
  preprocess.scale = object.value("scale", std::vector<float>(preprocess.scale.begin(), preprocess.scale.end()));
  preprocess.letterbox = object.value("letterbox", preprocess.letterbox);
  preprocess.border = wire::to_integer(object, "border", preprocess.border);
  return preprocess;
}

}  // namespace

Result<Description> parse_description(std::string_view text) try {
  const json object = parse_json(text);
  Description description;
  ModelInfo& info = description.info;
  info.name = object.at("name").get<std::string>();
  info.version = wire::to_integer(object, "version", std::uint64_t{1});
  info.inputs = wire::to_specs(object.at("inputs"));
  info.outputs = wire::to_specs(object.at("outputs"));
  info.state = wire::to_state(object.value("state", json::array()));
  if (!object.value("scalars", false)) {  // a daemon before 0.3
    for (auto* const specs : {&info.inputs, &info.outputs}) {
      for (TensorSpec& spec : *specs) {
        if (spec.shape.rank() == 0) spec.shape = Shape::any();
      }
    }
  }
  if (info.inputs.size() + info.outputs.size() > wire::kMaxTensors)
    return internal_error(
        "the daemon describes model '{}' with {} inputs and {} outputs; a request has room for at most {} tensors", info.name,
        info.inputs.size(), info.outputs.size(), wire::kMaxTensors);
  info.labels = object.value("labels", std::vector<std::string>{});
  if (const auto found = object.find("preprocess"); found != object.end() && found->is_object())
    info.preprocess = to_preprocess(*found);
  info.precision = object.value("precision", info.precision);
  description.model_id = wire::to_integer<std::uint32_t>(object.at("model_id"));
  description.signature = wire::to_integer<std::uint32_t>(object.at("signature"));
  description.timeout_ms = wire::to_integer(object, "timeout_ms", std::uint64_t{0});
  description.ignored_inputs = object.value("ignored_inputs", std::vector<std::string>{});
  description.fingerprint = object.value("fingerprint", "");
  return description;
} catch (const std::exception& error) {
  return internal_error("the daemon's description of a model cannot be read: {}", error.what());
}

std::string control_json(std::string_view what, std::string_view model, std::uint64_t version, std::uint64_t pid) {
  json object{{"what", what}};
  if (!model.empty()) object["model"] = model;
  if (version != 0) object["version"] = version;
  if (pid != 0) object["pid"] = pid;
  return json_text(object);
}

Result<std::string> change_json(const ChangeRequest& change) {
  json object{{"what", change.what}, {"model", change.model}};
  std::string path(change.path);
  SHOAL_RETURN_IF_ERROR(check_url(path));
  if (!path.empty() && path.front() != '/' && !path.starts_with("builtin:") && url_scheme(path).empty()) {
    std::error_code error;
    path = std::filesystem::absolute(path, error).string();
    if (error) {
      return status_from_errno(format("find the model at '{}': read", change.path), "the current directory", error.value());
    }
  }
  if (!path.empty()) object["text"] = path;
  if (change.workers != 0) object["workers"] = change.workers;
  if (change.force) object["force"] = true;
  return json_text(object);
}

Result<ModelChange> parse_change(std::string_view text) try {
  const json object = parse_json(text);
  ModelChange change;
  change.outcome = object.at("outcome").get<std::string>();
  if (object.at("version").is_number()) change.version = wire::to_integer<std::uint64_t>(object.at("version"));
  change.versions = wire::to_integers<std::uint64_t>(object.at("versions"));
  change.workers = wire::to_integer<int>(object.at("workers"));
  change.took = std::chrono::milliseconds(wire::to_integer<std::int64_t>(object.at("ms")));
  return change;
} catch (const std::exception& error) {
  return internal_error("the daemon's answer to a change cannot be read: {}", error.what());
}

std::string name_question(std::string_view text) {
  const json object = parse_json(text);
  const std::string name = format("'{}'", object.value("what", ""));
  return object.contains("model") ? format("{} of model '{}'", name, object.value("model", "")) : name;
}

Status check_model_name(std::string_view name) {
  if (name.size() <= kLongestModelName) return {};
  return invalid_argument("'{}' is not the name of a model: it has {} bytes (at most {})", shortened(name, kLongestModelName),
                          name.size(), kLongestModelName);
}

std::string parse_message(std::string_view text) {
  const json object = json::parse(text, nullptr, false);
  if (object.is_object() && object.contains("message") && object["message"].is_string())
    return object["message"].get<std::string>();
  return std::string(text);
}

Result<std::vector<std::string>> parse_names(std::string_view text) try {
  std::vector<std::string> names;
  const json object = parse_json(text);  // a temporary would be destroyed before the loop
  for (const json& model : object.at("models")) {
    names.push_back((model.is_object() ? model.at("name") : model).get<std::string>());
  }
  return names;
} catch (const std::exception& error) {
  return internal_error("the daemon's list of models cannot be read: {}", error.what());
}

Status match_inputs(const Description& model, std::span<const TensorSpec> given, std::vector<std::size_t>& order) {
  const auto& wanted = model.info.inputs;
  order.assign(wanted.size(), given.size());  // not found yet
  for (std::size_t i = 0; i < given.size(); ++i) {
    const TensorSpec& input = given[i];
    const auto spec = std::ranges::find(wanted, input.name, &TensorSpec::name);
    if (spec == wanted.end()) {
      SHOAL_RETURN_IF_ERROR(check_input_name(model.info.name, wanted, model.ignored_inputs, input.name));
      continue;
    }
    std::size_t& place = order[static_cast<std::size_t>(spec - wanted.begin())];
    if (place != given.size()) return invalid_argument("model '{}': input '{}' is given twice", model.info.name, input.name);
    if (Status matches = check_matches(*spec, input.dtype, input.shape); !matches.ok()) {
      return matches.with_context(format("model '{}'", model.info.name));
    }
    place = i;
  }
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (order[i] == given.size())
      return invalid_argument("model '{}': input '{}' is missing ({} given, it has: {})", model.info.name, wanted[i].name,
                              given.size(), names_of(wanted));
  }
  return {};
}

}  // namespace shoal::client
