#include "supervisor/process/socket_directory.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string_view>

#include "shm/base/errors.hpp"
#include "shm/wire/local_address.hpp"
#include "shm/wire/socket.hpp"

namespace shoal::supervisor {
namespace {

namespace fs = std::filesystem;

// There are never as many workers as that number says.
constexpr std::string_view kLongestName = "/lanes/w9999999999-abcdefghijklmnopqrstuvwxyz-63";
constexpr std::string_view kNameLetters = "abcdefghijklmnopqrstuvwxyz234567";
constexpr std::size_t kNameBytes = 26;  // of 5 bits each

bool is_number(std::string_view text) { return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos; }

bool is_random_name(std::string_view text) {
  return text.size() == kNameBytes && text.find_first_not_of(kNameLetters) == std::string_view::npos;
}

// "attach", "c12", and of daemons before 0.3 the lanes' "w12-<random name>-0", or "w12-0".
bool is_our_socket(std::string_view name) {
  if (name == "attach") return true;
  if (name.starts_with("c")) return is_number(name.substr(1));
  const auto dash = name.find('-'), last = name.rfind('-');
  if (!name.starts_with("w") || dash == name.npos || !is_number(name.substr(1, dash - 1)) || !is_number(name.substr(last + 1)))
    return false;
  return last == dash || is_random_name(name.substr(dash + 1, last - dash - 1));
}

using Names = std::unique_ptr<DIR, int (*)(DIR*)>;

// Opened again: readdir() moves the position of its descriptor, and closedir() closes it.
Names names_in(int directory) {
  const int again = ::openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  return {again < 0 ? nullptr : ::fdopendir(again), &::closedir};
}

// What "lock" is, read_lock() says.
bool is_made_by_a_daemon(int directory, const std::string& name) {
  struct stat info {};
  if (name == "lock") return true;
  if (::fstatat(directory, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) return errno == ENOENT;
  return name == "lanes" ? S_ISDIR(info.st_mode) : is_our_socket(name) && S_ISSOCK(info.st_mode);
}

// The first name in it that no daemon has made; empty: there is none.
Result<std::string> foreign_name(int directory, const std::string& path) {
  const Names names = names_in(directory);
  if (!names) return status_from_errno("list", path, errno);
  errno = 0;
  while (const dirent* entry = ::readdir(names.get())) {
    const std::string name = entry->d_name;
    if (name != "." && name != ".." && !is_made_by_a_daemon(directory, name)) return name;
    errno = 0;
  }
  if (errno != 0) return status_from_errno("list", path, errno);
  return std::string();
}

// The last part of the path belongs to the daemon and must not be a link. The administrator owns the parts before it.
Result<UniqueFd> open_directory(const std::string& path) {
  std::error_code error;
  fs::create_directories(fs::path(path).parent_path(), error);
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return status_from_errno("create directory", path, errno);
  struct stat info {};
  if (::lstat(path.c_str(), &info) == 0 && S_ISLNK(info.st_mode))
    return invalid_argument("{} is a symbolic link: set SHOAL_DIR to the directory itself", path);
  UniqueFd directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!directory && errno == ENOTDIR) return invalid_argument("{} is not a directory: set SHOAL_DIR to another path", path);
  if (!directory) return status_from_errno("open directory", path, errno);
  if (::fstat(directory.get(), &info) != 0) return status_from_errno("look at", path, errno);
  if (info.st_uid != ::geteuid() || (info.st_mode & S_ISVTX) != 0)
    return permission_denied("{} is not a directory of this user alone: set SHOAL_DIR to one that does not exist yet", path);
  return directory;
}

// A daemon of this user has served here. Only this user can have made both, and no other program leaves the two of them.
bool has_been_ours(int directory) {
  const auto is_private = [&](const char* name, mode_t kind) {
    struct stat info {};
    return ::fstatat(directory, name, &info, AT_SYMLINK_NOFOLLOW) == 0 && info.st_uid == ::geteuid() &&
           (info.st_mode & (S_IFMT | 0077)) == kind;
  };
  return is_private("lock", S_IFREG) && is_private("lanes", S_IFDIR);
}

// Others may use a directory that they may enter, such as a home: it is theirs to keep unless only daemons have used it. One that
// has been ours was made private then, so whoever opened it since, such as systemd at each start with RuntimeDirectoryMode=0755,
// opened a daemon's directory.
Status check_private(const UniqueFd& directory, const std::string& path) {
  struct stat info {};
  if (::fstat(directory.get(), &info) != 0) return status_from_errno("look at", path, errno);
  if ((info.st_mode & 0077) == 0 || has_been_ours(directory.get())) return {};
  SHOAL_ASSIGN_OR_RETURN(const std::string foreign, foreign_name(directory.get(), path));
  if (foreign.empty()) return {};
  return permission_denied(
      "{} is not a directory of this user alone: set SHOAL_DIR to one that does not exist yet "
      "(others may enter it, and '{}' in it is not a daemon's)",
      path, foreign);
}

Status make_private(const UniqueFd& directory, const std::string& path) {
  return ::fchmod(directory.get(), 0700) == 0 ? Status() : status_from_errno("make private", path, errno);
}

// A lock file contains the pid of its daemon, or nothing. Any other file was not made by a daemon.
Result<std::string> read_lock(int fd, const std::string& path) {
  constexpr std::size_t kLongestPid = 20;
  struct stat info {};
  if (::fstat(fd, &info) != 0) return status_from_errno("look at", path, errno);
  if (S_ISREG(info.st_mode) && info.st_uid != ::geteuid())
    return permission_denied("{} belongs to user {}: remove it, or set SHOAL_DIR to another directory", path, info.st_uid);
  char text[kLongestPid + 1];
  const ssize_t size = S_ISREG(info.st_mode) && info.st_nlink <= 1 ? ::pread(fd, text, sizeof text, 0) : -1;
  const std::string_view pid(text, static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
  if (size < 0 || pid.size() > kLongestPid || !(pid.empty() || is_number(pid)))
    return invalid_argument("{} is not the lock of a daemon: remove it, or set SHOAL_DIR to another directory", path);
  return std::string(pid);
}

void sweep_sockets(int directory, bool (*is_ours)(std::string_view name)) {
  const Names names = names_in(directory);
  while (const dirent* entry = names ? ::readdir(names.get()) : nullptr) {
    struct stat info {};
    if (is_ours(entry->d_name) && ::fstatat(directory, entry->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISSOCK(info.st_mode))
      ::unlinkat(directory, entry->d_name, 0);
  }
}

}  // namespace

Result<std::string> random_name() {
  std::array<unsigned char, kNameBytes> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), GRND_NONBLOCK) != static_cast<ssize_t>(bytes.size()))
    return unavailable("the kernel has no random numbers yet: {}", std::strerror(errno));
  std::string name;
  for (const unsigned char byte : bytes) name += kNameLetters[byte % kNameLetters.size()];
  return name;
}

