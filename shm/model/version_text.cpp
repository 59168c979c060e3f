// The texts of version_entry.hpp.
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <utility>

#include "shm/base/errors.hpp"
#include "shm/base/json_text.hpp"
#include "shm/base/text_file.hpp"
#include "shm/model/preprocess_json.hpp"
#include "shm/model/status_json.hpp"
#include "shm/model/toml_keys.hpp"
#include "shm/model/version_entry.hpp"
#include "shm/tensor/spec.hpp"

namespace shoal {
namespace {

using nlohmann::json;

constexpr const char* kWhere = "the answer of the process that looks for files";

// ---- keys, in the forms of model.toml ----

json input_json(const TensorSpec& spec) {
  json shape = spec.shape.is_known() ? json::array() : json(spec.shape.to_string());
  for (int axis = 0; axis < spec.shape.rank(); ++axis) {
    const auto at = static_cast<std::size_t>(axis);
    if (at < spec.ranges.size() && spec.ranges[at] != DimRange())
      shape.push_back(to_string(spec.ranges[at]));
    else
      shape.push_back(spec.shape[axis]);
  }
  json table{{"name", spec.name}, {"shape", shape}, {"dtype", dtype_name(spec.dtype)}};
  if (!spec.layout.empty()) table["layout"] = spec.layout;
  return table;
}

json state_json(const std::vector<StatePair>& state) {
  json list = json::array();
  for (const StatePair& pair : state) {
    json table{{"out", pair.out}, {"in", pair.in}, {"batch_axis", pair.batch_axis}};  // said, so no `layout` of an input counts
    if (pair.shape.is_known()) table["shape"] = std::vector<std::int64_t>(pair.shape.begin(), pair.shape.end());
    if (!pair.batch_input.empty()) table["batch_input"] = pair.batch_input;
    list.push_back(std::move(table));
  }
  return list;
}

json shapes_json(const std::vector<std::vector<TensorSpec>>& sets) {
  json list = json::array();
  for (const auto& set : sets) {
    json table = json::object();
    for (const TensorSpec& spec : set) {
      json shape = json::array();
      for (int axis = 0; axis < spec.shape.rank(); ++axis) shape.push_back(spec.shape[axis]);
      table[spec.name] = shape;
    }
    list.push_back(table);
  }
  return list;
}

json buckets_json(const std::vector<Buckets>& buckets) {
  json list = json::array();
  for (const Buckets& each : buckets) {
    if (each.input.empty())
      list.push_back({{"batch", each.sizes}});
    else
      list.push_back({{"input", each.input}, {"dim", each.dim}, {"sizes", each.sizes}, {"crop", each.crop}});
  }
  return list;
}

json versions_json(const VersionPolicy& policy) {
  if (!policy.numbers.empty()) return policy.numbers;
  return policy.latest == 0 ? json("all") : json(format("latest:{}", policy.latest));
}

json keys_json(const ModelOverrides& keys) {
  json object = json::object();
  const auto put = [&](const char* key, const auto& given) {
    if (given) object[key] = *given;
  };
  if (keys.inputs) {
    object["inputs"] = json::array();
    for (const TensorSpec& input : *keys.inputs) object["inputs"].push_back(input_json(input));
  }
  put("outputs", keys.outputs);
  if (keys.state) object["state"] = state_json(*keys.state);
  put("labels", keys.labels_file);
  if (keys.preprocess) object["preprocess"] = preprocess_json(*keys.preprocess);
  if (keys.shapes) object["shapes"] = shapes_json(*keys.shapes);
  if (keys.buckets) object["buckets"] = buckets_json(*keys.buckets);
  put("sparse", keys.sparse);
  put("device", keys.device);
  put("fallback", keys.fallback);
  put("precision", keys.precision);
  put("max_error", keys.max_error);
  put("tuning_ms", keys.tuning_ms);
  put("workers", keys.workers);
  put("contexts", keys.contexts);
  put("threads", keys.threads);
  put("queue_limit", keys.queue_limit);
  put("import_mb", keys.import_mb);
  put("cache_mb", keys.cache_mb);
  put("timeout_ms", keys.timeout_ms);
  put("max_batch", keys.max_batch);
  put("max_delay_ms", keys.max_delay_ms);
  put("run_limit_ms", keys.run_limit_ms);
  put("quarantine_ms", keys.quarantine_ms);
  put("load_timeout_s", keys.load_timeout_s);
  put("memory_mb", keys.memory_mb);
  put("golden", keys.golden_file);
  put("golden_tolerance", keys.golden_tolerance);
  if (keys.versions) object["versions"] = versions_json(*keys.versions);
  return object;
}

template <typename T>
std::optional<T> if_any(const T& value) {
  return value.empty() ? std::nullopt : std::optional(value);
}

ModelOverrides all_keys(const ModelConfig& config) {
  return {.inputs = config.inputs,
          .outputs = config.outputs,
          .state = config.state,
          .labels_file = if_any(config.labels_file),
          .preprocess = config.preprocess,
          .shapes = config.shapes,
          .buckets = if_any(config.buckets),
          .sparse = if_any(config.sparse),
          .device = config.device,
          .fallback = config.fallback,
          .precision = config.precision,
          .tuning_ms = config.tuning_ms,
          .workers = config.workers,
          .contexts = config.contexts,
          .threads = config.threads,
          .queue_limit = config.queue_limit,
          .import_mb = config.import_mb,
          .cache_mb = config.cache_mb,
          .max_batch = config.max_batch,
          .run_limit_ms = config.run_limit_ms,
          .quarantine_ms = config.quarantine_ms,
          .load_timeout_s = config.load_timeout_s,
          .memory_mb = config.memory_mb,
          .max_error = config.max_error,
          .max_delay_ms = config.max_delay_ms,
          .golden_tolerance = config.golden_tolerance,
          .golden_file = if_any(config.golden_file),
          .versions = config.versions,
          .timeout_ms = config.timeout_ms};
}

// ---- checked ----

// All checks below throw this, shoal::Error or one of nlohmann's exceptions. Each parser of a whole text turns them into a
// Status.
struct WrongText : std::runtime_error {
  using std::runtime_error::runtime_error;
};

void insert(toml::table& table, const std::string& key, const json& value);
void append(toml::array& array, const json& value);

template <typename Take>
void convert(const json& value, const Take& take) {
  if (value.is_string()) return take(value.get<std::string>());
  if (value.is_boolean()) return take(value.get<bool>());
  if (value.is_number_float()) return take(value.get<double>());
  if (value.is_number_integer()) {
    if (value.is_number_unsigned() && !std::in_range<std::int64_t>(value.get<std::uint64_t>()))
      throw WrongText("a number is too large");
    return take(value.get<std::int64_t>());
  }
  if (value.is_array()) {
    toml::array array;
    for (const json& element : value) append(array, element);
    return take(std::move(array));
  }
  if (!value.is_object()) throw WrongText("null is not a value of a key");
  toml::table table;
  for (const auto& [key, element] : value.items()) insert(table, key, element);
  take(std::move(table));
}

void insert(toml::table& table, const std::string& key, const json& value) {
  convert(value, [&](auto&& converted) { table.insert(key, std::forward<decltype(converted)>(converted)); });
}

void append(toml::array& array, const json& value) {
  convert(value, [&](auto&& converted) { array.push_back(std::forward<decltype(converted)>(converted)); });
}

toml::table to_table(const json& object) {
  if (!object.is_object()) throw WrongText("keys are not an object");
  toml::table table;
  for (const auto& [key, value] : object.items()) insert(table, key, value);
  return table;
}

ModelOverrides to_keys(const json& object) { return internal::read_keys(kWhere, to_table(object)).value(); }

std::uint64_t to_unsigned(const json& value) {
  if (!value.is_number_unsigned()) throw WrongText("a number is negative, or not whole");
  return value.get<std::uint64_t>();
}

std::filesystem::path to_path(const json& value, bool may_be_empty = false) {
  const auto& text = value.get_ref<const std::string&>();
  std::filesystem::path path = text;
  if ((path.empty() && may_be_empty) || (path.is_absolute() && text.find('\0') == text.npos)) return path;
  throw WrongText("a path is not absolute");
}

// ---- questions and answers ----

json to_json(const ModelRequest& request) {
  return {{"name", request.name}, {"path", request.path}, {"keys", keys_json(request.overrides)}};
}

ModelRequest to_request(const json& object) {
  return {object.at("name").get<std::string>(), object.at("path").get<std::string>(), to_keys(object.at("keys"))};
}

json to_json(const VersionEntry& entry) {
  const ModelFiles& files = entry.model.files;
  if (!entry.failure.ok()) return {{"version", files.version}, {"failure", internal::status_json(entry.failure)}};
  const auto absolute = [](const std::filesystem::path& path) {
    return path.empty() ? std::string() : std::filesystem::absolute(path).string();
  };
  json paths = json::array();
  for (const auto& file : files.files) paths.push_back(absolute(file));
  return {{"version", files.version},
          {"directory", std::filesystem::absolute(files.directory).string()},  // empty is the current one
          {"prefix", files.prefix},
          {"epoch", files.epoch},
          {"files", std::move(paths)},
          {"config_file", absolute(files.config_file)},
          {"keys", keys_json(all_keys(entry.model.config))},
          {"labels", entry.model.labels.size()},
          {"stamp", entry.stamp},
          {"parameter_bytes", entry.parameter_bytes}};
}

/// The lines of an answer that follow its JSON.
class Lines {
 public:
  explicit Lines(std::string_view text) : rest_(text) {}
  bool empty() const { return rest_.empty(); }
  std::vector<std::string> take(std::uint64_t count) {
    if (count > may_follow_) throw WrongText(format("it has more than {} labels", kMostLabels));
    may_follow_ -= count;
    std::vector<std::string> lines;
    for (; count > 0; --count) {
      if (!rest_.starts_with('\n')) throw WrongText("labels are missing");
      const std::size_t end = rest_.find('\n', 1);
      lines.emplace_back(rest_.substr(1, end == rest_.npos ? end : end - 1));
      rest_.remove_prefix(std::min(end, rest_.size()));
    }
    return lines;
  }

