// A directory on a server, and a picture of it on disk: empty files for what the server lists, so that the code that finds models
// on disk (shm/model) decides which of them make a model. There is one rule for both.
#pragma once

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "fetch/file_fetcher.hpp"

namespace shoal::fetch {

///   Threads  thread-bound
class RemoteDirectory {
 public:
  /// Fetches SHA256SUMS if it is there: what it names is checked.
  ///   cache    the directory for what is fetched
  ///   picture  an empty directory, or one that does not exist
  static Result<RemoteDirectory> open(const FetchTools& tools, const std::string& directory, const std::filesystem::path& cache,
                                      const std::filesystem::path& picture);

  /// Shows in the picture what the server lists under names that begin with `prefix`. A web server lists nothing: SHA256SUMS
  /// does.
  ///   Returns  false: nobody knows what is there
  Result<bool> list(const std::string& prefix);
  bool has_directory(const std::string& name) const { return directories_.contains(name); }

  /// Fetches a file that belongs to the model, and shows it in the picture as it is.
  ///   Returns  false: it is optional, and not there
  Result<bool> take(const std::string& name, FileFetcher::Need need) { return take({name, need}); }
  /// The same for a file that is read as a text: one of more than kLargestTextFile bytes would be refused then.
  Result<bool> take_text(const std::string& name, FileFetcher::Need need);
  /// Shows a file in the picture that nobody has listed.
  Status suppose(const std::string& name) { return draw(name); }

  /// What was taken, as a directory of its own.
  ///   directories  versions: then the caller calls check_checksums() if one of them has no sums
  ///   Errors       those of check_checksums(), without `directories`; those of DirectoryCache::assemble()
  Result<std::filesystem::path> assemble(const std::map<std::string, std::filesystem::path>& directories = {});
  bool has_checksums() const { return taken_.contains(kChecksums); }
  /// Errors: kDataLoss: SHA256SUMS is there and names neither what was taken nor one of `others`, see check_names().
  Status check_checksums(const std::vector<std::filesystem::path>& others = {}) const;

  const std::string& directory() const { return files_.directory(); }
  const std::filesystem::path& picture() const { return picture_; }
  std::string url_of(std::string_view name = {}) const { return files_.url_of(name); }
  DirectoryCache& cache() { return files_.cache(); }

 private:
  RemoteDirectory(const FetchTools& tools, FileFetcher files, std::filesystem::path picture)
      : tools_(tools), files_(std::move(files)), picture_(std::move(picture)) {}
  Result<bool> take(const FileFetcher::Wish& wish);
  Status draw(const std::string& name);

  FetchTools tools_;
  FileFetcher files_;
  std::filesystem::path picture_;
  std::set<std::string> directories_;
  std::map<std::string, FileRecord> taken_;
};

}  // namespace shoal::fetch
