#include "supervisor/socket_directory.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "shm/base/errors.hpp"
#include "shm/wire/socket.hpp"

namespace shoal::supervisor {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kLongestName = "/w18446744073709551615-63";

bool is_number(std::string_view text) { return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos; }

// "attach", "c12" or "w12-0".
bool is_our_socket(std::string_view name) {
  if (name == "attach") return true;
  if (name.starts_with("c")) return is_number(name.substr(1));
  const auto dash = name.find('-');
  return name.starts_with("w") && dash != name.npos && is_number(name.substr(1, dash - 1)) && is_number(name.substr(dash + 1));
}

Status make_directory(const std::string& path) {
  std::error_code error;
  fs::create_directories(fs::path(path).parent_path(), error);
  if (::mkdir(path.c_str(), 0700) == 0) return {};
  if (errno != EEXIST) return status_from_errno("create directory", path, errno);
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return status_from_errno("look at", path, errno);
  if (!S_ISDIR(info.st_mode)) return invalid_argument("{} is no directory", path);
  if (info.st_uid != ::geteuid() || (info.st_mode & S_ISVTX) != 0) {
    return permission_denied("{} is not a directory of this user alone: set SHOAL_DIR to one that does not exist yet", path);
  }
  if ((info.st_mode & 0777) != 0700 && ::chmod(path.c_str(), 0700) != 0) return status_from_errno("make private", path, errno);
  return {};
}

std::string lock_holder(int fd) {
  char text[32] = {};
  const ssize_t size = ::pread(fd, text, sizeof text - 1, 0);
  return size > 0 ? std::string(text, static_cast<std::size_t>(size)) : "unknown";
}

}  // namespace

std::string default_socket_directory() {
  std::string directory = "/run/shoal";
  if (const char* runtime = std::getenv("XDG_RUNTIME_DIR"); runtime && *runtime) directory = std::string(runtime) + "/shoal";
  if (const char* own = std::getenv("SHOAL_DIR"); own && *own) directory = own;
  return fs::absolute(directory).lexically_normal().string();
}

Result<SocketDirectory> SocketDirectory::open(const std::string& path) {
  if (path.size() + kLongestName.size() > wire::kMaxSocketPath) {
    return invalid_argument("directory {}: {} bytes are too long for its sockets (at most {})", path, path.size(),
                            wire::kMaxSocketPath - kLongestName.size());
  }
  SHOAL_RETURN_IF_ERROR(make_directory(path));
  const std::string lock_path = path + "/lock";
  UniqueFd lock(::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock) return status_from_errno("open", lock_path, errno);
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return status_from_errno("lock", lock_path, errno);
    return failed_precondition("another daemon serves in {} (pid {}): stop it, or set SHOAL_DIR to another directory", path,
                               lock_holder(lock.get()));
  }
  const std::string pid = std::to_string(::getpid());
  if (::ftruncate(lock.get(), 0) != 0 || ::pwrite(lock.get(), pid.data(), pid.size(), 0) < 0)
    return status_from_errno("write", lock_path, errno);
  SocketDirectory directory(path, std::move(lock));
  directory.sweep();
  return directory;
}

SocketDirectory::~SocketDirectory() {
  if (lock_) sweep();
}

void SocketDirectory::sweep() const {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(path_, error)) {
    if (is_our_socket(entry.path().filename().string())) ::unlink(entry.path().c_str());
  }
}

}  // namespace shoal::supervisor
