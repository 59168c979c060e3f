// The daemon's default directory, and the addresses of local sockets.
#pragma once

#include <sys/un.h>

#include <string>
#include <string_view>

#include "shm/base/unique_fd.hpp"
#include "shoal/result.hpp"

namespace shoal::wire {

/// $SHOAL_DIR, else $XDG_RUNTIME_DIR/shoal, else /run/shoal. May be relative, as the user gave it.
std::string default_directory();
/// Where the lanes of a daemon with that directory bind their sockets. Zygotes and workers may bind nowhere else: clients trust
/// whoever has bound the attach socket, which lies in the directory itself.
std::string lanes_directory(const std::string& directory);

/// The address of a socket at `path`. check_socket_path() must have accepted the path.
sockaddr_un local_address(std::string_view path);
/// A non-blocking socket of `type` that has no name yet.
Result<UniqueFd> make_local_socket(int type);
/// Whether the socket was bound before.
bool has_name(int socket);
/// Creates the file of a socket. Who may connect there: what the umask of this process leaves of the socket's own mode (0777).
/// Errors: those of bind(); name the path.
Status bind_at(int socket, const std::string& path);
/// A non-blocking socket of `type` (SOCK_STREAM, SOCK_SEQPACKET) that listens at `path`. Errors: those of bind(); name the path.
Result<UniqueFd> listen_at(const std::string& path, int type, int backlog);

}  // namespace shoal::wire
