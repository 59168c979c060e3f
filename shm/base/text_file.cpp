#include "shm/base/text_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "shm/base/errors.hpp"
#include "shm/base/unique_fd.hpp"

namespace shoal {

Result<std::string> read_text_file(const std::filesystem::path& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) return status_from_errno("open", path.string(), errno);
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return status_from_errno("look at", path.string(), errno);
  if (!S_ISREG(info.st_mode)) return invalid_argument("{} is no file", path.string());
  std::string text;
  for (char part[16384];;) {
    const ssize_t size = ::read(fd.get(), part, sizeof part);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return status_from_errno("read", path.string(), errno);
    if (size == 0) return text;
    text.append(part, static_cast<std::size_t>(size));
    if (text.size() > kLargestTextFile)
      return invalid_argument("{} has more than {} MiB: that is no file of this kind", path.string(), kLargestTextFile >> 20);
  }
}

}  // namespace shoal
