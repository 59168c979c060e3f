#include "fetch/remote_directory.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "shm/base/errors.hpp"
#include "shm/base/text_file.hpp"

namespace shoal::fetch {
namespace {

namespace fs = std::filesystem;
using Need = FileFetcher::Need;

}  // namespace

Result<RemoteDirectory> RemoteDirectory::open(const FetchTools& tools, const std::string& directory, const fs::path& cache,
                                              const fs::path& picture) {
  SHOAL_ASSIGN_OR_RETURN(DirectoryCache opened, DirectoryCache::open(cache));
  std::error_code error;
  fs::create_directory(picture, error);
  if (error) return status_from_errno("make the directory", picture.string(), error.value());
  RemoteDirectory made(tools, FileFetcher(tools, directory, std::move(opened)), picture);
  SHOAL_ASSIGN_OR_RETURN(const bool has_checksums, made.take_text(kChecksums, Need::kOptional));
  if (!has_checksums) return made;
  const FileRecord& record = made.taken_.at(kChecksums);
  const auto text = read_text_file(made.cache().path_of(record));
  if (!text.ok()) return text.status().with_context(made.url_of(kChecksums));
  SHOAL_ASSIGN_OR_RETURN(auto checksums, parse_checksums(*text, made.url_of(kChecksums)));
  made.files_.set_checksums(std::move(checksums));
  return made;
}

Status RemoteDirectory::draw(const std::string& name) {
  if (taken_.contains(name)) return {};  // it is shown as it is
  const fs::path file = picture_ / name;
  const UniqueFd made(::open(file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  return made ? Status() : status_from_errno("make", file.string(), errno);
}

Result<bool> RemoteDirectory::list(const std::string& prefix) {
  SHOAL_ASSIGN_OR_RETURN(const auto listed, tools_.source.list(directory(), prefix));
  if (!listed) {
    std::size_t count = 0;
    for (const auto& [name, checksum] : files_.checksums()) {
      if (!is_file_name(name)) continue;
      if (++count > kMostNames) return too_many_names(url_of(kChecksums));
      if (name.starts_with(prefix)) SHOAL_RETURN_IF_ERROR(draw(name));
    }
    return count > 0;
  }
  for (const RemoteFile& file : *listed) {
    if (!file.is_directory) continue;
    directories_.insert(file.name);
    std::error_code error;
    fs::create_directory(picture_ / file.name, error);
    if (error) return status_from_errno("make the directory", (picture_ / file.name).string(), error.value());
  }
  for (const RemoteFile& file : *listed) {  // S3 may have both of one name
    if (!has_directory(file.name)) SHOAL_RETURN_IF_ERROR(draw(file.name));
  }
  return true;
}

Result<bool> RemoteDirectory::take_text(const std::string& name, Need need) { return take({name, need, kLargestTextFile}); }

Result<bool> RemoteDirectory::take(const FileFetcher::Wish& wish) {
  const std::string& name = wish.name;
  if (taken_.contains(name)) return true;
  SHOAL_ASSIGN_OR_RETURN(const auto record, files_.fetch(wish));
  const fs::path shown = picture_ / name;
  ::unlink(shown.c_str());
  if (!record) return false;
  // A hard link would change the time by which a reload sees that a file has not changed.
  if (::symlink(cache().path_of(*record).c_str(), shown.c_str()) != 0) return status_from_errno("link", shown.string(), errno);
  taken_.emplace(name, *record);
  return true;
}

Status RemoteDirectory::check_checksums(const std::vector<fs::path>& others) const {
  std::vector<std::string> names;
  for (const auto& [name, record] : taken_) {
    if (name != kChecksums) names.push_back(name);
  }
  for (const fs::path& file : others) names.push_back(file.filename().string());
  return check_names(files_.checksums(), names, url_of(kChecksums));
}

Result<fs::path> RemoteDirectory::assemble(const std::map<std::string, fs::path>& directories) {
  if (directories.empty()) SHOAL_RETURN_IF_ERROR(check_checksums());
  return files_.cache().assemble(taken_, directories);
}

}  // namespace shoal::fetch
