// Unix sockets by hand.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <cstring>
#include <string>

#include "shm/base/unique_fd.hpp"

namespace shoal::test {

inline UniqueFd unix_socket(const std::string& path, int type, int (*bind_or_connect)(int, const sockaddr*, socklen_t)) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
  UniqueFd fd(::socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
  if (fd && bind_or_connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) fd.reset();
  return fd;
}

/// Bound to that path; one that takes connections also listens. Holds nothing when that failed (errno).
inline UniqueFd bound_socket(const std::string& path, int type) {
  UniqueFd fd = unix_socket(path, type, ::bind);
  if (fd && type != SOCK_DGRAM && ::listen(fd.get(), 8) != 0) fd.reset();
  return fd;
}

/// Connected to who listens there. Holds nothing when that failed (errno).
inline UniqueFd connected_socket(const std::string& path, int type) { return unix_socket(path, type, ::connect); }

}  // namespace shoal::test
