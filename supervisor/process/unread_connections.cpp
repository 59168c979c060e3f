#include "supervisor/process/unread_connections.hpp"

#include <sys/ioctl.h>
#include <sys/socket.h>

#include <unordered_set>

#include "shm/base/mutex.hpp"
#include "shm/wire/control.hpp"

namespace shoal::supervisor {
namespace {

class Noted {
 public:
  void add(int fd) SHOAL_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    fds_.insert(fd);
  }
  // Forgets those that are no local streams (any longer).
  std::unordered_set<int> streams() SHOAL_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    std::erase_if(fds_, [](int fd) { return !wire::is_local_stream(fd); });
    return fds_;
  }

 private:
  Mutex mutex_;
  std::unordered_set<int> fds_ SHOAL_GUARDED_BY(mutex_);
};

Noted& noted() {
  static auto* const connections = new Noted;  // never destroyed: libzmq's threads may outlive everything else
  return *connections;
}

}  // namespace

void note_connection(int fd) { noted().add(fd); }

std::unordered_map<int, pid_t> unread_connections() {
  std::unordered_map<int, pid_t> found;
  for (const int fd : noted().streams()) {
    int bytes = 0;
    if (::ioctl(fd, FIONREAD, &bytes) != 0 || bytes <= 0) continue;
    ucred peer{};
    socklen_t size = sizeof peer;
    if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0) found.emplace(fd, peer.pid);
  }
  return found;
}

}  // namespace shoal::supervisor
