#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>

#include "shm/base/errors.hpp"
#include "shm/base/shortened.hpp"
#include "shm/base/url.hpp"
#include "shm/model/model_config.hpp"
#include "shm/model/toml_keys.hpp"
#include "shm/model/version_entry.hpp"
#include "shm/tensor/spec.hpp"

namespace shoal {
namespace {

/// Removes the text before the first `separator` and returns it; all of `text` if there is no separator.
std::string_view cut(std::string_view& text, char separator) {
  const std::string_view head = text.substr(0, text.find(separator));
  text.remove_prefix(std::min(head.size() + 1, text.size()));
  return head;
}

constexpr std::size_t kLongestArgument = 16 * 1024;
constexpr std::size_t kShownBytes = 200;  // of a text in an error

bool is_model_name(std::string_view name) {
  const auto allowed = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '-'; };
  return !name.empty() && name.size() <= kLongestModelName && std::all_of(name.begin(), name.end(), allowed);
}

/// "?x3x224..640x224" -> {-1, 3, -1, 224} and the range; "scalar" -> {}, "any" -> any().
Status parse_shape(std::string_view text, const std::string& where, TensorSpec& spec) {
  if (text.empty()) return invalid_argument("{}: write NAME:SHAPE, as in data:1x3x224x224", where);
  std::vector<std::int64_t> dims;
  if (text == Shape::any().to_string()) return {};
  if (text == Shape().to_string()) text = {};
  while (!text.empty()) {
    const std::string_view dim = cut(text, 'x');
    spec.ranges.emplace_back();
    if (dim.find("..") != std::string_view::npos && dims.size() < kMaxRank) {
      auto range = parse_range(dim);
      if (!range) return range.status().with_context(where);
      spec.ranges.back() = *range;
      dims.push_back(-1);
      continue;
    }
    std::int64_t number = -1;
    const auto [end, error] = std::from_chars(dim.data(), dim.data() + dim.size(), number);
    const bool is_number = error == std::errc() && end == dim.data() + dim.size() && number >= -1;
    if ((dim != "?" && !is_number) || dims.size() == kMaxRank) {
      return invalid_argument("{}: write a shape as ?x3x224x224, with at most {} dimensions", where, kMaxRank);
    }
    dims.push_back(number);
  }
  spec.shape = Shape(dims);
  if (std::ranges::all_of(spec.ranges, [](const DimRange& range) { return range == DimRange(); })) spec.ranges.clear();
  return {};
}

/// "data:?x3x224x224:float32"; the dtype may be left out.
Result<TensorSpec> parse_spec(std::string_view text, const std::string& where) {
  TensorSpec spec;
  spec.name = cut(text, ':');
  SHOAL_RETURN_IF_ERROR(parse_shape(cut(text, ':'), where, spec));
  if (!text.empty()) {
    auto dtype = parse_dtype(text);
    if (!dtype) return dtype.status().with_context(where);
    spec.dtype = *dtype;
  }
  if (spec.name.empty()) return invalid_argument("{}: write NAME:SHAPE, as in data:1x3x224x224", where);
  return spec;
}

/// Parses "1:2:4:8". Nothing for other texts.
std::optional<toml::array> parse_numbers(std::string_view text) {
  toml::array numbers;
  while (!text.empty()) {
    const std::string_view word = cut(text, ':');
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
    if (error != std::errc() || end != word.data() + word.size()) return std::nullopt;
    numbers.push_back(number);
  }
  return numbers;
}

/// A value of the command line as TOML: a number if it is one, else a string.
Status read_text_key(const std::string& where, std::string_view key, std::string_view text, ModelOverrides& overrides) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc() && end == text.data() + text.size()) {
    return internal::read_key(where, key, toml::value<std::int64_t>(number), overrides);
  }
  double fraction = 0;
  const auto [stop, trouble] = std::from_chars(text.data(), text.data() + text.size(), fraction);
  if (trouble == std::errc() && stop == text.data() + text.size() && std::isfinite(fraction)) {
    return internal::read_key(where, key, toml::value<double>(fraction), overrides);
  }
  return internal::read_key(where, key, toml::value<std::string>(std::string(text)), overrides);
}

/// If the last set already has a shape of that input, a second `shape=` begins a new set.
void add_to_sets(TensorSpec spec, std::vector<std::vector<TensorSpec>>& sets) {
  const auto same_name = [&](const TensorSpec& other) { return other.name == spec.name; };
  if (sets.empty() || std::any_of(sets.back().begin(), sets.back().end(), same_name)) sets.emplace_back();
  sets.back().push_back(std::move(spec));
}

Status read_argument_key(const std::string& where, std::string_view key, std::string_view value, ModelOverrides& overrides) {
  if (key == "input" || key == "shape") {
    SHOAL_ASSIGN_OR_RETURN(TensorSpec spec, parse_spec(value, where));
    if (key == "input") {
      if (!overrides.inputs) overrides.inputs.emplace();
      overrides.inputs->push_back(std::move(spec));
      return {};
    }
    if (!overrides.shapes) overrides.shapes.emplace();
    if (spec.shape.element_count() < 0) return invalid_argument("{}: a shape must give every dimension", where);
    add_to_sets(std::move(spec), *overrides.shapes);
    return {};
  }
  if (key == "buckets" || key == "versions") {  // 1:2:4:8
    if (const auto numbers = parse_numbers(value)) return internal::read_key(where, key, *numbers, overrides);
    if (key == "buckets") return invalid_argument("{}: 'buckets' must be sizes of the batch, as in 1:2:4:8", where);
  }
  if (key == "preset") {
    auto preset = preprocess_preset(std::string(value));
    if (!preset) return preset.status().with_context(where);
    overrides.preprocess = *preset;
    return {};
  }
  return read_text_key(where, key, value, overrides);
}

}  // namespace

