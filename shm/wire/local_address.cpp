#include "shm/wire/local_address.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "shm/base/errors.hpp"

namespace shoal::wire {

std::string default_directory() {
  if (const char* own = std::getenv("SHOAL_DIR"); own && *own) return own;
  if (const char* runtime = std::getenv("XDG_RUNTIME_DIR"); runtime && *runtime) return std::string(runtime) + "/shoal";
  return "/run/shoal";
}

std::string lanes_directory(const std::string& directory) { return directory + "/lanes"; }

sockaddr_un local_address(std::string_view path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), std::min(path.size(), sizeof address.sun_path - 1));
  return address;
}

Result<UniqueFd> make_local_socket(int type) {
  UniqueFd fd(::socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return status_from_errno("create", "a socket", errno);
  return fd;
}

Status bind_at(int socket, const std::string& path) {
  const sockaddr_un address = local_address(path);
  if (::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return status_from_errno("bind", path, errno);
  return {};
}

bool has_name(int socket) {
  sockaddr_un address{};
  socklen_t size = sizeof address;
  return ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) == 0 && size > sizeof address.sun_family;
}

Result<UniqueFd> listen_at(const std::string& path, int type, int backlog) {
  SHOAL_ASSIGN_OR_RETURN(UniqueFd fd, make_local_socket(type));
  SHOAL_RETURN_IF_ERROR(bind_at(fd.get(), path));
  if (::listen(fd.get(), backlog) != 0) return status_from_errno("listen at", path, errno);
  return fd;
}

}  // namespace shoal::wire
