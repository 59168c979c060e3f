// What was fetched from one directory of a server, on disk. A kill at any moment leaves whole files, or parts that are known as
// such.
//
//   DIRECTORY/files/<name>.part, .part.json     bytes that have come, and of which version of the file they are
//             files/<name>.<content>, .json     the whole file; the JSON is renamed into its place last
//             copy-<content>/NAME ...           files that belong together, as links; renamed into its place, never changed
// <name> and <content> are hashes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shm/base/unique_fd.hpp"
#include "shoal/result.hpp"

namespace shoal::fetch {

/// A file as the server named it when it sent it.
struct FileRecord {
  std::string etag, last_modified;          ///< of the answer; empty if it had none
  std::string version;                      ///< Source::find()'s
  std::optional<std::uint64_t> size_bytes;  ///< of the whole file, if it is known
  std::string sha256;                       ///< of whole files
  bool may_resume = false;  ///< etag or last_modified identify the bytes, so that a server can send the rest of them
  std::string stored;       ///< of whole files: the name in files/
};

/// One process uses it at a time.
///   Threads  thread-bound
class DirectoryCache {
 public:
  /// Makes the directories. Errors: those of mkdir()
  static Result<DirectoryCache> open(std::filesystem::path directory);

  /// The whole file that is known under this name, and where it is.
  std::optional<FileRecord> whole(const std::string& name) const;
  std::filesystem::path path_of(const FileRecord& record) const { return files() / record.stored; }

  /// The beginning of a file, and how many bytes of it there are; nothing if there is none that can be trusted: after a restart
  /// of the machine, nobody knows which bytes had reached the disk.
  struct Part {
    FileRecord record;
    std::uint64_t bytes = 0;
  };
  std::optional<Part> part(const std::string& name) const;
  /// Begins the file anew, or goes on at its end.
  Result<UniqueFd> begin_part(const std::string& name, const FileRecord& record);
  Result<UniqueFd> continue_part(const std::string& name) const;
  std::filesystem::path part_path(const std::string& name) const;
  void drop_part(const std::string& name);

  /// The part is the whole file now. Everything of it is on disk when this returns.
  Result<FileRecord> keep(const std::string& name, FileRecord record);

  /// A directory with exactly these files, and links to other directories. An earlier one with the same content is used again.
  ///   Returns  its path
  Result<std::filesystem::path> assemble(const std::map<std::string, FileRecord>& files,
                                         const std::map<std::string, std::filesystem::path>& directories);

  /// The directories outside this one that copies link to.
  std::vector<std::filesystem::path> linked_directories() const;

  /// Copies that nobody asked for during so many seconds are removed when a new one is made, but for the latest two.
  static constexpr std::int64_t kKeptS = 7 * 24 * 3600;

 private:
  explicit DirectoryCache(std::filesystem::path directory) : directory_(std::move(directory)) {}
  std::filesystem::path files() const { return directory_ / "files"; }
  std::filesystem::path record_path(const std::string& name) const;
  Status write_record(const std::filesystem::path& file, const FileRecord& record) const;
  static std::optional<FileRecord> read_record(const std::filesystem::path& file);
  void remove_old_copies() const;

  std::filesystem::path directory_;
};

/// Writes what the kernel has of a file or directory to disk. Errors: those of open() and fsync()
Status flush(const std::filesystem::path& path);

/// Waits for the lock of a directory, which ends with this process. `wait` is called while another process holds it; what it
/// returns ends the wait if it is not OK.
Result<UniqueFd> lock_directory(const std::filesystem::path& directory, const std::function<Status()>& wait);

}  // namespace shoal::fetch