Status internal::check_name(const std::string& name, const std::string& where) {
  if (is_model_name(name)) return {};
  return invalid_argument("{}: '{}' is not a model name: use 1 to {} letters, digits, '.', '_' and '-'", where,
                          name.substr(0, kLongestModelName), kLongestModelName);
}

Result<ModelRequest> parse_model_argument(const std::string& text) {
  if (text.size() > kLongestArgument)
    return invalid_argument("model argument '{}' has {} bytes; at most {} are possible: write a model.toml",
                            shortened(text, kShownBytes), text.size(), kLongestArgument);
  std::string_view rest = text;
  const std::string_view assignment = cut(rest, ',');
  std::string_view path = assignment;
  ModelRequest request;
  request.name = cut(path, '=');
  request.path = path;
  SHOAL_RETURN_IF_ERROR(check_url(path));
  const std::string where = format("model argument '{}'", shortened(assignment, kShownBytes));
  SHOAL_RETURN_IF_ERROR(internal::check_name(request.name, where));
  if (path.empty()) return invalid_argument("{}: write NAME=PATH[,workers=4,...]", where);
  while (!rest.empty()) {
    const std::string_view item = cut(rest, ',');
    std::string_view value = item;
    const std::string_view key = cut(value, '=');
    const std::string where_key = format("{}: '{}'", where, shortened(item, kShownBytes));
    if (value.empty()) return invalid_argument("{} has no value (KEY=VALUE)", where_key);
    SHOAL_RETURN_IF_ERROR(read_argument_key(where_key, key, value, request.overrides));
  }
  return request;
}

namespace {

Result<ModelRequest> parse_model_table(const std::string& name, toml::node& node, const std::string& where,
                                       const std::filesystem::path& directory) {
  ModelRequest request;
  request.name = name;
  SHOAL_RETURN_IF_ERROR(internal::check_name(request.name, where));
  toml::table* model = node.as_table();
  if (!model) return internal::error_at(where, node, format("'models.{}' must be a table", request.name));
  toml::node* given = model->get("path");
  if (!given) return internal::error_at(where, node, format("[models.{}] has no 'path'", request.name));
  const auto path = given->value_exact<std::string>();
  if (!path || path->empty())
    return internal::error_at(where, *given, format("[models.{}]: 'path' must be a string", request.name));
  if (const Status url = check_url(*path); !url.ok())
    return internal::error_at(where, *given, format("[models.{}]: {}", request.name, url.message()));
  const bool is_file = !path->starts_with(kBuiltinPrefix) && url_scheme(*path).empty();
  request.path = is_file ? (directory / *path).string() : *path;
  model->erase("path");
  auto keys = internal::read_keys(where, *model);
  if (!keys) return keys.status().with_context(format("[models.{}]", request.name));
  request.overrides = *std::move(keys);
  return request;
}

}  // namespace

Result<DaemonConfig> parse_daemon_config(const std::string& text, const std::string& where,
                                         const std::filesystem::path& directory) {
  SHOAL_ASSIGN_OR_RETURN(toml::table table, internal::parse_toml(text, where));
  DaemonConfig config;
  for (auto& [key, node] : table) {
    if (key == "socket_group") {
      SHOAL_RETURN_IF_ERROR(internal::read_socket_group(where, node, true, config.access));
      continue;
    }
    if (key != "models" && key != "limits" && key != "roles") {
      return internal::error_at(
          where, node,
          format("'{}' is not a key of the daemon's configuration; there are [models.NAME], [limits], [roles] "
                 "and, before them, socket_group",
                 key.str()));
    }
    toml::table* tables = node.as_table();
    if (!tables)
      return internal::error_at(where, node,
                                format("'{}' must be a table: [{}{}]", key.str(), key.str(), key == "models" ? ".NAME" : ""));
    if (key == "limits") {
      SHOAL_ASSIGN_OR_RETURN(config.limits, internal::read_limits(where, *tables));
      continue;
    }
    if (key == "roles") {
      SHOAL_RETURN_IF_ERROR(internal::read_roles(where, *tables, true, config.access));
      continue;
    }
    for (auto& [name, model] : *tables) {
      SHOAL_ASSIGN_OR_RETURN(ModelRequest request, parse_model_table(std::string(name.str()), model, where, directory));
      config.models.push_back(std::move(request));
    }
  }
  return config;
}

Result<std::vector<ServedVersion>> resolve_versions(const ModelRequest& request) {
  const std::string context = format("model '{}'", request.name);
  const auto resolve = [&](const ModelFiles& files) -> Result<ServedModel> {
    ServedModel model{request.name, request.path, files, {}, {}};
    SHOAL_ASSIGN_OR_RETURN(model.config, read_model_config(model.files));
    apply_overrides(request.overrides, model.config);
    SHOAL_ASSIGN_OR_RETURN(model.labels, read_labels(model.files, model.config));
    return model;
  };
  const auto find = [&]() -> Result<std::vector<FoundVersion>> {
    VersionPolicy policy = request.overrides.versions.value_or(VersionPolicy());
    if (const auto shared = shared_config_file(request.path); !shared.empty() && !request.overrides.versions) {
      SHOAL_ASSIGN_OR_RETURN(const ModelConfig config, read_model_config({.config_file = shared}));
      policy = config.versions;
    }
    return find_versions(request.path, policy);
  };
  auto found = find();
  if (!found) return found.status().with_context(context);
  std::vector<ServedVersion> versions;
  for (const FoundVersion& version : *found) {
    auto model = version.files ? resolve(*version.files) : Result<ServedModel>(version.files.status());
    if (!model) model = model.status().with_context(context);
    versions.push_back({version.number, std::move(model)});
  }
  return versions;
}

}  // namespace shoal
