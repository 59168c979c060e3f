#include "fetch/directory_cache.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <functional>
#include <span>
#include <system_error>

#include "fetch/digest.hpp"
#include "fetch/location.hpp"
#include "shm/base/errors.hpp"
#include "shm/base/json_text.hpp"
#include "shm/base/regular_file.hpp"
#include "shm/base/text_file.hpp"

namespace shoal::fetch {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::size_t kIdDigits = 16;
constexpr const char* kRecord = ".json";
constexpr std::string_view kCopy = "copy-", kNew = "new";
constexpr std::size_t kLatestKept = 2;
constexpr mode_t kPrivate = 0600;

/// Changes when the machine starts anew.
const std::string& boot_id() {
  static const std::string id = [] {
    std::ifstream file("/proc/sys/kernel/random/boot_id");
    std::string text;
    std::getline(file, text);
    return text;
  }();
  return id;
}

Status rename_file(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) == 0) return {};
  return status_from_errno("rename", from.string(), errno);
}

Result<UniqueFd> open_to_write(const fs::path& file, int flags) {
  UniqueFd opened(::open(file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | flags, kPrivate));
  if (!opened) return status_from_errno("open", file.string(), errno);
  return opened;
}

Status make_directory(const fs::path& directory) {
  if (::mkdir(directory.c_str(), 0700) == 0 || errno == EEXIST) return {};
  return status_from_errno("make the directory", directory.string(), errno);
}

std::string id_of(std::string_view text) { return hex(sha256(text)).substr(0, kIdDigits); }

std::time_t changed_at(const fs::path& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 ? info.st_mtim.tv_sec : 0;
}

}  // namespace