Result<SocketDirectory> SocketDirectory::open(const std::string& given) {
  std::string path = given;
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();  // with a trailing slash, O_NOFOLLOW does follow a link
  if (path.size() + kLongestName.size() > wire::kMaxSocketPath) {
    return invalid_argument("directory {}: {} bytes are too long for its sockets (at most {})", path, path.size(),
                            wire::kMaxSocketPath - kLongestName.size());
  }
  SHOAL_ASSIGN_OR_RETURN(UniqueFd files, open_directory(path));
  SHOAL_RETURN_IF_ERROR(check_private(files, path));
  const std::string lock_path = path + "/lock";
  UniqueFd lock(::openat(files.get(), "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
  if (!lock && errno == ELOOP)
    return invalid_argument("{} is a symbolic link: remove it, or set SHOAL_DIR to another directory", lock_path);
  if (!lock) return status_from_errno("open", lock_path, errno);
  SHOAL_ASSIGN_OR_RETURN(const std::string holder, read_lock(lock.get(), lock_path));
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return status_from_errno("lock", lock_path, errno);
    return failed_precondition("another daemon serves in {} (pid {}): stop it, or set SHOAL_DIR to another directory", path,
                               holder.empty() ? "unknown" : holder);
  }
  const std::string pid = std::to_string(::getpid());
  if (::ftruncate(lock.get(), 0) != 0 || ::pwrite(lock.get(), pid.data(), pid.size(), 0) < 0)
    return status_from_errno("write", lock_path, errno);
  // Not earlier: the directory may be another daemon's. One that a daemon has shared with a group has nothing for that group, and
  // share_with() says who may enter: until then clients find no daemon, instead of being refused.
  struct stat info {};
  const bool was_shared = ::fstat(files.get(), &info) == 0 && (info.st_mode & 0777) == 0710 && has_been_ours(files.get());
  if (!was_shared) SHOAL_RETURN_IF_ERROR(make_private(files, path));
  SocketDirectory directory(std::move(path), std::move(files), std::move(lock));
  SHOAL_ASSIGN_OR_RETURN(directory.lanes_, open_directory(wire::lanes_directory(directory.path_)));
  SHOAL_RETURN_IF_ERROR(make_private(directory.lanes_, wire::lanes_directory(directory.path_)));
  directory.sweep();
  return directory;
}

SocketDirectory::~SocketDirectory() {
  if (lock_ && check_ours().ok()) sweep();
}

// Shared is enough: systemd-tmpfiles wants the lock for itself, and no user who shares it has to wait.
Status SocketDirectory::keep_from_cleaners() const {
  return ::flock(directory_.get(), LOCK_SH | LOCK_NB) == 0 ? Status() : status_from_errno("lock", path_, errno);
}

Status SocketDirectory::share_with(std::optional<gid_t> group) const {
  const auto is_shared = [&](const struct stat& file, mode_t mode) {
    return file.st_gid == group && (file.st_mode & 0777) == mode;
  };
  struct stat own {};
  const bool is_open = ::fstat(directory_.get(), &own) == 0 && is_shared(own, 0710);
  // Nobody must get in by the group that the directory had before. If it has the right one, nobody is turned away for a moment.
  if (!is_open) SHOAL_RETURN_IF_ERROR(make_private(directory_, path_));
  if (!group) return {};
  const auto change = [&](int result, const std::string& path) {
    if (result == 0 || errno == ENOENT) return Status();  // the attach socket may just have been removed
    if (errno != EPERM) return status_from_errno(format("give group {}", *group), path, errno);
    return permission_denied(
        "socket_group: {} cannot be given to group {}: user {}, who runs shoald, must be a member of it, or root", path, *group,
        ::geteuid());
  };
  constexpr auto kSame = static_cast<uid_t>(-1);
  if (const struct stat attach = attach_file(); S_ISSOCK(attach.st_mode) && !is_shared(attach, 0660)) {
    SHOAL_RETURN_IF_ERROR(change(::fchownat(directory_.get(), "attach", kSame, *group, AT_SYMLINK_NOFOLLOW), attach_path()));
    SHOAL_RETURN_IF_ERROR(change(::fchmodat(directory_.get(), "attach", 0660, 0), attach_path()));
  }
  if (is_open) return {};
  SHOAL_RETURN_IF_ERROR(change(::fchown(directory_.get(), kSame, *group), path_));
  return change(::fchmod(directory_.get(), 0710), path_);
}

struct stat SocketDirectory::attach_file() const {
  struct stat info {};
  if (::fstatat(directory_.get(), "attach", &info, AT_SYMLINK_NOFOLLOW) != 0) info = {};
  return info;
}

Status SocketDirectory::check_ours() const {
  const auto is_same = [](const UniqueFd& ours, const std::string& path) {
    struct stat own {
    }, there{};
    return ::fstat(ours.get(), &own) == 0 && ::lstat(path.c_str(), &there) == 0 && own.st_dev == there.st_dev &&
           own.st_ino == there.st_ino;
  };
  if (is_same(directory_, path_) && is_same(lock_, path_ + "/lock")) return {};
  return unavailable(
      "{} or its lock was removed, or replaced. Restart shoald: until then clients may find no daemon, or another one", path_);
}

void SocketDirectory::sweep() const {
  sweep_sockets(directory_.get(), is_our_socket);
  sweep_sockets(lanes_.get(), [](std::string_view) { return true; });  // a zygote that was taken over may choose any name
}

}  // namespace shoal::supervisor
