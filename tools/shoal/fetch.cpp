// shoal fetch: copies a model from a URL into a directory.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "shm/base/errors.hpp"
#include "shm/base/fetch_timeout.hpp"
#include "shm/base/json_text.hpp"
#include "shm/base/regular_file.hpp"
#include "shm/base/url.hpp"
#include "tools/shoal/commands.hpp"
#include "tools/shoal/fetched.hpp"

namespace shoal::tool {
namespace {

namespace fs = std::filesystem;

constexpr const char* kAbout = "Fetches a model from https://, s3://, hdfs:// or file:// into a directory.";
constexpr const char* kMore =
    R"(URL is a model's prefix, prefix@epoch or directory, as a PATH is. Fetched are the symbol file, the parameters, model.toml, labels
and the golden file; over https:// the server need not list files. SHA256SUMS beside the files is verified. Files come through the cache
($SHOAL_CACHE_DIR/fetch): what has not changed is not sent again, and what broke off goes on. Each file of DIR appears complete. All commands
that take a PATH take a URL, too, and so do shoald --model, its configuration, load and reload: they use the cache itself.

  shoal fetch https://models.example.com/resnet/resnet-50 models/resnet
  shoal fetch s3://bucket/models/resnet-50@7 models/resnet        AWS_REGION, AWS_ENDPOINT_URL, credentials as for other tools of AWS
  shoal fetch hdfs://namenode:9870/models/resnet models/resnet --versions latest:2

Limits: $SHOAL_FETCH_TIMEOUT_S (3600) for everything, $SHOAL_FETCH_STALL_S (30) without a byte, $SHOAL_FETCH_LIMIT_MB (65536). Proxies:
$https_proxy, $no_proxy. Certificates of your own: $CURL_CA_BUNDLE. User and password of a host: ~/.netrc.)";

struct FetchOptions {
  std::string url, directory, versions;
  int timeout_s = 0, limit_mb = 0;
  bool json = false;
};

struct CopiedFile {
  fs::path from, name;  ///< name: relative to the directory
  std::uint64_t bytes = 0;
};

/// Files of a copy in the cache, which may have links to the directories of versions.
Result<std::vector<CopiedFile>> files_in(const fs::path& root) {
  std::vector<CopiedFile> files;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(root, fs::directory_options::follow_directory_symlink, error), end;
       !error && entry != end; entry.increment(error)) {
    if (entry->is_regular_file(error))
      files.push_back({entry->path(), entry->path().lexically_relative(root), entry->file_size(error)});
  }
  if (error) return status_from_errno("read", root.string(), error.value());
  std::ranges::sort(files, {}, &CopiedFile::name);
  return files;
}

Status copy_bytes(const fs::path& from, const fs::path& to) {
  SHOAL_ASSIGN_OR_RETURN(const RegularFile source, open_regular_file(from));
  const UniqueFd made(::open(to.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!made) return status_from_errno("make", to.string(), errno);
  std::vector<std::byte> chunk(1 << 20);
  while (true) {
    SHOAL_ASSIGN_OR_RETURN(const std::size_t size, read_fully(source.fd.get(), chunk, from.string()));
    SHOAL_RETURN_IF_ERROR(write_fully(made.get(), std::span(chunk).first(size), to.string()));
    if (size < chunk.size()) break;
  }
  return ::fsync(made.get()) == 0 ? Status() : status_from_errno("write", to.string(), errno);
}

/// A directory beside the files, in which they become complete. Removed at the end; those of killed processes, too.
class Workshop {
 public:
  explicit Workshop(const fs::path& directory) : path_(directory / (kPrefix + std::to_string(::getpid()))) {
    std::error_code error;
    for (fs::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error)) {
      const std::string name = entry->path().filename().string();
      pid_t pid = 0;
      if (!name.starts_with(kPrefix)) continue;
      std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), pid);
      std::error_code ignored;
      if (pid == ::getpid() || (pid > 0 && ::kill(pid, 0) != 0 && errno == ESRCH)) fs::remove_all(entry->path(), ignored);
    }
  }
  Workshop(const Workshop&) = delete;
  Workshop& operator=(const Workshop&) = delete;
  ~Workshop() {
    std::error_code error;
    fs::remove_all(path_, error);
  }
  const fs::path& path() const { return path_; }

 private:
  static inline const std::string kPrefix = ".shoal-fetch-";
  fs::path path_;
};

