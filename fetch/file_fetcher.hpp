// Fetches the files of one directory of a server into its cache, each one as a whole or not at all.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "fetch/checksums.hpp"
#include "fetch/directory_cache.hpp"
#include "fetch/source.hpp"

namespace shoal::fetch {

/// What all fetchers of one model share. All outlive them.
struct FetchTools {
  const Location& location;
  Source& source;
  HttpClient& client;
  Course& course;
  std::vector<std::string>& warnings;
};

///   Threads  thread-bound
class FileFetcher {
 public:
  /// `directory` as Location::directory.
  FileFetcher(FetchTools tools, std::string directory, DirectoryCache cache)
      : tools_(tools), directory_(std::move(directory)), cache_(std::move(cache)) {}

  /// Files that are fetched from now on must have these checksums, if they are named there.
  void set_checksums(Checksums checksums) { checksums_ = std::move(checksums); }
  const Checksums& checksums() const { return checksums_; }

  enum class Need { kRequired, kOptional };
  struct Wish {
    std::string name;
    Need need = Need::kRequired;
    std::uint64_t largest_bytes = std::numeric_limits<std::uint64_t>::max();  ///< beside the limit for all files together
  };
  /// A file that has not changed since the last time is not sent again. One that broke off goes on where it ended.
  ///   Returns  nothing if the server does not have it and it is optional. Some servers refuse (403) all files that they do
  ///            not have: so that counts as not having it, too, and there is a warning
  ///   Errors   kNotFound, kPermissionDenied, kUnavailable (the server, the network), kDataLoss (wrong checksum, no way to
  ///            notice that it is cut off), kFailedPrecondition (too large, the disk is full, redirects), kDeadlineExceeded,
  ///            kCancelled. All name the URL. No half file is left as a whole one
  Result<std::optional<FileRecord>> fetch(const Wish& wish);

  DirectoryCache& cache() { return cache_; }
  const std::string& directory() const { return directory_; }
  std::string url_of(std::string_view name) const { return tools_.location.url_of(directory_, name); }

 private:
  class PartBody;
  HttpOutcome attempt(const Wish& wish, const RemoteFile& now, const std::optional<FileRecord>& known,
                      std::uint64_t& furthest_bytes, bool& has_progressed, bool& has_resumed);
  Result<FileRecord> finish(const std::string& name, bool& is_wrong);
  Result<std::optional<FileRecord>> absent(const std::string& name, Need need, const HttpReply& reply) const;

  FetchTools tools_;
  std::string directory_;
  DirectoryCache cache_;
  Checksums checksums_;
};

}  // namespace shoal::fetch
