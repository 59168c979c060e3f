// Unix sockets for tests that speak protocols by hand.
#pragma once

#include <sys/socket.h>

#include <string>

#include "shm/base/unique_fd.hpp"
#include "shm/wire/local_address.hpp"

namespace shoal::test {

inline UniqueFd unix_socket(const std::string& path, int type, int (*bind_or_connect)(int, const sockaddr*, socklen_t)) {
  const sockaddr_un address = wire::local_address(path);
  UniqueFd fd(::socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
  if (fd && bind_or_connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) fd.reset();
  return fd;
}

/// What a client gives the daemon to bind. It does not block.
inline UniqueFd unbound_socket() { return UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)); }

/// A socket bound to that path, which also listens if its type has connections. Empty on failure (errno).
inline UniqueFd bound_socket(const std::string& path, int type) {
  UniqueFd fd = unix_socket(path, type, ::bind);
  if (fd && type != SOCK_DGRAM && ::listen(fd.get(), 8) != 0) fd.reset();
  return fd;
}

/// A socket connected to the listener at that path. Empty on failure (errno).
inline UniqueFd connected_socket(const std::string& path, int type) { return unix_socket(path, type, ::connect); }

}  // namespace shoal::test
