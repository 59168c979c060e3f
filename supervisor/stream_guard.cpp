#include "supervisor/stream_guard.hpp"

#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <new>
#include <utility>
#include <vector>

#include "shm/wire/control.hpp"
#include "supervisor/process/unread_connections.hpp"

namespace shoal::supervisor {
namespace {

std::atomic<Closer*> guard = nullptr;      // never destroyed: libzmq's threads may outlive everything else
thread_local bool closes_plainly = false;  // this thread's close() is the system's

}  // namespace

void guard_streams(std::shared_ptr<Closer> closer) {
  closes_plainly = true;
  static const auto* const kept = new std::shared_ptr<Closer>(std::move(closer));  // reachable, so no leak
  guard = kept->get();
}

}  // namespace shoal::supervisor

#if !defined(__SANITIZE_THREAD__)

namespace shoal::supervisor {
namespace {

uid_t user_behind(int socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 ? peer.uid : Closer::kChild;
}

/// Whether descriptors come with the bytes that recv() would take, or behind them. Takes neither.
bool brings_descriptors(int socket, void* bytes, std::size_t size) {
  iovec part{bytes, size};
  msghdr packet{};
  packet.msg_iov = &part;
  packet.msg_iovlen = 1;
  return ::recvmsg(socket, &packet, MSG_PEEK | MSG_DONTWAIT) > 0 && (packet.msg_flags & MSG_CTRUNC) != 0;
}

/// Nothing more comes after this.
bool holds_unread(int fd) {
  if (!wire::is_local_stream(fd)) return false;
  ::shutdown(fd, SHUT_RDWR);
  int bytes = 0;
  return ::ioctl(fd, FIONREAD, &bytes) == 0 && bytes > 0;
}

}  // namespace
}  // namespace shoal::supervisor

// The closer's threads take only messages without descriptors. The credentials on their sockets would look like descriptors here.
// Without memory, the descriptors are closed here.
extern "C" __attribute__((visibility("default"))) ssize_t recv(int fd, void* bytes, std::size_t size, int flags) try {
  using namespace shoal::supervisor;
  Closer* const closer = guard;
  if (closer == nullptr || Closer::is_its_thread()) return ::recvfrom(fd, bytes, size, flags, nullptr, nullptr);
  if (closer->holds_sent() && brings_descriptors(fd, bytes, size) && closer->is_late(user_behind(fd))) return 0;
  std::vector<shoal::UniqueFd> fds;
  const ssize_t received = shoal::wire::receive_bytes(fd, {static_cast<std::byte*>(bytes), size}, flags, fds);
  if (fds.empty()) return received;
  const uid_t sender = user_behind(fd);
  for (shoal::UniqueFd& stranger : fds) closer->close_sent(std::move(stranger), sender);
  return 0;
} catch (const std::bad_alloc&) {
  return 0;
}

// Of an urgent byte that is not read in line, the kernel closes the descriptors, and recv() does not hear of them.
extern "C" __attribute__((visibility("default"))) int connect(int fd, const sockaddr* address, socklen_t size) {
  using namespace shoal::supervisor;
  if (guard.load() != nullptr && address->sa_family == AF_UNIX) {
    const int on = 1;
    ::setsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &on, sizeof on);
    try {
      note_connection(fd);
    } catch (const std::bad_alloc&) {  // it only looks as if nothing of it were unread
    }
  }
  return static_cast<int>(::syscall(SYS_connect, fd, address, size));
}

extern "C" __attribute__((visibility("default"))) int close(int fd) {
  using namespace shoal::supervisor;
  const int error = errno;
  if (guard.load() != nullptr && !closes_plainly && !Closer::is_its_thread() && holds_unread(fd)) {
    closes_plainly = true;  // if there is no memory, it is closed here
    try {
      guard.load()->hang_up(shoal::UniqueFd(fd), user_behind(fd));
    } catch (const std::bad_alloc&) {
    }
    closes_plainly = false;
    return 0;
  }
  errno = error;
  return static_cast<int>(::syscall(SYS_close, fd));
}

#endif
