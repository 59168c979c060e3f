#include <algorithm>
#include <charconv>
#include <system_error>

#include "shm/base/errors.hpp"
#include "shm/model/model_config.hpp"

namespace shoal {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSymbolSuffix = "-symbol.json";
constexpr std::string_view kParamsSuffix = ".params";

/// The number that all of `text` is, if it is one.
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

/// What is listed of a directory: the names for which `keep` gives something, sorted.
template <typename Keep>
auto list(const fs::path& directory, Keep keep) {
  std::vector<typename decltype(keep(fs::directory_entry()))::value_type> found;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error)) {
    if (auto value = keep(*entry)) found.push_back(*std::move(value));
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::vector<std::string> prefixes_in(const fs::path& directory) {
  return list(directory, [](const fs::directory_entry& entry) -> std::optional<std::string> {
    const std::string name = entry.path().filename().string();
    if (!name.ends_with(kSymbolSuffix) || name.size() == kSymbolSuffix.size()) return std::nullopt;
    return name.substr(0, name.size() - kSymbolSuffix.size());
  });
}

std::vector<std::uint64_t> versions_in(const fs::path& directory) {
  return list(directory, [](const fs::directory_entry& entry) -> std::optional<std::uint64_t> {
    std::error_code error;
    return entry.is_directory(error) ? parse_number<std::uint64_t>(entry.path().filename().string()) : std::nullopt;
  });
}

struct EpochFile {
  int epoch = 0;
  fs::path file;
  auto operator<=>(const EpochFile&) const = default;
};

/// PREFIX-NNNN.params: at least four digits, as printf("%04d") writes them.
std::vector<EpochFile> epochs_of(const fs::path& directory, const std::string& prefix) {
  return list(directory, [&](const fs::directory_entry& entry) -> std::optional<EpochFile> {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(prefix + "-") || !name.ends_with(kParamsSuffix)) return std::nullopt;
    if (name.size() < prefix.size() + 1 + 4 + kParamsSuffix.size()) return std::nullopt;
    const std::size_t begin = prefix.size() + 1;
    const auto epoch = parse_number<int>(std::string_view(name).substr(begin, name.size() - begin - kParamsSuffix.size()));
    if (!epoch) return std::nullopt;
    return EpochFile{*epoch, entry.path()};
  });
}

Result<EpochFile> choose_epoch(const ModelFiles& files, std::optional<int> wanted) {
  const std::string model = (files.directory / files.prefix).string();
  const std::vector<EpochFile> epochs = epochs_of(files.directory, files.prefix);
  if (epochs.empty()) return not_found("checkpoint '{}' has no parameters: no file {}-0000.params", model, model);
  std::vector<std::string> numbers;
  for (const EpochFile& each : epochs) numbers.push_back(std::to_string(each.epoch));
  const auto found =
      std::find_if(epochs.begin(), epochs.end(), [&](const EpochFile& e) { return e.epoch == wanted.value_or(0); });
  if (found != epochs.end()) return *found;
  if (wanted) return not_found("checkpoint '{}' has no epoch {}; it has {}", model, *wanted, join(numbers));
  if (epochs.size() == 1) return epochs.front();
  return invalid_argument("checkpoint '{}' has several epochs and none is 0: say one of them as {}@N: {}", model, model,
                          join(numbers));
}

/// Fills in directory, prefix and version from a path without its epoch.
Status choose_prefix(const fs::path& base, ModelFiles& files) {
  std::error_code error;
  if (!fs::is_directory(base, error)) {
    files.directory = base.parent_path();
    files.prefix = base.filename().string();
    if (fs::exists(files.directory / (files.prefix + std::string(kSymbolSuffix)), error)) return {};
    const std::string near = join(prefixes_in(files.directory.empty() ? fs::path(".") : files.directory));
    return not_found("no model at '{}': there is no such directory and no file {}{}{}", base.string(), base.string(),
                     kSymbolSuffix, near.empty() ? "" : " (beside it: " + near + ")");
  }
  const std::vector<std::string> prefixes = prefixes_in(base);
  if (prefixes.size() > 1) {
    return invalid_argument("directory '{}' holds several checkpoints: say one of them as {}/PREFIX: {}", base.string(),
                            base.string(), join(prefixes));
  }
  if (prefixes.size() == 1) {
    files.directory = base;
    files.prefix = prefixes.front();
    return {};
  }
  const std::vector<std::uint64_t> versions = versions_in(base);
  if (versions.empty() || files.version != 0) {
    return not_found("no model in directory '{}': no file PREFIX{}", base.string(), kSymbolSuffix);
  }
  files.version = versions.back();
  // "007" and "7" are the same number: take the name that exists.
  const auto named = list(base, [&](const fs::directory_entry& entry) -> std::optional<std::string> {
    const std::string name = entry.path().filename().string();
    return parse_number<std::uint64_t>(name) == files.version ? std::optional(name) : std::nullopt;
  });
  return choose_prefix(base / named.back(), files);
}

fs::path first_existing(std::initializer_list<fs::path> candidates) {
  std::error_code error;
  const auto found = std::find_if(candidates.begin(), candidates.end(), [&](const fs::path& p) { return fs::exists(p, error); });
  return found == candidates.end() ? fs::path() : *found;
}

}  // namespace

Result<ModelFiles> find_model(const std::string& path) {
  if (path.empty()) return invalid_argument("the path of a model is empty");
  std::error_code error;
  fs::path base = path;
  std::optional<int> epoch;
  if (const std::size_t at = path.rfind('@'); at != std::string::npos && !fs::exists(base, error)) {
    epoch = parse_number<int>(std::string_view(path).substr(at + 1));
    if (epoch) base = path.substr(0, at);
  }
  if (!base.has_filename()) base = base.parent_path();  // "dir/" is the directory, not a prefix of no name

  ModelFiles files;
  files.version = 0;
  SHOAL_RETURN_IF_ERROR(choose_prefix(base, files));
  const bool versioned = files.version != 0;
  files.version = std::max<std::uint64_t>(files.version, 1);
  SHOAL_ASSIGN_OR_RETURN(const EpochFile chosen, choose_epoch(files, epoch));
  files.epoch = chosen.epoch;
  files.params_file = chosen.file;
  files.symbol_file = files.directory / (files.prefix + std::string(kSymbolSuffix));
  files.config_file = first_existing({files.directory / "model.toml", versioned ? base / "model.toml" : fs::path()});
  return files;
}

}  // namespace shoal
