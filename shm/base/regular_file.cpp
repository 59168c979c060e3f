#include "shm/base/regular_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "shm/base/errors.hpp"

namespace shoal {

Result<RegularFile> open_regular_file(const std::filesystem::path& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) return status_from_errno("open", path.string(), errno);
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return status_from_errno("stat", path.string(), errno);
  if (!S_ISREG(info.st_mode)) return invalid_argument("{} is not a regular file", path.string());
  return RegularFile{std::move(fd), static_cast<std::size_t>(info.st_size)};
}

Result<std::size_t> read_fully(int fd, std::span<std::byte> room, std::string_view name) {
  std::size_t size = 0;
  while (size < room.size()) {
    const ssize_t got = ::read(fd, room.data() + size, room.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return status_from_errno("read", name, errno);
    if (got == 0) break;
    size += static_cast<std::size_t>(got);
  }
  return size;
}

Status write_fully(int fd, std::span<const std::byte> bytes, std::string_view name) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return status_from_errno("write", name, written < 0 ? errno : EIO);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return {};
}

}  // namespace shoal
