// The daemon's directory: its lock and its sockets, nothing else.
#pragma once

#include <cstdint>
#include <string>

#include "shm/base/unique_fd.hpp"
#include "shoal/result.hpp"

namespace shoal::supervisor {

/// A directory of mode 0700 that only this process uses. Removes the sockets that a dead daemon left, and its own when it is
/// destroyed. Touches nothing that a daemon did not make: symbolic links are not followed, and other files stay as they are.
///   Threads  thread-bound
class SocketDirectory {
 public:
  /// Creates the directory if it is missing, makes it private and takes its lock.
  ///   path    absolute
  ///   Errors  kFailedPrecondition: another daemon has it (its pid is named). kPermissionDenied: it, or its lock,
  ///           belongs to another user. kInvalidArgument: it is a symbolic link or not a directory, its lock is another kind of
  ///           file, or the path is too long for local sockets. All name the path.
  static Result<SocketDirectory> open(const std::string& path);
  SocketDirectory(SocketDirectory&&) = default;
  SocketDirectory& operator=(SocketDirectory&&) = delete;
  ~SocketDirectory();

  const std::string& path() const { return path_; }
  std::string attach_path() const { return path_ + "/attach"; }
  std::string client_path(std::uint64_t client) const { return path_ + "/c" + std::to_string(client); }

 private:
  SocketDirectory(std::string path, UniqueFd directory, UniqueFd lock)
      : path_(std::move(path)), directory_(std::move(directory)), lock_(std::move(lock)) {}
  void sweep() const;

  std::string path_;
  UniqueFd directory_, lock_;
};

}  // namespace shoal::supervisor
