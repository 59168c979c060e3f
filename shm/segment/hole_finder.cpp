#include "shm/segment/hole_finder.hpp"

#include <fcntl.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "shm/base/errors.hpp"
#include "shm/segment/segment.hpp"

namespace shoal {
namespace {

bool is_ours(const UniqueFd& fd) {
  struct stat info {};
  return ::fstat(fd.get(), &info) != 0 || info.st_uid == ::geteuid();
}

Status no_access() {
  return invalid_argument(
      "the daemon's user {} may not read and write the arena, so the kernel does not tell it what is allocated: leave "
      "the mode as it is after memfd_create()",
      ::geteuid());
}

Status check_writable(const std::string& path) {
  return ::faccessat(AT_FDCWD, path.c_str(), W_OK, AT_EACCESS) == 0 ? Status() : no_access();
}

Status no_memory(int error) { return overloaded("the daemon cannot look at an arena: {}", std::strerror(error)); }

std::string no_mincore(int error) {
  return format("mincore: {} (does a filter of system calls forbid it, as SystemCallFilter= or a container's seccomp profile?)",
                std::strerror(error));
}

}  // namespace

Status HoleFinder::check() {
  alignas(kPageBytes) static std::array<std::byte, kPageBytes> page;
  unsigned char is_there = 0;
  if (::mincore(page.data(), page.size(), &is_there) == 0) return {};
  return failed_precondition("the kernel does not tell what of an arena is allocated: {}", no_mincore(errno));
}

// mincore() does not see pages that are swapped out. Reading one brings it back, and leaves a hole as it is.
Result<HoleFinder::Found> HoleFinder::look(const UniqueFd& fd, std::uint64_t from, std::uint64_t to) {
  constexpr std::uint64_t kPages = 4096;  // per call
  std::array<unsigned char, kPages> is_there;
  int swapped_in = 0;
  for (std::uint64_t at = from; at < to;) {
    const std::uint64_t pages = std::min(kPages, (to - at + kPageBytes - 1) / kPageBytes);
    void* const window = ::mmap(nullptr, pages * kPageBytes, PROT_READ, MAP_SHARED, fd.get(), static_cast<off_t>(at));
    if (window == MAP_FAILED && errno == ENOMEM) return no_memory(errno);
    if (window == MAP_FAILED)
      return invalid_argument("the arena cannot be mapped: {}", status_from_errno("map", "it", errno).message());
    const auto ask = [&](std::uint64_t first, std::uint64_t count) {
      cost_ += count;
      return ::mincore(static_cast<std::byte*>(window) + first * kPageBytes, count * kPageBytes, &is_there[first]) == 0;
    };
    std::uint64_t good = 0;
    int error = ask(0, pages) ? 0 : errno, read_error = 0;
    for (; error == 0 && good < pages && swapped_in < kMostSwappedIn; ++good) {
      if ((is_there[good] & 1) != 0) continue;
      char byte = 0;
      if (::pread(fd.get(), &byte, 1, static_cast<off_t>(at + good * kPageBytes)) < 0) read_error = errno;
      if (read_error != 0) break;
      if (!ask(good, 1)) error = errno;
      if (error != 0 || (is_there[good] & 1) == 0) break;
      cost_ += kSwapCost;
      ++swapped_in;
    }
    ::munmap(window, pages * kPageBytes);
    if (read_error != 0) return no_memory(read_error);
    if (error != 0) return internal_error("look at an arena: {}", no_mincore(error));
    at += good * kPageBytes;
    if (at < to && swapped_in == kMostSwappedIn) return Found{at, true};
    if (good < pages) return Found{at};
  }
  return Found{to};
}

// The kernel changes the mode of a file and then reports it to inotify, both under the file's lock. If the mode was bad during
// the look, it was so before, or it still is afterwards, or it was changed twice. Then the first change has been reported.
Result<HoleFinder::Found> HoleFinder::allocated_end(const UniqueFd& fd, std::uint64_t from, std::uint64_t to) {
  if (is_ours(fd)) return look(fd, from, to);
  const std::string path = format("/proc/self/fd/{}", fd.get());
  int watch = -1;
  SHOAL_RETURN_IF_ERROR(begin_watch(path, watch));
  Status trusted = check_writable(path);
  Result<Found> found = trusted.ok() ? look(fd, from, to) : trusted;
  if (trusted.ok()) trusted = check_writable(path);
  const bool has_changed = read_notices();
  ::inotify_rm_watch(notices_.get(), watch);
  while (read_notices()) {  // up to the one that the watch has ended. Before, a client could go on making more
  }
  if (!trusted.ok()) return trusted;
  if (has_changed) return invalid_argument("the mode or the owner of the arena changed while it was looked at: leave them alone");
  return found;
}

Status HoleFinder::begin_watch(const std::string& path, int& watch) {
  if (!notices_) notices_.reset(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
  if (notices_) watch = ::inotify_add_watch(notices_.get(), path.c_str(), IN_ATTRIB);
  if (watch >= 0) return {};
  if (errno == EACCES) return no_access();
  return overloaded(
      "the daemon cannot watch the mode of another user's arena: {} (raise fs.inotify.max_user_instances, "
      "fs.inotify.max_user_watches or ulimit -n of the daemon)",
      std::strerror(errno));
}

bool HoleFinder::read_notices() {
  alignas(inotify_event) std::array<char, 1024> events;
  return ::read(notices_.get(), events.data(), events.size()) > 0;
}

}  // namespace shoal
