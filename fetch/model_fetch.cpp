#include "fetch/model_fetch.hpp"

#include <algorithm>
#include <cctype>
#include <map>
#include <system_error>

#include "fetch/digest.hpp"
#include "fetch/remote_directory.hpp"
#include "fetch/verified_model.hpp"
#include "shm/base/errors.hpp"
#include "shm/model/model_kind.hpp"

namespace shoal::fetch {
namespace {

namespace fs = std::filesystem;
using Need = FileFetcher::Need;

constexpr const char *kConfig = "model.toml", *kLabels = "synset.txt", *kPicture = "picture";
constexpr std::uint64_t kLockLookNs = 100'000'000;
constexpr std::size_t kReadableBytes = 40, kHashDigits = 16;

/// "resnet-50-0123456789abcdef": the directory of a URL, for people who look at the cache.
std::string directory_name(const Location& location, std::string_view name) {
  const std::string url = location.url_of(location.directory, name);
  std::string readable(name.substr(0, kReadableBytes));
  std::ranges::replace_if(
      readable, [](unsigned char c) { return std::isalnum(c) == 0 && c != '-' && c != '_' && c != '.'; }, '_');
  return format("{}-{}", readable.empty() ? "model" : readable, hex(sha256(url)).substr(0, kHashDigits));
}

std::string replace_all(std::string text, const std::string& from, const std::string& to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != text.npos; at += to.size()) text.replace(at, from.size(), to);
  return text;
}

/// "PREFIX-0007.params"
std::string weights_name(std::string_view prefix, std::string_view epoch, std::string_view suffix) {
  return format("{}-{}{}{}", prefix, std::string(4 - std::min<std::size_t>(4, epoch.size()), '0'), epoch, suffix);
}

class ModelFetch {
 public:
  ModelFetch(const ModelRequest& request, FetchTools tools, fs::path directory)
      : request_(request), tools_(tools), location_(tools.location), directory_(std::move(directory)) {}

  Result<fs::path> run() {
    std::error_code error;
    fs::remove_all(picture(), error);  // of a process that was killed
    auto path = find_and_take();
    fs::remove_all(picture(), error);
    if (path.ok()) return path;
    // What was looked for in the picture was looked for on the server.
    const std::string there = location_.url_of(location_.directory, {});
    std::string text = replace_all(std::string(path.status().message()), picture().string() + "/", there);
    text = replace_all(std::move(text), picture().string(), there.substr(0, there.size() - 1));
    const bool is_missing = path.status().code() == StatusCode::kNotFound;
    if (is_missing && !tools_.warnings.empty()) text += format(". Before: {}", tools_.warnings.front());
    return Status(path.status().code(), std::move(text));
  }

 private:
  fs::path picture() const { return directory_ / kPicture; }

  Result<RemoteDirectory> open(const std::string& directory, const std::string& cache, const fs::path& picture) {
    return RemoteDirectory::open(tools_, directory, directory_ / cache, picture);
  }

  Result<fs::path> find_and_take() {
    SHOAL_ASSIGN_OR_RETURN(RemoteDirectory parent, open(location_.directory, "parent", picture()));
    const std::string& name = location_.name;
    if (name.empty()) {
      SHOAL_ASSIGN_OR_RETURN(const bool is_listed, parent.list({}));
      return is_listed ? take_directory(parent) : no_list(parent);
    }
    const std::string stem(without_epoch(name));
    std::string prefix = stem;
    if (const ModelKind* const kind = kind_of(name)) prefix = name.substr(0, name.size() - kind->graph_suffix.size());
    SHOAL_ASSIGN_OR_RETURN(const bool is_listed, parent.list(prefix));
    for (const std::string& each : {name, stem}) {
      if (parent.has_directory(each)) return take_sub_directory(each);
    }
    if (is_web(location_.scheme) && !(is_listed && is_model_prefix(picture() / prefix))) {
      SHOAL_ASSIGN_OR_RETURN(const bool is_there, try_names(parent, prefix));
      if (!is_there) return try_directory(stem);
    }
    SHOAL_ASSIGN_OR_RETURN(const ModelFiles files, find(parent, picture() / name));
    SHOAL_RETURN_IF_ERROR(take_model(files, parent, parent));
    SHOAL_ASSIGN_OR_RETURN(const fs::path copy, parent.assemble());
    return copy / files.files.front().filename();
  }

  /// One model, which has no numbered versions.
  Result<ModelFiles> find(RemoteDirectory& directory, const fs::path& path) const {
    SHOAL_RETURN_IF_ERROR(directory.take_text(kConfig, Need::kOptional).status());
    return find_model(path.string());
  }

  /// `name` is that of the URL, or that without its epoch.
  Result<fs::path> take_sub_directory(const std::string& name) {
    epoch_ = location_.name.substr(name.size());
    SHOAL_ASSIGN_OR_RETURN(RemoteDirectory base, open(location_.directory + name + "/", "directory", picture() / name));
    SHOAL_ASSIGN_OR_RETURN(const bool is_listed, base.list({}));
    return is_listed ? take_directory(base) : no_list(base);
  }

