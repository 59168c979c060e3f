#include "fetch/verified_model.hpp"

#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <system_error>
#include <vector>

#include "fetch/checksums.hpp"
#include "shm/base/errors.hpp"
#include "shm/base/text_file.hpp"
#include "shm/base/url.hpp"
#include "shm/model/version_entry.hpp"

namespace shoal::fetch {
namespace {

namespace fs = std::filesystem;

class Verifier {
 public:
  explicit Verifier(const Course& course) : course_(course) {}

  /// A file that is not there is none of the model's, or is missed by whoever reads it.
  Status verify(const fs::path& file) {
    std::error_code error;
    if (!fs::exists(file, error) || !verified_.insert(file).second) return {};
    SHOAL_ASSIGN_OR_RETURN(Sums* const sums, sums_in(file.parent_path()));
    const std::string& name = sums->files.emplace_back(file.filename().string());
    if (!sums->checksums.contains(name)) return {};
    const auto found = sum_of(course_, file, name);
    if (!found.ok()) return found.status().with_context(file.string());
    if (const std::uintmax_t size = fs::file_size(file, error); !error) bytes_ += size;
    return check_sum(sums->checksums, name, *found, file.string());
  }

  Status verify_version(const FoundVersion& version, const ModelOverrides& overrides) {
    if (!version.files.ok()) return {};
    const ModelFiles& files = *version.files;
    for (const fs::path& file : files.files) SHOAL_RETURN_IF_ERROR(verify(file));
    SHOAL_ASSIGN_OR_RETURN(Sums* const sums, sums_in(files.directory));
    sums->are_models = true;
    if (!version.directory.empty() && sums->checksums.empty()) {
      SHOAL_ASSIGN_OR_RETURN(Sums* const shared, sums_in(version.directory.parent_path()));
      shared->are_models = true;
    }
    const fs::path shapes = files.directory / (files.prefix + "-shapes.json");
    SHOAL_RETURN_IF_ERROR(verify(files.config_file.empty() ? shapes : files.config_file));
    auto config = read_model_config(files);
    if (!config.ok()) return {};
    apply_overrides(overrides, *config);
    SHOAL_RETURN_IF_ERROR(verify(labels_path(files, *config)));
    return config->golden_file.empty() ? Status() : verify(files.directory / config->golden_file);
  }

  /// Labels and golden files may lie where others have their files, whose sums need not name them.
  ///   Errors  those of fetch::check_names(), of each SHA256SUMS in the directory of a version, or above versions that have none
  Status check_names() const {
    for (const auto& [file, sums] : sums_) {
      if (sums.are_models) SHOAL_RETURN_IF_ERROR(fetch::check_names(sums.checksums, sums.files, file.string()));
    }
    return {};
  }

  std::uint64_t bytes() const { return bytes_; }

 private:
  struct Sums {
    Checksums checksums;             // empty if there is no SHA256SUMS
    std::vector<std::string> files;  // of the model, beside it
    bool are_models = false;         // they must name one of these files
  };

  Result<Sums*> sums_in(const fs::path& directory) {
    std::error_code error;
    fs::path sums = fs::canonical(directory, error);  // labels may name it as "../"
    sums = (error ? directory : sums) / kChecksums;
    if (const auto known = sums_.find(sums); known != sums_.end()) return &known->second;
    const fs::file_type type = fs::status(sums, error).type();
    Checksums checksums;
    if (type != fs::file_type::not_found && type != fs::file_type::directory) {
      SHOAL_ASSIGN_OR_RETURN(const std::string text, read_text_file(sums));
      SHOAL_ASSIGN_OR_RETURN(checksums, parse_checksums(text, sums.string()));
    }
    return &sums_.emplace(sums, Sums{.checksums = std::move(checksums), .files = {}}).first->second;
  }

  const Course& course_;
  std::map<fs::path, Sums> sums_;
  std::set<fs::path> verified_;
  std::uint64_t bytes_ = 0;
};

}  // namespace

Result<FetchedModel> verify_model(const ModelRequest& request, const Course& course) {
  SHOAL_ASSIGN_OR_RETURN(const std::string path, without_file_scheme(request.path));
  Verifier verifier(course);
  VersionPolicy policy = request.overrides.versions.value_or(VersionPolicy());
  if (const fs::path shared = shared_config_file(path); !shared.empty()) {
    SHOAL_RETURN_IF_ERROR(verifier.verify(shared));
    const auto config = read_model_config({.config_file = shared});
    if (config.ok() && !request.overrides.versions) policy = config->versions;
  }
  SHOAL_ASSIGN_OR_RETURN(const auto versions, find_versions(path, policy));
  SHOAL_RETURN_IF_ERROR(check_version_count(request, versions.size()));
  for (const FoundVersion& version : versions) {
    SHOAL_RETURN_IF_ERROR(verifier.verify_version(version, request.overrides));
  }
  SHOAL_RETURN_IF_ERROR(verifier.check_names());
  return FetchedModel{.path = path, .bytes = verifier.bytes(), .warnings = {}};
}

Status check_version_count(const ModelRequest& request, std::size_t count) {
  if (count <= kMostVersions) return {};
  return invalid_argument("{} has {} versions to fetch (at most {}): choose some of them with `versions`", request.path, count,
                          kMostVersions);
}

}  // namespace shoal::fetch
