// The record of measured choices on disk.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <span>
#include <thread>

#include "shm/base/errors.hpp"
#include "shm/base/regular_file.hpp"
#include "shm/base/unique_fd.hpp"
#include "worker/exec/tuning.hpp"
#include "worker/graph/content_hash.hpp"

namespace shoal::worker {
namespace {

// The file: this line, the identity's lines, an empty line, the choices, "checksum HEX".
constexpr std::string_view kFirstLine = "shoal tuning 1\n";
constexpr std::string_view kChecksum = "checksum ";
constexpr std::size_t kMaxBytes = 1 << 20;
constexpr std::chrono::seconds kLockLimit{2};  // a writer needs milliseconds

std::string hex_hash(std::string_view text) {
  ContentHash hash;
  hash.add(text);
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(hash.value()));
  return digits;
}

Status check_private(int fd, const std::string& path) {
  struct stat info;
  if (::fstat(fd, &info) != 0) return status_from_errno("stat", path, errno);
  if (!S_ISREG(info.st_mode)) return data_loss("{} is no regular file", path);
  if (info.st_uid != ::geteuid() || (info.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return data_loss("{} could have been written by others", path);
  return {};
}

Result<std::string> read_file(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!fd) return status_from_errno("open", path, errno);
  SHOAL_RETURN_IF_ERROR(check_private(fd.get(), path));
  std::string text(kMaxBytes + 1, '\0');
  SHOAL_ASSIGN_OR_RETURN(const std::size_t size, read_fully(fd.get(), std::as_writable_bytes(std::span(text)), path));
  if (size > kMaxBytes) return data_loss("{} is larger than {} bytes", path, kMaxBytes);
  text.resize(size);
  return text;
}

// Always makes a new file: an existing one of that name may be a link to another file, or a pipe.
Status write_file(const std::string& path, std::string_view text) {
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) return status_from_errno("remove", path, errno);
  const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd) return status_from_errno("create", path, errno);
  while (!text.empty()) {
    const ssize_t put = ::write(fd.get(), text.data(), text.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return status_from_errno("write", path, errno);
    text.remove_prefix(static_cast<std::size_t>(put));
  }
  return ::fsync(fd.get()) == 0 ? Status() : status_from_errno("write", path, errno);
}

}  // namespace

TuningRecord::TuningRecord(std::filesystem::path directory, std::string identity)
    : directory_(std::move(directory)),
      file_(directory_ / (hex_hash(identity) + ".tuning")),
      beside_(file_.string() + ".new"),
      identity_(std::move(identity)) {}

Result<Choices> TuningRecord::read() const {
  SHOAL_ASSIGN_OR_RETURN(const std::string text, read_file(file_.string()));
  const std::string head = std::string(kFirstLine) + identity_ + "\n\n";
  const std::size_t end = text.rfind(kChecksum);
  if (!text.starts_with(head)) return data_loss("{} is of another machine, model or version of Shoal", file_.string());
  if (end == std::string::npos || end < head.size() ||
      text.substr(end) != format("{}{}\n", kChecksum, hex_hash(text.substr(0, end))))
    return data_loss("{} is damaged", file_.string());
  auto choices = Choices::parse(std::string_view(text).substr(head.size(), end - head.size()));
  return choices.ok() ? choices : choices.status().with_context(file_.string());
}

Result<UniqueFd> TuningRecord::lock_directory() const {
  std::error_code error;
  std::filesystem::create_directories(directory_.parent_path(), error);
  if (::mkdir(directory_.c_str(), 0700) != 0 && errno != EEXIST) return status_from_errno("make", directory_.string(), errno);
  UniqueFd directory(::open(directory_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory) return status_from_errno("open", directory_.string(), errno);
  // Any process that may read the directory can lock it, and keep it locked.
  const auto limit = std::chrono::steady_clock::now() + kLockLimit;
  while (::flock(directory.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return status_from_errno("lock", directory_.string(), errno);
    if (std::chrono::steady_clock::now() > limit)
      return deadline_exceeded("lock {}: another process has held the lock for {} s", directory_.string(), kLockLimit.count());
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return directory;
}

Status TuningRecord::prepare() const {
  SHOAL_ASSIGN_OR_RETURN(const UniqueFd lock, lock_directory());
  SHOAL_RETURN_IF_ERROR(write_file(beside_.string(), ""));
  std::remove(beside_.c_str());
  return {};
}

Result<Choices> TuningRecord::write(const Choices& choices) const {
  SHOAL_ASSIGN_OR_RETURN(const UniqueFd lock, lock_directory());
  if (auto standing = read(); standing.ok()) return standing;
  std::string text = std::string(kFirstLine) + identity_ + "\n\n" + choices.to_text();
  text += format("{}{}\n", kChecksum, hex_hash(text));
  SHOAL_RETURN_IF_ERROR(write_file(beside_.string(), text));
  if (std::rename(beside_.c_str(), file_.c_str()) != 0) return status_from_errno("rename", beside_.string(), errno);
  return choices;
}

std::string describe_machine() {
  std::string model, flags;
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line) && (model.empty() || flags.empty());) {
    const std::size_t colon = line.find(": ");
    if (colon == std::string::npos) continue;
    if (line.starts_with("model name")) model = line.substr(colon + 2);
    if (line.starts_with("flags") || line.starts_with("Features")) flags = line.substr(colon + 2);
  }
  return format("cpu {}; features {}; cores {}", model, hex_hash(flags), std::thread::hardware_concurrency());
}

}  // namespace shoal::worker