  Status no_list(const RemoteDirectory& directory) const {
    SHOAL_RETURN_IF_ERROR(directory.check_checksums());
    return missing(
        format("{}: the server does not list its files, and has no SHA256SUMS there: name the model, as in {}PREFIX for "
               "{}PREFIX-symbol.json and {}PREFIX-0000.params",
               directory.url_of(), directory.url_of(), directory.url_of(), directory.url_of()));
  }

  /// The error if nothing at all is found. A refusal that was taken for a missing file may then be the reason.
  Status missing(std::string text) const {
    if (tools_.warnings.empty()) return not_found("{}", text);
    return permission_denied("{}. Before: {}", text, tools_.warnings.front());
  }

  // ---- web servers, which list nothing ----

  /// Asks for the graph by the names of every kind of model.
  Result<bool> try_names(RemoteDirectory& directory, const std::string& prefix) const {
    const std::string epoch = location_.name.size() > prefix.size() + 1 && location_.name[prefix.size()] == '@'
                                  ? location_.name.substr(prefix.size() + 1)
                                  : "0";
    for (const ModelKind* const kind : model_kinds()) {
      const std::string graph = prefix + std::string(kind->graph_suffix);
      SHOAL_ASSIGN_OR_RETURN(const bool is_there, directory.take(graph, Need::kOptional));
      if (!is_there) continue;
      if (!kind->weights_suffix.empty())
        SHOAL_RETURN_IF_ERROR(directory.suppose(weights_name(prefix, epoch, kind->weights_suffix)));
      for (const std::string_view suffix : kind->data_suffixes)
        SHOAL_RETURN_IF_ERROR(directory.take(prefix + std::string(suffix), Need::kOptional).status());
      return true;
    }
    return false;
  }

  /// The last resort: what looks like the prefix of a model may be a directory.
  Result<fs::path> try_directory(const std::string& name) {
    epoch_ = location_.name.substr(name.size());
    SHOAL_ASSIGN_OR_RETURN(RemoteDirectory base, open(location_.directory + name + "/", "directory", picture() / name));
    SHOAL_ASSIGN_OR_RETURN(const bool is_listed, base.list({}));
    if (is_listed) return take_directory(base);
    SHOAL_RETURN_IF_ERROR(base.check_checksums());
    std::string tried;
    for (const ModelKind* const kind : model_kinds())
      tried += (tried.empty() ? "" : ", ") + location_.url_of(location_.directory, name + std::string(kind->graph_suffix));
    return missing(format("no model at '{}': the server has neither {} nor {}", request_.path, tried, base.url_of("SHA256SUMS")));
  }

  // ---- directories ----

  Result<fs::path> take_directory(RemoteDirectory& base) {
    SHOAL_RETURN_IF_ERROR(base.take_text(kConfig, Need::kOptional).status());
    SHOAL_ASSIGN_OR_RETURN(auto found, find_versions(base.picture().string() + epoch_, policy(base)));
    if (!found.front().directory.empty()) return take_versions(base, found);
    SHOAL_ASSIGN_OR_RETURN(const ModelFiles files, std::move(found.front().files));
    SHOAL_RETURN_IF_ERROR(take_model(files, base, base));
    SHOAL_ASSIGN_OR_RETURN(const fs::path copy, base.assemble());
    return copy / files.files.front().filename();
  }

  VersionPolicy policy(const RemoteDirectory& base) const {
    if (request_.overrides.versions) return *request_.overrides.versions;
    const fs::path config_file = base.picture() / kConfig;
    std::error_code error;
    if (!fs::exists(config_file, error)) return {};
    const auto config = read_model_config({.config_file = config_file});
    return config.ok() ? config->versions : VersionPolicy();  // its error follows when the model is looked at
  }

  Result<fs::path> take_versions(RemoteDirectory& base, const std::vector<FoundVersion>& wanted) {
    SHOAL_RETURN_IF_ERROR(check_version_count(request_, wanted.size()));
    std::map<std::string, fs::path> copies;
    bool has_all_checksums = true;
    for (const FoundVersion& version : wanted) {
      const std::string name = version.directory.filename().string();
      SHOAL_ASSIGN_OR_RETURN(RemoteDirectory directory,
                             open(base.directory() + name + "/", format("version-{}", version.number), base.picture() / name));
      SHOAL_RETURN_IF_ERROR(directory.list({}).status());
      SHOAL_RETURN_IF_ERROR(directory.take_text(kConfig, Need::kOptional).status());
      SHOAL_ASSIGN_OR_RETURN(ModelFiles files, find_model(directory.picture().string() + epoch_));
      std::error_code error;
      if (files.config_file.empty() && fs::exists(base.picture() / kConfig, error)) files.config_file = base.picture() / kConfig;
      SHOAL_RETURN_IF_ERROR(take_model(files, directory, base));
      SHOAL_ASSIGN_OR_RETURN(copies[name], directory.assemble());
      has_all_checksums = has_all_checksums && directory.has_checksums();
    }
    if (!has_all_checksums) SHOAL_RETURN_IF_ERROR(base.check_checksums());
    SHOAL_ASSIGN_OR_RETURN(fs::path copy, base.assemble(copies));
    remove_old_versions(base);
    return copy;
  }

