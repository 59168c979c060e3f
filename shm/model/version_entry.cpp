#include "shm/model/version_entry.hpp"

#include <sys/stat.h>

#include "shm/base/errors.hpp"
#include "shm/model/model_kind.hpp"

namespace shoal {
namespace {

// If a file is written again, at least its times change.
std::string stamp_of(const std::filesystem::path& file) {
  struct stat info {};
  if (file.empty() || ::stat(file.c_str(), &info) != 0) return "-;";
  return format("{}:{}:{}:{}.{}:{}.{};", info.st_dev, info.st_ino, info.st_size, info.st_mtim.tv_sec, info.st_mtim.tv_nsec,
                info.st_ctim.tv_sec, info.st_ctim.tv_nsec);
}

void look_at_files(VersionEntry& entry) {
  const ModelFiles& files = entry.model.files;
  const std::string& golden = entry.model.config.golden_file;
  entry.stamp.clear();
  for (const auto& file : files.files) entry.stamp += stamp_of(file);
  if (!golden.empty()) entry.stamp += stamp_of(files.directory / golden);
  const ModelKind* const kind = kind_of(files.files.front().filename().string());
  for (std::size_t i = kind && !kind->weights_suffix.empty() ? 1 : 0; i < files.files.size(); ++i) {
    std::error_code error;
    const std::uintmax_t bytes = std::filesystem::file_size(files.files[i], error);
    entry.parameter_bytes += error ? 0 : bytes;
  }
}

std::vector<VersionEntry> builtin_entry(const ModelRequest& request) {
  VersionEntry entry = failed_entry(request, {});
  if (request.path == "builtin:identity") {
    apply_overrides(request.overrides, entry.model.config);
  } else {
    entry.failure = not_found("model '{}': no built-in model '{}' (there is builtin:identity)", request.name, request.path);
  }
  return {std::move(entry)};
}

}  // namespace

VersionEntry failed_entry(const ModelRequest& request, Status failure) {
  return {.model = {.name = request.name, .path = request.path, .files = {}, .config = {}, .labels = {}},
          .failure = std::move(failure),
          .stamp = {}};
}

std::vector<VersionEntry> find_entries(const ModelRequest& request) {
  if (request.path.starts_with(kBuiltinPrefix)) return builtin_entry(request);
  auto versions = resolve_versions(request);
  if (!versions.ok()) return {failed_entry(request, versions.status())};
  std::vector<VersionEntry> entries;
  for (ServedVersion& version : *versions) {
    VersionEntry& entry = entries.emplace_back(failed_entry(request, {}));
    entry.model.files.version = version.number;
    if (version.model.ok()) {
      entry.model = *std::move(version.model);
      look_at_files(entry);
    } else {
      entry.failure = version.model.status();
    }
  }
  return entries;
}

bool same_version(const VersionEntry& a, const VersionEntry& b) {
  ModelConfig config = a.model.config;
  config.workers = b.model.config.workers;
  config.versions = b.model.config.versions;  // says which versions there are, not what one of them is
  return a.failure.ok() && b.failure.ok() && a.model.files.version == b.model.files.version && a.stamp == b.stamp &&
         a.model.path == b.model.path && config == b.model.config && a.model.labels == b.model.labels;
}

}  // namespace shoal
