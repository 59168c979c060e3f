#include "shm/model/toml_keys.hpp"

#include <algorithm>
#include <charconv>
#include <limits>
#include <set>
#include <utility>

#include "shm/base/errors.hpp"
#include "shm/model/toml_site.hpp"
#include "shm/model/version_entry.hpp"
#include "shm/tensor/spec.hpp"

namespace shoal::internal {
namespace {

/// Reads a dimension of an input: a size, -1 for any size, or a range of sizes in quotes, "224..640".
Status read_dim(const Site& site, std::vector<std::int64_t>& dims, std::vector<DimRange>& ranges) {
  dims.push_back(-1);
  ranges.emplace_back();
  if (!site.node.is_string()) {
    SHOAL_ASSIGN_OR_RETURN(dims.back(), read_integer(site, -1, std::numeric_limits<std::int64_t>::max()));
    return {};
  }
  SHOAL_ASSIGN_OR_RETURN(const std::string text, read_string(site));
  auto range = parse_range(text);
  if (!range) return site.error(format("is wrong: {}", range.status().message()));
  ranges.back() = *range;
  return {};
}

/// Reads the shape, and the ranges if there are any.
Status read_open_shape(const Site& site, TensorSpec& spec) {
  if (site.node.value<std::string>() == Shape::any().to_string()) return {};
  const toml::array* array = site.node.as_array();
  if (!array) return site.error("must be a list of dimensions such as [-1, 3, 224, \"224..640\"], or \"any\"");
  if (array->size() > kMaxRank) return site.error(format("has {} dimensions; at most {} are possible", array->size(), kMaxRank));
  std::vector<std::int64_t> dims;
  for (const toml::node& element : *array) SHOAL_RETURN_IF_ERROR(read_dim(site.at(element, site.key), dims, spec.ranges));
  spec.shape = Shape(dims);
  if (std::ranges::all_of(spec.ranges, [](const DimRange& range) { return range == DimRange(); })) spec.ranges.clear();
  return {};
}

/// Reads a shape of `shapes`. The caller checks that every dimension is given.
Result<Shape> read_shape(const Site& site) {
  const toml::array* array = site.node.as_array();
  if (!array) return site.error("must be a list of dimensions such as [-1, 3, 224, 224]");
  if (array->size() > kMaxRank) return site.error(format("has {} dimensions; at most {} are possible", array->size(), kMaxRank));
  std::vector<std::int64_t> dims;
  for (const toml::node& element : *array) {
    SHOAL_ASSIGN_OR_RETURN(const std::int64_t dim,
                           read_integer(site.at(element, site.key), -1, std::numeric_limits<std::int64_t>::max()));
    dims.push_back(dim);
  }
  return Shape(dims);
}

/// "layout" names the dimensions by letters.
Result<std::string> read_layout(const Site& site, const Shape& shape) {
  SHOAL_ASSIGN_OR_RETURN(std::string layout, read_string(site));
  if (static_cast<int>(layout.size()) == shape.rank() && std::set<char>(layout.begin(), layout.end()).size() == layout.size())
    return layout;
  return site.error(
      format("is \"{}\"; it must have one letter, each different, for each of the {} dimensions", layout, shape.rank()));
}

Result<TensorSpec> read_input(const Site& site) {
  const toml::table* table = site.node.as_table();
  if (!table) return site.error("must be tables such as {name = \"data\", shape = [-1, 3, 224, 224]}");
  TensorSpec spec;
  const toml::node* layout = nullptr;
  for (const auto& [key, node] : *table) {
    const Site child = site.at(node, format("{}.{}", site.key, key.str()));
    if (key == "name") {
      SHOAL_ASSIGN_OR_RETURN(spec.name, read_string(child));
    } else if (key == "shape") {
      SHOAL_RETURN_IF_ERROR(read_open_shape(child, spec));
    } else if (key == "dtype") {
      SHOAL_ASSIGN_OR_RETURN(const std::string name, read_string(child));
      auto dtype = parse_dtype(name);
      if (!dtype) return child.error(format("is wrong: {}", dtype.status().message()));
      spec.dtype = *dtype;
    } else if (key == "layout") {
      layout = &node;
    } else {
      return child.error("is not a key of an input (name, shape, dtype, layout)");
    }
  }
  if (spec.name.empty()) return site.error("has an input without a name");
  if (!table->contains("shape")) return site.error(format("has an input '{}' without a shape", spec.name));
  if (layout) {
    SHOAL_ASSIGN_OR_RETURN(spec.layout, read_layout(site.at(*layout, site.key + ".layout"), spec.shape));
  }
  return spec;
}

Result<std::vector<TensorSpec>> read_inputs(const Site& site) {
  const toml::array* array = site.node.as_array();
  if (!array) return site.error("must be a list such as [{name = \"data\", shape = [-1, 3, 224, 224]}]");
  SHOAL_RETURN_IF_ERROR(site.check_count(array->size()));
  std::vector<TensorSpec> inputs;
  std::set<std::string> names;
  for (const toml::node& element : *array) {
    SHOAL_ASSIGN_OR_RETURN(TensorSpec spec, read_input(site.at(element, site.key)));
    if (!names.insert(spec.name).second) return site.at(element, site.key).error(format("names '{}' twice", spec.name));
    inputs.push_back(std::move(spec));
  }
  return inputs;
}

Result<std::vector<std::string>> read_outputs(const Site& site) {
  const toml::array* array = site.node.as_array();
  if (!array) return site.error("must be a list of names");
  SHOAL_RETURN_IF_ERROR(site.check_count(array->size()));
  std::vector<std::string> names;
  for (const toml::node& element : *array) {
    SHOAL_ASSIGN_OR_RETURN(std::string name, read_string(site.at(element, site.key)));
    if (std::ranges::count(names, name) > 0) return site.at(element, site.key).error(format("names '{}' twice", name));
    names.push_back(std::move(name));
  }
  return names;
}

Result<StatePair> read_state_pair(const Site& site) {
  const toml::table* table = site.node.as_table();
  if (!table) return site.error("must be tables such as {out = \"h_out\", in = \"h_in\", shape = [-1, 256]}");
  StatePair pair;
  for (const auto& [key, node] : *table) {
    const Site child = site.at(node, format("{}.{}", site.key, key.str()));
    if (key == "out") {
      SHOAL_ASSIGN_OR_RETURN(pair.out, read_string(child));
    } else if (key == "in") {
      SHOAL_ASSIGN_OR_RETURN(pair.in, read_string(child));
    } else if (key == "shape") {
      SHOAL_ASSIGN_OR_RETURN(pair.shape, read_shape(child));
    } else if (key == "batch_input") {
      SHOAL_ASSIGN_OR_RETURN(pair.batch_input, read_string(child));
    } else if (key == "batch_axis") {
      SHOAL_ASSIGN_OR_RETURN(const std::int64_t axis, read_integer(child, 0, kMaxRank - 1));
      pair.batch_axis = static_cast<int>(axis);
    } else {
      return child.error("is not a key of a state (out, in, shape, batch_input, batch_axis)");
    }
  }
  if (pair.out.empty() || pair.in.empty()) return site.error("must have 'out' and 'in' in each table");
  return pair;
}

Result<std::vector<StatePair>> read_state(const Site& site) {
  const toml::array* array = site.node.as_array();
  if (!array) return site.error("must be a list such as [{out = \"h_out\", in = \"h_in\", shape = [-1, 256]}]");
  SHOAL_RETURN_IF_ERROR(site.check_count(array->size()));
  std::vector<StatePair> state;
  for (const toml::node& element : *array) {
    const Site child = site.at(element, site.key);
    SHOAL_ASSIGN_OR_RETURN(StatePair pair, read_state_pair(child));
    if (std::ranges::count(state, pair.out, &StatePair::out) > 0) return child.error(format("names '{}' twice", pair.out));
    if (std::ranges::count(state, pair.in, &StatePair::in) > 0) return child.error(format("names '{}' twice", pair.in));
    state.push_back(std::move(pair));
  }
  return state;
}

/// The states that do not say where the batch is take it from the first input that is no state and has a `layout` with N. Both
/// keys have been read.
void use_layouts(const toml::table& keys, std::vector<StatePair>& state) {
  const toml::array *const inputs = keys["inputs"].as_array(), *const pairs = keys["state"].as_array();
  for (std::size_t i = 0; inputs && pairs && i < inputs->size(); ++i) {
    const toml::table& input = *inputs->get_as<toml::table>(i);
    const auto name = input["name"].value_or(std::string());
    const std::size_t axis = input["layout"].value_or(std::string()).find('N');
    if (axis == std::string::npos || std::ranges::count(state, name, &StatePair::in) > 0) continue;
    for (std::size_t k = 0; k < state.size(); ++k) {
      const toml::table& pair = *pairs->get_as<toml::table>(k);
      if (pair.contains("batch_input") || pair.contains("batch_axis")) continue;
      state[k].batch_input = name;
      state[k].batch_axis = static_cast<int>(axis);
    }
    return;
  }
}

/// Reads [{data = [1, 3, 224, 224]}, {data = [4, 3, 224, 224]}]: one table per set of inputs. The dtype comes from `inputs`.
Result<std::vector<std::vector<TensorSpec>>> read_shapes(const Site& site) {
  const toml::array* array = site.node.as_array();
  if (!array) return site.error("must be a list such as [{data = [1, 3, 224, 224]}, {data = [8, 3, 224, 224]}]");
  SHOAL_RETURN_IF_ERROR(site.check_count(array->size()));
  std::vector<std::vector<TensorSpec>> sets;
  for (const toml::node& element : *array) {
    const Site child = site.at(element, site.key);
    const toml::table* table = element.as_table();
    if (!table || table->empty()) return child.error("must be tables such as {data = [1, 3, 224, 224]}");
    SHOAL_RETURN_IF_ERROR(child.check_count(table->size()));
    std::vector<TensorSpec>& set = sets.emplace_back();
    for (const auto& [name, node] : *table) {
      SHOAL_ASSIGN_OR_RETURN(const Shape shape, read_shape(site.at(node, format("{}.{}", site.key, name.str()))));
      if (shape.element_count() < 0)
        return child.error(format("of '{}' is {}: every dimension must be given here", name.str(), shape.to_string()));
      set.push_back({std::string(name.str()), DType::kFloat32, shape});
    }
  }
  return sets;
}

/// Reads {data = "csr"}.
Result<std::map<std::string, std::string>> read_sparse(const Site& site) {
  const toml::table* table = site.node.as_table();
  if (!table) return site.error("must be a table such as {data = \"csr\"}");
  SHOAL_RETURN_IF_ERROR(site.check_count(table->size()));
  std::map<std::string, std::string> sparse;
  for (const auto& [name, node] : *table) {
    const Site child = site.at(node, format("{}.{}", site.key, name.str()));
    SHOAL_ASSIGN_OR_RETURN(const std::string storage, read_string(child));
    if (storage != "csr" && storage != "row_sparse") return child.error("must be \"csr\" or \"row_sparse\"");
    sparse[std::string(name.str())] = storage;
  }
  return sparse;
}

Result<std::vector<std::int64_t>> read_sizes(const Site& site) {
  const toml::array* array = site.node.as_array();
  if (!array || array->empty()) return site.error("must be a list of sizes such as [1, 2, 4, 8]");
  SHOAL_RETURN_IF_ERROR(site.check_count(array->size()));
  std::vector<std::int64_t> sizes;
  for (const toml::node& element : *array) {
    SHOAL_ASSIGN_OR_RETURN(const std::int64_t size, read_integer(site.at(element, site.key), 1, 1 << 24));
    if (!sizes.empty() && size <= sizes.back()) return site.error("must have sizes in ascending order");
    sizes.push_back(size);
  }
  return sizes;
}

Result<std::map<std::string, int>> read_crop_dims(const Site& site) {
  const toml::table* table = site.node.as_table();
  if (!table) return site.error("must be a table such as {prob_output = 1}: the dimension of each output that is cut back");
  SHOAL_RETURN_IF_ERROR(site.check_count(table->size()));
  std::map<std::string, int> crop;
  for (const auto& [output, node] : *table) {
    SHOAL_ASSIGN_OR_RETURN(const std::int64_t dim, read_integer(site.at(node, site.key), 0, kMaxRank - 1));
    crop[std::string(output.str())] = static_cast<int>(dim);
  }
  return crop;
}

/// Reads {input = "data", dim = 1, sizes = [16, 32, 64], crop = {prob_output = 1}}.
Result<Buckets> read_bucket_table(const Site& site, const toml::table& table) {
  Buckets buckets;
  for (const auto& [key, node] : table) {
    const Site child = site.at(node, format("{}.{}", site.key, key.str()));
    if (key == "input") {
      SHOAL_ASSIGN_OR_RETURN(buckets.input, read_string(child));
    } else if (key == "dim") {
      SHOAL_ASSIGN_OR_RETURN(const std::int64_t dim, read_integer(child, 1, kMaxRank - 1));
      buckets.dim = static_cast<int>(dim);
    } else if (key == "sizes") {
      SHOAL_ASSIGN_OR_RETURN(buckets.sizes, read_sizes(child));
    } else if (key == "crop") {
      SHOAL_ASSIGN_OR_RETURN(buckets.crop, read_crop_dims(child));
    } else {
      return child.error("is not a key of a bucket (input, dim, sizes, crop; or batch alone)");
    }
  }
  if (buckets.input.empty() || buckets.dim == 0 || buckets.sizes.empty()) {
    return site.error(
        "must have 'input', 'dim' and 'sizes' in each table; the sizes of the batch are a list: buckets = [1, 2, 4, 8]");
  }
  return buckets;
}

/// Reads [1, 2, 4, 8] for the batch, or a list of tables: {batch = [1, 2, 4, 8]}, and tables for other dimensions.
Result<std::vector<Buckets>> read_buckets(const Site& site) {
  const toml::array* array = site.node.as_array();
  if (!array || array->empty() || !(*array)[0].is_table()) {
    SHOAL_ASSIGN_OR_RETURN(std::vector<std::int64_t> sizes, read_sizes(site));
    return std::vector<Buckets>{{.sizes = std::move(sizes)}};
  }
  SHOAL_RETURN_IF_ERROR(site.check_count(array->size()));
  std::vector<Buckets> all;
  std::set<std::pair<std::string, int>> dims;
  for (const toml::node& element : *array) {
    const Site child = site.at(element, site.key);
    const toml::table* table = element.as_table();
    if (!table) return child.error("must be sizes of the batch, or tables such as {input = \"data\", dim = 1, sizes = [16, 32]}");
    Buckets buckets;
    if (const toml::node* batch = table->get("batch"); batch && table->size() == 1) {
      SHOAL_ASSIGN_OR_RETURN(buckets.sizes, read_sizes(site.at(*batch, "buckets.batch")));
    } else {
      SHOAL_ASSIGN_OR_RETURN(buckets, read_bucket_table(child, *table));
    }
    if (!dims.emplace(buckets.input, buckets.dim).second) {
      return child.error(buckets.input.empty() ? "has sizes of the batch twice"
                                               : format("has sizes of dimension {} of '{}' twice", buckets.dim, buckets.input));
    }
    all.push_back(std::move(buckets));
  }
  return all;
}

/// Reads one number for all channels, or one per channel.
Result<std::string> read_fallback(const Site& site) {
  SHOAL_ASSIGN_OR_RETURN(std::string word, read_string(site));
  if (word != "cpu" && word != "error") return site.error("must be \"cpu\" or \"error\"");
  return word;
}

Result<std::string> read_precision(const Site& site) {
  SHOAL_ASSIGN_OR_RETURN(std::string word, read_string(site));
  for (const std::string_view known : {"f32", "f32-fast", "bf16", "auto"}) {
    if (word == known) return word;
  }
  return site.error("must be \"f32\", \"f32-fast\", \"bf16\" or \"auto\"");
}

Result<double> read_number(const Site& site, double low, double high) {
  const auto number = site.node.is_number() ? site.node.value<double>() : std::nullopt;
  if (!number || !(*number >= low && *number <= high)) return site.error(format("must be a number from {} to {}", low, high));
  return *number;
}

/// Reads "latest", "latest:2", "all", or a list of numbers.
Result<VersionPolicy> read_versions(const Site& site) {
  const auto wrong = [&] { return site.error("must be \"latest\", \"latest:N\", \"all\" or a list of version numbers"); };
  VersionPolicy policy;
  if (const toml::array* array = site.node.as_array(); array && !array->empty()) {
    SHOAL_RETURN_IF_ERROR(site.check_count(array->size(), kMostVersions));
    for (const toml::node& element : *array) {
      SHOAL_ASSIGN_OR_RETURN(const std::int64_t number,
                             read_integer(site.at(element, site.key), 1, std::numeric_limits<std::int64_t>::max()));
      policy.numbers.push_back(static_cast<std::uint64_t>(number));
    }
    return policy;
  }
  const std::string text = site.node.value_exact<std::string>().value_or("");
  constexpr std::string_view kLatest = "latest:";
  if (text == "latest") return policy;
  if (text == "all") return VersionPolicy{.latest = 0, .numbers = {}};
  if (!text.starts_with(kLatest)) return wrong();
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data() + kLatest.size(), end, policy.latest);
  if (error != std::errc() || rest != end || policy.latest < 1) return wrong();
  return policy;
}

template <typename T, typename Read>
Status assign(std::optional<T>& member, const Read& value) {
  if (!value.ok()) return value.status();
  member = static_cast<T>(*value);
  return {};
}

using KeyReader = Status (*)(const Site& site, ModelOverrides& overrides);
struct KeyRow {
  std::string_view key;
  KeyReader read;
};
constexpr std::int64_t kMaxProcesses = 1024;
constexpr std::int64_t kMaxLanes = 64;  // lines of a worker's status page
constexpr std::int64_t kMaxBatch = 256;

const KeyRow kKeys[] = {
    {"inputs", [](const Site& s, ModelOverrides& o) { return assign(o.inputs, read_inputs(s)); }},
    {"outputs", [](const Site& s, ModelOverrides& o) { return assign(o.outputs, read_outputs(s)); }},
    {"state", [](const Site& s, ModelOverrides& o) { return assign(o.state, read_state(s)); }},
    {"labels", [](const Site& s, ModelOverrides& o) { return assign(o.labels_file, read_string(s)); }},
    {"preprocess", [](const Site& s, ModelOverrides& o) { return assign(o.preprocess, read_preprocess(s.where, s.node)); }},
    {"shapes", [](const Site& s, ModelOverrides& o) { return assign(o.shapes, read_shapes(s)); }},
    {"device", [](const Site& s, ModelOverrides& o) { return assign(o.device, read_string(s)); }},
    {"fallback", [](const Site& s, ModelOverrides& o) { return assign(o.fallback, read_fallback(s)); }},
    {"precision", [](const Site& s, ModelOverrides& o) { return assign(o.precision, read_precision(s)); }},
    {"max_error", [](const Site& s, ModelOverrides& o) { return assign(o.max_error, read_number(s, 0, 1)); }},
    {"tuning_ms", [](const Site& s, ModelOverrides& o) { return assign(o.tuning_ms, read_integer(s, 0, 120'000)); }},
    {"workers", [](const Site& s, ModelOverrides& o) { return assign(o.workers, read_integer(s, 1, kMaxProcesses)); }},
    {"contexts", [](const Site& s, ModelOverrides& o) { return assign(o.contexts, read_integer(s, 1, kMaxLanes)); }},
    {"threads", [](const Site& s, ModelOverrides& o) { return assign(o.threads, read_integer(s, 1, kMaxProcesses)); }},
    {"queue_limit", [](const Site& s, ModelOverrides& o) { return assign(o.queue_limit, read_integer(s, 1, 1'000'000)); }},
    {"import_mb", [](const Site& s, ModelOverrides& o) { return assign(o.import_mb, read_integer(s, 1, 1'000'000)); }},
    {"buckets", [](const Site& s, ModelOverrides& o) { return assign(o.buckets, read_buckets(s)); }},
    {"sparse", [](const Site& s, ModelOverrides& o) { return assign(o.sparse, read_sparse(s)); }},
    {"cache_mb", [](const Site& s, ModelOverrides& o) { return assign(o.cache_mb, read_integer(s, 0, 1 << 20)); }},
    {"timeout_ms", [](const Site& s, ModelOverrides& o) { return assign(o.timeout_ms, read_integer(s, 0, 86'400'000)); }},
    {"max_batch", [](const Site& s, ModelOverrides& o) { return assign(o.max_batch, read_integer(s, 1, kMaxBatch)); }},
    {"max_delay_ms", [](const Site& s, ModelOverrides& o) { return assign(o.max_delay_ms, read_number(s, 0, 10'000)); }},
    {"run_limit_ms", [](const Site& s, ModelOverrides& o) { return assign(o.run_limit_ms, read_integer(s, 10, 86'400'000)); }},
    {"quarantine_ms", [](const Site& s, ModelOverrides& o) { return assign(o.quarantine_ms, read_integer(s, 1, 86'400'000)); }},
    {"load_timeout_s", [](const Site& s, ModelOverrides& o) { return assign(o.load_timeout_s, read_integer(s, 1, 86'400)); }},
    {"memory_mb", [](const Site& s, ModelOverrides& o) { return assign(o.memory_mb, read_integer(s, 0, 1 << 24)); }},
    {"golden", [](const Site& s, ModelOverrides& o) { return assign(o.golden_file, read_string(s)); }},
    {"golden_tolerance", [](const Site& s, ModelOverrides& o) { return assign(o.golden_tolerance, read_number(s, 0, 1)); }},
    {"versions", [](const Site& s, ModelOverrides& o) { return assign(o.versions, read_versions(s)); }},
};

}  // namespace

Result<toml::table> parse_toml(const std::string& text, const std::string& where) try {
  return toml::parse(text, where);
} catch (const toml::parse_error& e) {  // toml++ throws only here
  return invalid_argument("{}:{}: {}", where, e.source().begin.line, e.description());
}

Status error_at(const std::string& where, const toml::node& node, const std::string& what) {
  const auto line = node.source().begin.line;
  return line == 0 ? invalid_argument("{}: {}", where, what) : invalid_argument("{}:{}: {}", where, line, what);
}

Status read_key(const std::string& where, std::string_view key, const toml::node& value, ModelOverrides& overrides) {
  const Site site{where, value, std::string(key)};
  if (const auto row = std::ranges::find(kKeys, key, &KeyRow::key); row != std::end(kKeys)) return row->read(site, overrides);
  std::string known;
  for (const KeyRow& row : kKeys) known += format("{}{}", known.empty() ? "" : ", ", row.key);
  return site.error(format("is not a key of a model; there are {}", known));
}

Result<ModelOverrides> read_keys(const std::string& where, const toml::table& table) {
  ModelOverrides overrides;
  for (const auto& [key, node] : table) SHOAL_RETURN_IF_ERROR(read_key(where, key.str(), node, overrides));
  if (overrides.state) use_layouts(table, *overrides.state);
  return overrides;
}

}  // namespace shoal::internal