  /// Versions that no copy of the whole has any more.
  void remove_old_versions(RemoteDirectory& base) const {
    const auto linked = base.cache().linked_directories();
    std::error_code error;
    for (fs::directory_iterator entry(directory_, error), end; !error && entry != end; entry.increment(error)) {
      const fs::path directory = entry->path();
      if (!directory.filename().string().starts_with("version-")) continue;
      const bool is_linked =
          std::ranges::any_of(linked, [&](const fs::path& target) { return target.parent_path() == directory; });
      std::error_code ignored;
      if (!is_linked) fs::remove_all(directory, ignored);
    }
  }

  // ---- one model ----

  /// `base` has what all versions share; it is `directory` itself if there are none.
  Status take_model(const ModelFiles& files, RemoteDirectory& directory, RemoteDirectory& base) {
    if (files.config_file.empty())
      SHOAL_RETURN_IF_ERROR(directory.take_text(files.prefix + "-shapes.json", Need::kOptional).status());
    SHOAL_ASSIGN_OR_RETURN(ModelConfig config, read_model_config(files));
    const std::string labels = config.labels_file, golden = config.golden_file;
    apply_overrides(request_.overrides, config);
    SHOAL_RETURN_IF_ERROR(take_labels(config.labels_file, config.labels_file != labels, directory, base));
    SHOAL_RETURN_IF_ERROR(take_golden(config.golden_file, config.golden_file != golden, directory));
    SHOAL_RETURN_IF_ERROR(directory.check_checksums(files.files));  // before the weights, which take long
    for (const fs::path& file : files.files)
      SHOAL_RETURN_IF_ERROR(directory.take(file.filename().string(), Need::kRequired).status());
    return {};
  }

  static Status take_golden(const std::string& named, bool is_users, RemoteDirectory& directory) {
    if (named.empty() || is_here(named, is_users)) return {};
    SHOAL_RETURN_IF_ERROR(check_named("golden", named, directory));
    return directory.take(named, Need::kRequired).status();
  }

  Status take_labels(const std::string& named, bool is_users, RemoteDirectory& directory, RemoteDirectory& base) {
    if (is_here(named, is_users)) return {};
    if (!named.empty()) SHOAL_RETURN_IF_ERROR(check_named("labels", named, directory));
    const std::string& name = named.empty() ? kLabels : named;
    const bool has_base = directory.directory() != base.directory();
    SHOAL_ASSIGN_OR_RETURN(bool is_there,
                           directory.take_text(name, named.empty() || has_base ? Need::kOptional : Need::kRequired));
    if (is_there || !has_base) return {};
    return base.take_text(name, named.empty() ? Need::kOptional : Need::kRequired).status();
  }

  /// What a user of this machine names by an absolute path is a file of this machine.
  static bool is_here(const std::string& named, bool is_users) { return is_users && fs::path(named).is_absolute(); }

  /// A server must not choose which files of this machine are read: labels are shown to clients. Nor may it choose that
  /// `shoal fetch URL ~` writes ~/.profile.
  static Status check_named(std::string_view key, const std::string& named, const RemoteDirectory& directory) {
    if (is_file_name(named) && named.front() != '.') return {};
    return invalid_argument(
        "{}: '{}' is '{}': in a model that is fetched it must be the name of a visible file beside model.toml",
        directory.url_of(kConfig), key, named);
  }

  const ModelRequest& request_;
  const FetchTools tools_;
  const Location& location_;
  const fs::path directory_;
  std::string epoch_;  // "@7", of a URL that names a directory
};

}  // namespace

Result<FetchedModel> fetch_model(const ModelRequest& request, const Location& location, Source& source, HttpClient& client,
                                 Course& course, const fs::path& cache) {
  const fs::path directory = cache / directory_name(location, without_epoch(location.name));
  SHOAL_ASSIGN_OR_RETURN(const UniqueFd lock, lock_directory(directory, [&] {
                           course.tell({.file = "(another process fetches it)"});
                           return course.sleep(kLockLookNs).with_context(request.path + ": another process fetches it");
                         }));
  FetchedModel fetched;
  ModelFetch fetch(request, {location, source, client, course, fetched.warnings}, directory);
  SHOAL_ASSIGN_OR_RETURN(const fs::path path, fetch.run());
  fetched.path = path.string();
  fetched.bytes = course.taken_bytes();
  return fetched;
}

}  // namespace shoal::fetch
