#include "supervisor/process/sent_pidfd.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "shm/base/errors.hpp"

namespace shoal::supervisor {
namespace {

/// The beginning of a file of /proc. Empty when there is no such file.
Result<std::optional<std::string_view>> read_start(const std::string& file, std::span<char> buffer) {
  const UniqueFd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd && errno == ENOENT) return std::optional<std::string_view>();
  if (!fd) return status_from_errno("open", file, errno);
  const ssize_t size = ::read(fd.get(), buffer.data(), buffer.size() - 1);
  if (size < 0 && errno == ESRCH) return std::optional<std::string_view>();  // it has died since
  if (size < 0) return status_from_errno("read", file, errno);
  buffer[static_cast<std::size_t>(size)] = '\0';
  return std::optional(std::string_view(buffer.data(), static_cast<std::size_t>(size)));
}

/// Reading the fdinfo of other descriptors could take for ever: for an epoll descriptor the kernel waits for a lock that its
/// owner holds as long as it likes.
bool is_pidfd(const UniqueFd& fd) {
  char target[64];
  const ssize_t size = ::readlink(format("/proc/self/fd/{}", fd.get()).c_str(), target, sizeof target);
  const std::string_view text(target, static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
  return text == "anon_inode:[pidfd]" || text.starts_with("pidfd:[");  // the second since Linux 6.9
}

/// The pid of a pidfd's process; -1 if that process has been reaped. Nothing if the descriptor is not a pidfd.
Result<std::optional<long>> pid_of(const UniqueFd& fd) {
  if (!is_pidfd(fd)) return std::optional<long>();
  char buffer[2048];
  SHOAL_ASSIGN_OR_RETURN(const auto text, read_start(format("/proc/self/fdinfo/{}", fd.get()), buffer));
  constexpr std::string_view kLine = "\nPid:";
  const auto line = text ? text->find(kLine) : std::string_view::npos;
  if (line == std::string_view::npos) return std::optional<long>();
  return std::optional(std::strtol(text->data() + line + kLine.size(), nullptr, 10));
}

struct Family {
  int parent = 0, group = 0;
};

/// Empty when there is no such process.
Result<std::optional<Family>> family_of(long pid) {
  char buffer[1024];
  SHOAL_ASSIGN_OR_RETURN(const auto text, read_start(format("/proc/{}/stat", pid), buffer));
  const auto after_name = text ? text->rfind(')') : std::string_view::npos;  // a name may hold any character
  Family family;
  if (after_name == std::string_view::npos ||
      std::sscanf(text->data() + after_name + 1, " %*c %d %d", &family.parent, &family.group) != 2)
    return std::optional<Family>();
  return std::optional(family);
}

// A zygote leads a process group, and its children are born into it. Nobody can move a stranger into that group: the sandbox
// forbids it. When a zygote dies, its children are ours before its pidfd becomes readable. So that pidfd is not polled.
bool is_worker_of(const Family& family, const Child& zygote) {
  return family.parent == zygote.pid || (family.parent == ::getpid() && family.group == zygote.pid);
}

}  // namespace

Result<ReportedWorker> check_sent_pidfd(const UniqueFd& sent, std::uint64_t claimed, const Child& zygote) {
  SHOAL_ASSIGN_OR_RETURN(const auto pid, pid_of(sent));
  if (!pid) return invalid_argument("a descriptor that is no pidfd");
  if (*pid == -1) return ReportedWorker{};
  if (*pid <= 0 || static_cast<std::uint64_t>(*pid) != claimed)
    return invalid_argument("a pidfd of process {} for process {}", *pid, claimed);
  // Opens a pidfd of our own, because the sender may have made `sent` in another way, for example for one thread. For a thread
  // this call fails.
  UniqueFd own = open_pidfd(static_cast<pid_t>(*pid));
  if (!own && errno != ESRCH && errno != EINVAL && errno != ENOENT)
    return status_from_errno("open the pidfd of", format("process {}", *pid), errno);
  SHOAL_ASSIGN_OR_RETURN(const auto family, family_of(*pid));
  // The kernel does not reuse a pid before the process is reaped. So all lines above are about the same process.
  SHOAL_ASSIGN_OR_RETURN(const auto pid_now, pid_of(sent));
  if (pid_now == -1) return ReportedWorker{};
  if (!own || !family || *pid == zygote.pid || !is_worker_of(*family, zygote))
    return invalid_argument("a pidfd of process {}, which is no child of zygote {}", *pid, zygote.pid);
  return ReportedWorker{static_cast<pid_t>(*pid), std::move(own)};
}

}  // namespace shoal::supervisor
