// The directory where the daemon can be met: its lock, its sockets, nothing else.
#pragma once

#include <cstdint>
#include <string>

#include "shm/base/unique_fd.hpp"
#include "shoal/result.hpp"

namespace shoal::supervisor {

/// $SHOAL_DIR, else $XDG_RUNTIME_DIR/shoal, else /run/shoal; absolute.
std::string default_socket_directory();

/// A directory of mode 0700 that this process holds alone. Sockets left by a dead daemon are gone; so are ours when this is
/// destroyed.
///   Threads  thread-bound
class SocketDirectory {
 public:
  /// Creates the directory if need be and takes its lock.
  ///   Errors  kFailedPrecondition: another daemon has it (named with its pid); kPermissionDenied: somebody else's;
  ///   kInvalidArgument: the
  ///           path is too long for local sockets
  static Result<SocketDirectory> open(const std::string& path);
  SocketDirectory(SocketDirectory&&) = default;
  SocketDirectory& operator=(SocketDirectory&&) = delete;
  ~SocketDirectory();

  const std::string& path() const { return path_; }
  std::string attach_path() const { return path_ + "/attach"; }
  std::string client_path(std::uint64_t client) const { return path_ + "/c" + std::to_string(client); }

 private:
  SocketDirectory(std::string path, UniqueFd lock) : path_(std::move(path)), lock_(std::move(lock)) {}
  void sweep() const;

  std::string path_;
  UniqueFd lock_;
};

}  // namespace shoal::supervisor
