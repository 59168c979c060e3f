#include "fetch/verified_model.hpp"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
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

  /// Compares a file with the sums beside it, and with those in the model's directory, which may name it as "labels/a.txt", even
  /// if `labels` is a link. A file that is not there is none of the model's, or is missed by whoever reads it.
  Status verify(const fs::path& file, const fs::path& directory) {
    std::error_code error;
    if (!fs::exists(file, error)) return {};
    SHOAL_RETURN_IF_ERROR(compare(file, file.parent_path(), file.filename()));
    const fs::path written = file.lexically_relative(directory), real = fs::weakly_canonical(file.parent_path(), error);
    if (std::ranges::find(written, "..") == written.end())  // the parent of a link's target is another directory
      SHOAL_RETURN_IF_ERROR(compare(file, directory, written.lexically_normal()));
    return compare(file, directory, (real / file.filename()).lexically_relative(fs::weakly_canonical(directory, error)));
  }

  Status verify_version(const FoundVersion& version, const ModelOverrides& overrides) {
    if (!version.files.ok()) return {};
    const ModelFiles& files = *version.files;
    for (const fs::path& file : files.files) SHOAL_RETURN_IF_ERROR(verify(file, files.directory));
    SHOAL_ASSIGN_OR_RETURN(Sums* const sums, sums_in(files.directory));
    sums->are_models = true;
    if (!version.directory.empty() && sums->checksums.empty()) {
      SHOAL_ASSIGN_OR_RETURN(Sums* const shared, sums_in(version.directory.parent_path()));
      shared->are_models = true;
    }
    const fs::path shapes = files.directory / (files.prefix + "-shapes.json");
    SHOAL_RETURN_IF_ERROR(verify(files.config_file.empty() ? shapes : files.config_file, files.directory));
    auto config = read_model_config(files);
    if (!config.ok()) return {};
    apply_overrides(overrides, *config);
    SHOAL_RETURN_IF_ERROR(verify(labels_path(files, *config), files.directory));
    return config->golden_file.empty() ? Status() : verify(files.directory / config->golden_file, files.directory);
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
    std::vector<std::string> files;  // of the model, as it may name them
    bool are_models = false;         // they must name one of these files
  };

  Status compare(const fs::path& file, const fs::path& directory, const std::string& name) {
    SHOAL_ASSIGN_OR_RETURN(Sums* const sums, sums_in(directory));
    sums->files.push_back(name);
    if (!sums->checksums.contains(name)) return {};
    std::string& sum = sums_of_files_[file];
    if (sum.empty()) {
      auto found = sum_of(course_, file, name);
      if (!found.ok()) return found.status().with_context(file.string());
      sum = *std::move(found);
      std::error_code error;
      if (const std::uintmax_t size = fs::file_size(file, error); !error) bytes_ += size;
    }
    return check_sum(sums->checksums, name, sum, file.string());
  }

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
  std::map<fs::path, std::string> sums_of_files_;
  std::uint64_t bytes_ = 0;
};

}  // namespace

Result<FetchedModel> verify_model(const ModelRequest& request, const Course& course) {
  SHOAL_ASSIGN_OR_RETURN(const std::string path, without_file_scheme(request.path));
  Verifier verifier(course);
  VersionPolicy policy = request.overrides.versions.value_or(VersionPolicy());
  if (const fs::path shared = shared_config_file(path); !shared.empty()) {
    SHOAL_RETURN_IF_ERROR(verifier.verify(shared, shared.parent_path()));
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