/// All files are complete before the first one appears.
Status copy_all(const std::vector<CopiedFile>& files, const fs::path& directory) {
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) return status_from_errno("make the directory", directory.string(), error.value());
  const Workshop workshop(directory);
  for (const CopiedFile& file : files) {
    for (const fs::path& place : {workshop.path() / file.name, directory / file.name}) {
      fs::create_directories(place.parent_path(), error);
      if (error) return status_from_errno("make the directory", place.parent_path().string(), error.value());
    }
    SHOAL_RETURN_IF_ERROR(copy_bytes(file.from, workshop.path() / file.name));
  }
  for (const CopiedFile& file : files) {
    fs::rename(workshop.path() / file.name, directory / file.name, error);
    if (error) return status_from_errno("rename to", (directory / file.name).string(), error.value());
  }
  return {};
}

/// Whether the files can be written later, so that nothing is fetched in vain. Makes nothing.
Status check_writable(const fs::path& directory) {
  std::error_code error;
  fs::path there = fs::absolute(directory, error);
  while (!fs::exists(there, error) && there.has_relative_path()) there = there.parent_path();
  if (!fs::is_directory(there, error)) return status_from_errno("make the directory", directory.string(), ENOTDIR);
  return ::access(there.c_str(), W_OK | X_OK) == 0 ? Status() : status_from_errno("write into", there.string(), errno);
}

void print(const FetchOptions& options, const std::vector<CopiedFile>& files, std::uint64_t bytes) {
  if (options.json) {
    nlohmann::json list = nlohmann::json::array();
    for (const CopiedFile& file : files) list.push_back({{"file", file.name.string()}, {"bytes", file.bytes}});
    std::printf("%s\n", json_text({{"directory", options.directory}, {"files", list}, {"bytes", bytes}}).c_str());
    return;
  }
  std::vector<std::vector<std::string>> rows;
  for (const CopiedFile& file : files)
    rows.push_back({(fs::path(options.directory) / file.name).string(), format_bytes(file.bytes)});
  std::fputs(align_columns(rows, {false, true}).c_str(), stdout);
}

Finish run(const FetchOptions& options, Invocation& invocation) {
  if (Status wrong = check_url(options.url); !wrong.ok()) return usage_failure(std::move(wrong));
  if (url_scheme(options.url).empty())
    return usage_failure(
        invalid_argument("'{}' is not a URL: it must begin with https://, s3://, hdfs:// or file://", options.url));
  ModelOverrides overrides;
  if (!options.versions.empty()) {
    auto request = parse_model_argument("model=x,versions=" + options.versions);
    if (!request.ok()) return usage_failure(request.status().with_context("--versions"));
    overrides = std::move(request->overrides);
  }
  SHOAL_RETURN_IF_ERROR(check_writable(options.directory));
  if (options.timeout_s > 0) ::setenv("SHOAL_FETCH_TIMEOUT_S", std::to_string(options.timeout_s).c_str(), 1);
  if (options.limit_mb > 0) ::setenv("SHOAL_FETCH_LIMIT_MB", std::to_string(options.limit_mb).c_str(), 1);
  SHOAL_ASSIGN_OR_RETURN(const FetchedModel model, fetch(options.url, overrides, ModelPlace::kCache));
  for (const std::string& warning : model.warnings) invocation.console.warn(warning);
  std::error_code error;
  const fs::path path = model.path;
  SHOAL_ASSIGN_OR_RETURN(const auto files, files_in(fs::is_directory(path, error) ? path : path.parent_path()));
  SHOAL_RETURN_IF_ERROR(copy_all(files, options.directory));
  print(options, files, model.bytes);
  return {};
}

}  // namespace

Command make_fetch(CLI::App& application) {
  const auto options = std::make_shared<FetchOptions>();
  CLI::App* app = application.add_subcommand("fetch", kAbout);
  app->footer(kMore);
  app->add_option("URL", options->url, "the model: URL of PREFIX, PREFIX@EPOCH or a directory")->required();
  app->add_option("DIR", options->directory, "the directory for its files; made if it is missing")->required()->check(not_empty);
  app->add_option("--versions", options->versions, "which numbered versions: all, latest:N or 1:3 (default: as in model.toml)");
  app->add_option("--timeout", options->timeout_s, "seconds for everything")->check(CLI::Range(1, kLongestFetchS));
  app->add_option("--limit-mb", options->limit_mb, "MiB that all files together may have")->check(CLI::Range(1, 1 << 30));
  app->add_flag("--json", options->json, "print JSON: directory, files, bytes");
  return {app, [options](Invocation& invocation) { return run(*options, invocation); }};
}

}  // namespace shoal::tool
