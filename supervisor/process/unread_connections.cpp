#include "supervisor/process/unread_connections.hpp"

#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace shoal::supervisor {
namespace {

// These options are read without the socket's lock.
int option_of(int fd, int option) {
  int value = -1;
  socklen_t size = sizeof value;
  return ::getsockopt(fd, SOL_SOCKET, option, &value, &size) == 0 ? value : -1;
}

}  // namespace

std::unordered_map<int, pid_t> unread_connections() {
  std::unordered_map<int, pid_t> found;
  std::error_code error;
  for (std::filesystem::directory_iterator each("/proc/self/fd", error), end; !error && each != end; each.increment(error)) {
    const int fd = std::atoi(each->path().filename().c_str());
    if (option_of(fd, SO_DOMAIN) != AF_UNIX || option_of(fd, SO_TYPE) != SOCK_STREAM) continue;
    int bytes = 0;
    if (::ioctl(fd, FIONREAD, &bytes) != 0 || bytes <= 0) continue;
    ucred peer{};
    socklen_t size = sizeof peer;
    if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0) found.emplace(fd, peer.pid);
  }
  return found;
}

}  // namespace shoal::supervisor
