#include <algorithm>
#include <charconv>
#include <system_error>

#include "shm/base/errors.hpp"
#include "shm/base/url.hpp"
#include "shm/model/model_config.hpp"
#include "shm/model/model_kind.hpp"

namespace shoal {
namespace {

namespace fs = std::filesystem;

/// The number that `text` consists of, if it is a number.
template <typename Number>
std::optional<Number> parse_number(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = !text.empty() && text.front() != '-' && error == std::errc() && end == text.data() + text.size();
  return whole ? std::optional(number) : std::nullopt;
}

std::string join(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

/// The results of `keep` for the names in a directory, sorted. Names for which `keep` returns nothing are left out.
template <typename Keep>
auto list(const fs::path& directory, Keep keep) {
  std::vector<typename decltype(keep(fs::directory_entry()))::value_type> found;
  std::error_code error;
  for (fs::directory_iterator entry(directory.empty() ? fs::path(".") : directory, error), end; !error && entry != end;
       entry.increment(error)) {
    if (auto value = keep(*entry)) found.push_back(*std::move(value));
  }
  std::sort(found.begin(), found.end());
  return found;
}

/// A file with the graph of a model.
struct GraphFile {
  std::string prefix;
  const ModelKind* kind = nullptr;
  std::string name() const { return prefix + std::string(kind->graph_suffix); }
  auto operator<=>(const GraphFile&) const = default;
};

std::optional<GraphFile> graph_file(const std::string& name) {
  const ModelKind* const kind = kind_of(name);
  if (!kind) return std::nullopt;
  return GraphFile{name.substr(0, name.size() - kind->graph_suffix.size()), kind};
}

std::vector<GraphFile> graphs_in(const fs::path& directory) {
  return list(directory, [](const fs::directory_entry& entry) { return graph_file(entry.path().filename().string()); });
}

/// "a, b": by their prefixes if these tell them apart, else by their files.
std::string names_of(const std::vector<GraphFile>& graphs) {
  const bool alike = std::ranges::adjacent_find(graphs, {}, &GraphFile::prefix) != graphs.end();
  std::vector<std::string> names;
  for (const GraphFile& graph : graphs) names.push_back(alike ? graph.name() : graph.prefix);
  return join(names);
}

/// "PREFIX-symbol.json", or several joined by "or": what the graph's file would be called.
std::string expected_files(const std::string& prefix) {
  std::string text;
  for (const ModelKind* const kind : model_kinds())
    text.append(text.empty() ? "" : " or ").append(prefix).append(kind->graph_suffix);
  return text;
}

struct VersionDirectory {
  std::uint64_t number = 0;
  fs::path path;
  auto operator<=>(const VersionDirectory&) const = default;
};

/// The numeric sub-directories, by number. None if the path is not a directory or holds a checkpoint itself.
std::vector<VersionDirectory> versions_in(const fs::path& base) {
  if (!graphs_in(base).empty()) return {};
  std::vector<VersionDirectory> versions = list(base, [](const fs::directory_entry& entry) -> std::optional<VersionDirectory> {
    std::error_code error;
    const auto number = parse_number<std::uint64_t>(entry.path().filename().string());
    return number && *number > 0 && entry.is_directory(error) ? std::optional(VersionDirectory{*number, entry.path()})
                                                              : std::nullopt;
  });
  // "007" and "7" are the same number; one of them is taken.
  const auto same = [](const VersionDirectory& a, const VersionDirectory& b) { return a.number == b.number; };
  versions.erase(std::unique(versions.begin(), versions.end(), same), versions.end());
  return versions;
}

std::string numbers_of(const std::vector<VersionDirectory>& versions) {
  std::vector<std::string> numbers;
  for (const VersionDirectory& version : versions) numbers.push_back(std::to_string(version.number));
  return join(numbers);
}

struct EpochFile {
  int epoch = 0;
  fs::path file;
  auto operator<=>(const EpochFile&) const = default;
};

/// PREFIX-NNNN.params, with at least four digits, as printf("%04d") writes them.
std::vector<EpochFile> epochs_of(const fs::path& directory, const GraphFile& graph) {
  const std::string_view suffix = graph.kind->weights_suffix;
  return list(directory, [&](const fs::directory_entry& entry) -> std::optional<EpochFile> {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(graph.prefix + "-") || !name.ends_with(suffix)) return std::nullopt;
    if (name.size() < graph.prefix.size() + 1 + 4 + suffix.size()) return std::nullopt;
    const std::size_t begin = graph.prefix.size() + 1;
    const auto epoch = parse_number<int>(std::string_view(name).substr(begin, name.size() - begin - suffix.size()));
    if (!epoch) return std::nullopt;
    return EpochFile{*epoch, entry.path()};
  });
}

Result<EpochFile> choose_epoch(const fs::path& directory, const GraphFile& graph, std::optional<int> wanted) {
  const std::string model = (directory / graph.prefix).string();
  const std::vector<EpochFile> epochs = epochs_of(directory, graph);
  if (epochs.empty())
    return not_found("checkpoint '{}' has no parameters: no file {}-0000{}", model, model, graph.kind->weights_suffix);
  std::vector<std::string> numbers;
  for (const EpochFile& each : epochs) numbers.push_back(std::to_string(each.epoch));
  const auto found =
      std::find_if(epochs.begin(), epochs.end(), [&](const EpochFile& e) { return e.epoch == wanted.value_or(0); });
  if (found != epochs.end()) return *found;
  if (wanted) return not_found("checkpoint '{}' has no epoch {}; it has {}", model, *wanted, join(numbers));
  if (epochs.size() == 1) return epochs.front();
  return invalid_argument("checkpoint '{}' has several epochs and none is 0: name one of them as {}@N: {}", model, model,
                          join(numbers));
}

struct GraphPath {
  fs::path directory;
  GraphFile graph;
};

Result<GraphPath> choose_graph(const fs::path& base) {
  std::error_code error;
  const bool is_directory = fs::is_directory(base, error);
  const fs::path directory = is_directory ? base : base.parent_path();
  const std::vector<GraphFile> all = graphs_in(directory);
  std::vector<GraphFile> graphs = all;
  if (!is_directory) {
    const std::string name = base.filename().string();
    std::erase_if(graphs, [&](const GraphFile& graph) { return graph.prefix != name && graph.name() != name; });
    if (graphs.empty()) {
      const std::string near = names_of(all);
      return not_found("no model at '{}': there is no such directory and no file {}{}", base.string(),
                       expected_files(base.string()), near.empty() ? "" : " (beside it: " + near + ")");
    }
  }
  if (graphs.empty()) return not_found("no model in directory '{}': no file {}", base.string(), expected_files("PREFIX"));
  if (graphs.size() > 1) {
    return invalid_argument("directory '{}' holds several checkpoints: name one of them as {}/PREFIX: {}", directory.string(),
                            directory.string(), names_of(graphs));
  }
  return GraphPath{directory, graphs.front()};
}

fs::path first_existing(std::initializer_list<fs::path> candidates) {
  std::error_code error;
  const auto found = std::find_if(candidates.begin(), candidates.end(), [&](const fs::path& p) { return fs::exists(p, error); });
  return found == candidates.end() ? fs::path() : *found;
}

struct ModelPath {
  fs::path base;
  std::optional<int> epoch;
};

/// A URL is refused: nobody has fetched its files, or verified them.
Status check_path(const std::string& given) {
  if (given.empty()) return invalid_argument("the path of a model is empty");
  SHOAL_RETURN_IF_ERROR(check_url(given));
  if (!must_be_fetched(given)) return {};
  const auto here = without_file_scheme(given);
  const bool is_here = here.ok() && *here != given;
  return invalid_argument("'{}' is a URL, and here the model must be named by a path: {}shoal fetch '{}' DIR", given,
                          is_here ? format("'{}', whose files are not compared with SHA256SUMS; or ", *here) : "", given);
}

/// An error if the directory may not be read: it would look empty.
Status check_rights(const fs::path& directory) {
  std::error_code error;
  const fs::directory_iterator ignored(directory.empty() ? fs::path(".") : directory, error);
  return error == std::errc::permission_denied ? status_from_errno("read the directory", directory.string(), error.value())
                                               : Status();
}

Result<ModelPath> parse_path(const std::string& text) {
  SHOAL_RETURN_IF_ERROR(check_path(text));
  std::error_code error;
  ModelPath path{text, std::nullopt};
  if (const std::size_t at = text.rfind('@'); at != std::string::npos && !fs::exists(path.base, error)) {
    path.epoch = parse_number<int>(std::string_view(text).substr(at + 1));
    if (path.epoch) path.base = text.substr(0, at);
  }
  if (!path.base.has_filename()) path.base = path.base.parent_path();  // "dir/" is the directory, not an empty prefix in it
  SHOAL_RETURN_IF_ERROR(check_rights(fs::is_directory(path.base, error) ? path.base : path.base.parent_path()));
  return path;
}

/// The checkpoint at `base`. `shared_config` is the model.toml for all versions; it may be empty.
Result<ModelFiles> find_files(const ModelPath& path, std::uint64_t version, const fs::path& shared_config) {
  SHOAL_ASSIGN_OR_RETURN(const GraphPath found, choose_graph(path.base));
  const auto& [directory, graph] = found;
  ModelFiles files{.directory = directory, .prefix = graph.prefix, .version = version, .files = {directory / graph.name()}};
  if (!graph.kind->weights_suffix.empty()) {
    SHOAL_ASSIGN_OR_RETURN(const EpochFile chosen, choose_epoch(directory, graph, path.epoch));
    files.epoch = chosen.epoch;
    files.files.push_back(chosen.file);
  } else if (path.epoch) {
    return not_found("model '{}' has no epoch {}: checkpoints of {} have none", files.files.front().string(), *path.epoch,
                     graph.kind->title);
  }
  for (const std::string_view suffix : graph.kind->data_suffixes) {
    const fs::path data = directory / (graph.prefix + std::string(suffix));
    std::error_code error;
    if (fs::exists(data, error)) files.files.push_back(data);
  }
  files.config_file = first_existing({directory / "model.toml", shared_config});
  return files;
}

Result<ModelFiles> find_files(const ModelPath& path, const VersionDirectory& version) {
  SHOAL_RETURN_IF_ERROR(check_rights(version.path));
  return find_files({version.path, path.epoch}, version.number, path.base / "model.toml");
}

}  // namespace

Result<ModelFiles> find_model(const std::string& path) {
  SHOAL_ASSIGN_OR_RETURN(const ModelPath parsed, parse_path(path));
  const std::vector<VersionDirectory> versions = versions_in(parsed.base);
  return versions.empty() ? find_files(parsed, 1, {}) : find_files(parsed, versions.back());
}

fs::path shared_config_file(const std::string& path) {
  const auto parsed = parse_path(path);
  return parsed.ok() && !versions_in(parsed->base).empty() ? first_existing({parsed->base / "model.toml"}) : fs::path();
}

Result<std::vector<FoundVersion>> find_versions(const std::string& path, const VersionPolicy& policy) {
  SHOAL_ASSIGN_OR_RETURN(const ModelPath parsed, parse_path(path));
  std::vector<VersionDirectory> versions = versions_in(parsed.base);
  const std::string existing = versions.empty() ? "only version 1, because it has no numbered directories" : numbers_of(versions);
  const auto wants = [&](std::uint64_t number) { return std::ranges::count(policy.numbers, number) > 0; };
  for (const std::uint64_t number : policy.numbers) {
    const bool exists = versions.empty() ? number == 1 : std::ranges::count(versions, number, &VersionDirectory::number) > 0;
    if (!exists) return not_found("'{}' has no version {}; it has {}", parsed.base.string(), number, existing);
  }
  std::vector<FoundVersion> found;
  if (versions.empty()) {
    found.push_back({1, {}, find_files(parsed, 1, {})});
    return found;
  }
  if (!policy.numbers.empty()) {
    std::erase_if(versions, [&](const VersionDirectory& version) { return !wants(version.number); });
  } else if (policy.latest > 0 && versions.size() > static_cast<std::size_t>(policy.latest)) {
    versions.erase(versions.begin(), versions.end() - policy.latest);
  }
  for (const VersionDirectory& version : versions) found.push_back({version.number, version.path, find_files(parsed, version)});
  return found;
}

}  // namespace shoal
