#include "supervisor/repository/version_entry.hpp"

#include <sys/stat.h>

#include <algorithm>

#include "shm/base/errors.hpp"

namespace shoal::supervisor {
namespace {

// Who writes a file again changes its times at least.
std::string stamp_of(const std::filesystem::path& file) {
  struct stat info {};
  if (file.empty() || ::stat(file.c_str(), &info) != 0) return "-;";
  return format("{}:{}:{}:{}.{}:{}.{};", info.st_dev, info.st_ino, info.st_size, info.st_mtim.tv_sec, info.st_mtim.tv_nsec,
                info.st_ctim.tv_sec, info.st_ctim.tv_nsec);
}

void look_at_files(VersionEntry& entry) {
  const ModelFiles& files = entry.model.files;
  const std::string& golden = entry.model.config.golden_file;
  entry.stamp =
      stamp_of(files.symbol_file) + stamp_of(files.params_file) + (golden.empty() ? "" : stamp_of(files.directory / golden));
  std::error_code error;
  const std::uintmax_t bytes = std::filesystem::file_size(files.params_file, error);
  entry.parameter_bytes = error ? 0 : bytes;
}

std::vector<VersionEntry> builtin_entry(VersionEntry entry, const ModelRequest& request) {
  if (request.path == "builtin:identity") {
    apply_overrides(request.overrides, entry.model.config);
  } else {
    entry.failure = not_found("model '{}': no built-in model '{}' (there is builtin:identity)", request.name, request.path);
  }
  return {std::move(entry)};
}

std::string mb_text(std::uint64_t bytes) { return format("{} MB", (bytes + 999'999) / 1'000'000); }

}  // namespace

std::vector<VersionEntry> find_entries(const ModelRequest& request) {
  const VersionEntry empty{
      .model = {.name = request.name, .path = request.path, .files = {}, .config = {}, .labels = {}}, .failure = {}, .stamp = {}};
  if (request.path.starts_with(kBuiltinPrefix)) return builtin_entry(empty, request);
  auto versions = resolve_versions(request);
  std::vector<VersionEntry> entries(versions.ok() ? versions->size() : 1, empty);
  if (!versions.ok()) entries[0].failure = versions.status();
  for (std::size_t i = 0; versions.ok() && i < entries.size(); ++i) {
    ServedVersion& version = (*versions)[i];
    entries[i].model.files.version = version.number;
    if (version.model.ok()) {
      entries[i].model = *std::move(version.model);
      look_at_files(entries[i]);
    } else {
      entries[i].failure = version.model.status();
    }
  }
  return entries;
}

bool same_version(const VersionEntry& a, const VersionEntry& b) {
  ModelConfig config = a.model.config;
  config.workers = b.model.config.workers;
  config.versions = b.model.config.versions;  // says which there are, not what they are
  return a.failure.ok() && b.failure.ok() && a.model.files.version == b.model.files.version && a.stamp == b.stamp &&
         a.model.path == b.model.path && config == b.model.config && a.model.labels == b.model.labels;
}

LoadEstimate estimate_load(const VersionEntry& entry, std::uint64_t packed_bytes, std::uint64_t arena_bytes) {
  const auto lanes =
      static_cast<std::uint64_t>(entry.model.config.workers) * static_cast<std::uint64_t>(entry.model.config.contexts);
  return {.parameters = entry.parameter_bytes,
          .packed = std::max(packed_bytes, entry.parameter_bytes),
          .arenas = arena_bytes * lanes};
}

Status check_estimate(const std::string& model, const LoadEstimate& estimate, std::uint64_t available_bytes) {
  if (estimate.sum() <= available_bytes) return {};
  return failed_precondition(
      "model '{}': loading it takes about {} of memory (parameters {}, packed weights {}, activations {}) and {} are available: "
      "free memory, or unload a model first",
      model, mb_text(estimate.sum()), mb_text(estimate.parameters), mb_text(estimate.packed), mb_text(estimate.arenas),
      mb_text(available_bytes));
}

}  // namespace shoal::supervisor