Status flush(const fs::path& path) {
  const UniqueFd opened(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (opened && ::fsync(opened.get()) == 0) return {};
  return status_from_errno("write to disk:", path.string(), errno);
}

Result<UniqueFd> lock_directory(const fs::path& directory, const std::function<Status()>& wait) {
  SHOAL_RETURN_IF_ERROR(make_directory(directory));
  SHOAL_ASSIGN_OR_RETURN(UniqueFd lock, open_to_write(directory / "lock", 0));
  while (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return status_from_errno("lock", directory.string(), errno);
    SHOAL_RETURN_IF_ERROR(wait());
  }
  return lock;
}

Result<DirectoryCache> DirectoryCache::open(fs::path directory) {
  DirectoryCache cache(std::move(directory));
  SHOAL_RETURN_IF_ERROR(make_directory(cache.directory_));
  SHOAL_RETURN_IF_ERROR(make_directory(cache.files()));
  return cache;
}

// ---- records ----

fs::path DirectoryCache::part_path(const std::string& name) const { return files() / (id_of(name) + ".part"); }
fs::path DirectoryCache::record_path(const std::string& name) const { return files() / (id_of(name) + kRecord); }

Status DirectoryCache::write_record(const fs::path& file, const FileRecord& record) const {
  json object{
      {"etag", record.etag},     {"last_modified", record.last_modified}, {"version", record.version}, {"sha256", record.sha256},
      {"stored", record.stored}, {"may_resume", record.may_resume},       {"boot", boot_id()}};
  if (record.size_bytes) object["size_bytes"] = *record.size_bytes;
  const std::string text = json_text(object);
  const fs::path beside = file.string() + ".new";
  ::unlink(beside.c_str());
  {
    SHOAL_ASSIGN_OR_RETURN(const UniqueFd opened, open_to_write(beside, O_EXCL));
    SHOAL_RETURN_IF_ERROR(write_fully(opened.get(), std::as_bytes(std::span(text)), beside.string()));
    if (::fsync(opened.get()) != 0) return status_from_errno("write", beside.string(), errno);
  }
  return rename_file(beside, file);
}

std::optional<FileRecord> DirectoryCache::read_record(const fs::path& file) try {
  const auto text = read_text_file(file);
  if (!text.ok()) return std::nullopt;
  const json object = parse_json(*text);
  const auto get = [&](const char* key) { return object.at(key).get<std::string>(); };
  FileRecord record{.etag = get("etag"),
                    .last_modified = get("last_modified"),
                    .version = get("version"),
                    .sha256 = get("sha256"),
                    .may_resume = object.at("may_resume").get<bool>(),
                    .stored = get("stored")};
  if (object.contains("size_bytes")) record.size_bytes = object["size_bytes"].get<std::uint64_t>();
  if (record.stored.empty() ? get("boot") != boot_id() : !is_file_name(record.stored)) return std::nullopt;
  return record;
} catch (const std::exception&) {  // somebody else wrote it: it is fetched again
  return std::nullopt;
}

std::optional<FileRecord> DirectoryCache::whole(const std::string& name) const {
  auto record = read_record(record_path(name));
  if (!record || record->stored.empty()) return std::nullopt;
  std::error_code error;
  const std::uintmax_t bytes = fs::file_size(path_of(*record), error);
  if (error || bytes != record->size_bytes) return std::nullopt;
  return record;
}

// ---- parts ----

std::optional<DirectoryCache::Part> DirectoryCache::part(const std::string& name) const {
  auto record = read_record(part_path(name).string() + kRecord);
  std::error_code error;
  const std::uintmax_t bytes = fs::file_size(part_path(name), error);
  if (!record || !record->stored.empty() || error || (record->size_bytes && bytes > *record->size_bytes)) return std::nullopt;
  return Part{*std::move(record), bytes};
}

// The old bytes go before the new record comes: it must not describe them.
Result<UniqueFd> DirectoryCache::begin_part(const std::string& name, const FileRecord& record) {
  drop_part(name);
  SHOAL_RETURN_IF_ERROR(write_record(part_path(name).string() + kRecord, record));
  return open_to_write(part_path(name), O_EXCL);
}

Result<UniqueFd> DirectoryCache::continue_part(const std::string& name) const { return open_to_write(part_path(name), O_APPEND); }

void DirectoryCache::drop_part(const std::string& name) {
  ::unlink(part_path(name).c_str());
  ::unlink((part_path(name).string() + kRecord).c_str());
}

Result<FileRecord> DirectoryCache::keep(const std::string& name, FileRecord record) {
  record.stored = format("{}.{}", id_of(name), id_of(record.sha256));
  SHOAL_RETURN_IF_ERROR(flush(part_path(name)));
  SHOAL_RETURN_IF_ERROR(rename_file(part_path(name), path_of(record)));
  SHOAL_RETURN_IF_ERROR(write_record(record_path(name), record));
  SHOAL_RETURN_IF_ERROR(flush(files()));
  drop_part(name);
  std::error_code error;  // earlier files of this name go; copies have links of their own
  for (fs::directory_iterator entry(files(), error), end; !error && entry != end; entry.increment(error)) {
    const std::string file = entry->path().filename().string();
    if (file.starts_with(id_of(name)) && file != record.stored && !file.ends_with(kRecord)) ::unlink(entry->path().c_str());
  }
  return record;
}

// ---- copies ----

Result<fs::path> DirectoryCache::assemble(const std::map<std::string, FileRecord>& files,
                                          const std::map<std::string, fs::path>& directories) {
  std::string content;
  for (const auto& [name, record] : files) content += format("{}\n{}\n", name, record.stored);
  for (const auto& [name, directory] : directories) content += format("{}/\n{}\n", name, directory.string());
  const fs::path copy = directory_ / (std::string(kCopy) + id_of(content)), made = directory_ / kNew;
  std::error_code error;
  if (fs::is_directory(copy, error)) {  // its time says when it was used last
    const fs::path used = copy / ".used";
    SHOAL_ASSIGN_OR_RETURN(const UniqueFd touched, open_to_write(used, 0));
    ::unlink(used.c_str());
    return copy;
  }
  fs::remove_all(made, error);  // of a process that was killed
  SHOAL_RETURN_IF_ERROR(make_directory(made));
  for (const auto& [name, record] : files) {
    const fs::path link = made / name;
    if (::linkat(AT_FDCWD, path_of(record).c_str(), AT_FDCWD, link.c_str(), 0) != 0)
      return status_from_errno("link", link.string(), errno);
  }
  for (const auto& [name, directory] : directories) {
    const fs::path link = made / name;
    if (::symlinkat(directory.lexically_relative(copy).c_str(), AT_FDCWD, link.c_str()) != 0)
      return status_from_errno("link", link.string(), errno);
  }
  SHOAL_RETURN_IF_ERROR(flush(made));
  SHOAL_RETURN_IF_ERROR(rename_file(made, copy));
  SHOAL_RETURN_IF_ERROR(flush(directory_));
  remove_old_copies();
  return copy;
}

std::vector<fs::path> DirectoryCache::linked_directories() const {
  std::vector<fs::path> linked;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(directory_, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code unreadable;
    if (!entry->is_symlink(unreadable)) continue;
    linked.push_back((entry->path().parent_path() / fs::read_symlink(entry->path(), unreadable)).lexically_normal());
  }
  return linked;
}

// A daemon may still serve one of them, and read it again when it starts a process anew.
void DirectoryCache::remove_old_copies() const {
  std::vector<std::pair<std::time_t, fs::path>> copies;
  std::error_code error;
  for (fs::directory_iterator entry(directory_, error), end; !error && entry != end; entry.increment(error)) {
    if (entry->path().filename().string().starts_with(kCopy)) copies.emplace_back(changed_at(entry->path()), entry->path());
  }
  std::ranges::sort(copies, std::greater<>());
  const std::time_t limit = std::time(nullptr) - kKeptS;
  for (std::size_t i = kLatestKept; i < copies.size(); ++i) {
    if (copies[i].first < limit) fs::remove_all(copies[i].second, error);
  }
}

}  // namespace shoal::fetch
