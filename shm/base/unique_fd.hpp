// UniqueFd: a file descriptor with one owner; pidfds; closing the descriptors of others.
#pragma once

#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <initializer_list>
#include <utility>

namespace shoal {

/// Closes its descriptor when destroyed. Move-only.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) reset(other.release());
    return *this;
  }
  ~UniqueFd() { reset(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }
  void reset(int fd = -1) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = fd;
  }

 private:
  int fd_ = -1;
};

/// A pidfd of a process, which becomes readable when the process is dead; empty if the kernel gives none (errno).
inline UniqueFd open_pidfd(pid_t pid) { return UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))); }

/// Closes every descriptor of this process but stdin, stdout, stderr and `kept`, of which negative ones are none. Allocates
/// nothing.
void close_all_but(std::initializer_list<int> kept);

}  // namespace shoal