 private:
  std::string_view rest_;
  std::uint64_t may_follow_ = kMostLabels;
};

VersionEntry to_entry(const json& object, const ModelRequest& request, Lines& labels) {
  VersionEntry entry = failed_entry(request, {});
  ModelFiles& files = entry.model.files;
  files.version = to_unsigned(object.at("version"));
  if (files.version == 0) throw WrongText("0 is not a version");
  if (object.contains("failure")) {
    entry.failure = internal::to_status(object["failure"]);
    return entry;
  }
  files.directory = to_path(object.at("directory"));
  files.prefix = object.at("prefix").get<std::string>();
  const std::uint64_t epoch = to_unsigned(object.at("epoch"));
  if (!std::in_range<int>(epoch)) throw WrongText("an epoch is too large");
  files.epoch = static_cast<int>(epoch);
  for (const json& file : object.at("files")) files.files.push_back(to_path(file));
  if (files.files.empty()) throw WrongText("a version has no files");
  files.config_file = to_path(object.at("config_file"), true);
  apply_overrides(to_keys(object.at("keys")), entry.model.config);
  apply_overrides(request.overrides, entry.model.config);
  entry.model.labels = labels.take(to_unsigned(object.at("labels")));
  entry.stamp = object.at("stamp").get<std::string>();
  entry.parameter_bytes = to_unsigned(object.at("parameter_bytes"));
  return entry;
}

json limits_json(const ClientLimits& limits) {
  json object = json::object();
  internal::for_each_limit([&](std::string_view key, int ClientLimits::*member) { object[std::string(key)] = limits.*member; });
  return object;
}

// Numbers only: the names were looked up.
json access_json(const AccessRules& access) {
  const auto list = [](const Accounts& accounts) {
    json entries = json::array();
    for (const std::uint32_t user : accounts.users) entries.push_back(format("uid:{}", user));
    for (const std::uint32_t group : accounts.groups) entries.push_back(format("gid:{}", group));
    return entries;
  };
  json roles = {{"none", list(access.none)}};
  for (std::size_t role = 0; role < kRoles; ++role) roles[std::string(kRoleNames[role])] = list(access.roles[role]);
  json object = {{"roles", std::move(roles)}};
  if (access.socket_group) object["socket_group"] = format("gid:{}", *access.socket_group);
  return object;
}

AccessRules to_access(const json& object) {
  AccessRules access;
  const toml::table table = to_table(object);
  const toml::table* roles = table["roles"].as_table();
  if (!roles) throw WrongText("it has no roles");
  const Status read = internal::read_roles(kWhere, *roles, false, access);
  const toml::node* group = table.get("socket_group");
  const Status read_group = group ? internal::read_socket_group(kWhere, *group, false, access) : Status();
  if (!read.ok() || !read_group.ok()) throw WrongText((read.ok() ? read_group : read).message());
  return access;
}

Status unreadable(const std::exception& error) { return internal_error("{} cannot be read: {}", kWhere, error.what()); }

}  // namespace

std::string question_text(const ModelRequest& request) { return json_text({{"model", to_json(request)}}); }
std::string question_text(const std::filesystem::path& configuration) {
  return json_text({{"configuration", configuration.string()}});
}

Result<FileQuestion> parse_question(std::string_view text) try {
  const json object = parse_json(text);
  if (object.contains("configuration")) return FileQuestion{.model = {}, .configuration = to_path(object["configuration"])};
  return FileQuestion{.model = to_request(object.at("model")), .configuration = {}};
} catch (const std::exception& error) {
  return invalid_argument("the question for files cannot be read: {}", error.what());
}

namespace {

Result<std::string> entries_answer(const ModelRequest& request) {
  const std::vector<VersionEntry> entries = find_entries(request);
  if (entries.size() > kMostVersions) {
    return invalid_argument("model '{}': {} has {} versions to serve (at most {}): choose some of them with `versions`",
                            request.name, request.path, entries.size(), kMostVersions);
  }
  json list = json::array();
  for (const VersionEntry& entry : entries) list.push_back(to_json(entry));
  std::string text = json_text({{"entries", std::move(list)}});
  std::size_t labels = 0;
  for (const VersionEntry& entry : entries) {
    labels += entry.model.labels.size();
    if (labels > kMostLabels) {
      return invalid_argument(
          "model '{}': with the lines of {}, its versions have {} labels (at most {}): serve fewer versions, "
          "or give them fewer labels",
          request.name, labels_path(entry.model.files, entry.model.config).string(), labels, kMostLabels);
    }
    for (const std::string& label : entry.model.labels) text.append(1, '\n').append(label);
  }
  if (text.size() <= kLargestAnswerBytes) return text;
  return invalid_argument(
      "model '{}': model.toml and the labels of its versions at {} need {} bytes (at most {}): serve fewer versions, or give "
      "them fewer labels",
      request.name, request.path, text.size(), kLargestAnswerBytes);
}

Result<std::string> configuration_answer(const std::filesystem::path& file) {
  SHOAL_ASSIGN_OR_RETURN(const std::string text, read_text_file(file));
  SHOAL_ASSIGN_OR_RETURN(const DaemonConfig config, parse_daemon_config(text, file.string(), file.parent_path()));
  json models = json::array();
  for (const ModelRequest& model : config.models) models.push_back(to_json(model));
  std::string answer =
      json_text({{"models", models}, {"limits", limits_json(config.limits)}, {"access", access_json(config.access)}});
  if (answer.size() <= kLargestAnswerBytes) return answer;
  return invalid_argument("{} has too much content: {} bytes (at most {})", file.string(), answer.size(), kLargestAnswerBytes);
}

}  // namespace

std::string answer(const FileQuestion& question) {
  auto text = question.model.name.empty() ? configuration_answer(question.configuration) : entries_answer(question.model);
  return text.ok() ? *std::move(text) : failure_text(text.status());
}

std::string failure_text(const Status& failure) { return json_text({{"failure", internal::status_json(failure)}}); }

Result<std::vector<VersionEntry>> parse_entries(std::string_view text, const ModelRequest& request) try {
  const std::size_t end = std::min(text.find('\n'), text.size());
  const json object = parse_json(text.substr(0, end));
  Lines labels(text.substr(end));
  if (object.contains("failure")) return std::vector{failed_entry(request, internal::to_status(object["failure"]))};
  std::vector<VersionEntry> entries;
  for (const json& each : object.at("entries")) {
    VersionEntry entry = to_entry(each, request, labels);
    if (!entries.empty() && entry.model.files.version <= entries.back().model.files.version)
      throw WrongText("versions do not ascend");
    entries.push_back(std::move(entry));
  }
  if (entries.empty() || entries.size() > kMostVersions) throw WrongText(format("it has {} versions", entries.size()));
  if (!labels.empty()) throw WrongText("it has more labels than its versions");
  return entries;
} catch (const std::exception& error) {
  return unreadable(error).with_context(format("model '{}' at {}", request.name, request.path));
}

Result<DaemonConfig> parse_configuration(std::string_view text) try {
  const json object = parse_json(text);
  if (object.contains("failure")) return internal::to_status(object["failure"]);
  DaemonConfig config;
  std::set<std::string> names;
  for (const json& model : object.at("models")) {
    ModelRequest request = to_request(model);
    SHOAL_RETURN_IF_ERROR(internal::check_name(request.name, kWhere));
    if (request.path.empty()) throw WrongText("a model has no path");
    if (!names.insert(request.name).second) throw WrongText("a model is listed twice");
    config.models.push_back(std::move(request));
  }
  config.limits = internal::read_limits(kWhere, to_table(object.at("limits"))).value();
  config.access = to_access(object.at("access"));
  return config;
} catch (const std::exception& error) {
  return unreadable(error);
}

}  // namespace shoal
