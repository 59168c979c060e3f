#include "supervisor/process/unread_connections.hpp"

#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "shm/wire/control.hpp"

namespace shoal::supervisor {
std::unordered_map<int, pid_t> unread_connections() {
  std::unordered_map<int, pid_t> found;
  std::error_code error;
  for (std::filesystem::directory_iterator each("/proc/self/fd", error), end; !error && each != end; each.increment(error)) {
    const int fd = std::atoi(each->path().filename().c_str());
    if (!wire::is_local_stream(fd)) continue;
    int bytes = 0;
    if (::ioctl(fd, FIONREAD, &bytes) != 0 || bytes <= 0) continue;
    ucred peer{};
    socklen_t size = sizeof peer;
    if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0) found.emplace(fd, peer.pid);
  }
  return found;
}

}  // namespace shoal::supervisor
