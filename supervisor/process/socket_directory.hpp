// The daemon's directory: its lock, its sockets and those of the lanes, nothing else.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "shm/base/unique_fd.hpp"
#include "shoal/result.hpp"

namespace shoal::supervisor {

/// 128 random bits as a part of a file name: 26 letters and digits.
///   Errors  kUnavailable: the kernel has no random numbers
Result<std::string> random_name();

/// A directory that only this process writes to. Only its user may enter it, and a group that share_with() lets in. Removes the
/// sockets that a dead daemon left, and its own when it is destroyed, if it is its own still. Touches nothing that a daemon did
/// not make: symbolic links are not followed, and other files stay as they are.
///   Threads  thread-bound
class SocketDirectory {
 public:
  /// Creates the directory if it is missing, takes its lock and makes it private; one that a daemon has shared stays so until
  /// share_with() is called. One that others may enter is taken only if it
  /// is empty, has only what a daemon left there, or has been that of a daemon of this user, which left its lock and its lanes.
  ///   path    absolute
  ///   Errors  kFailedPrecondition: another daemon has it (its pid is named). kPermissionDenied: it, or its lock,
  ///           belongs to another user, or others may enter it and it has files of theirs. kInvalidArgument: it is a symbolic
  ///           link or not a directory, its lock is another kind of file, or the path is too long for local sockets. All name the
  ///           path.
  static Result<SocketDirectory> open(const std::string& path);
  SocketDirectory(SocketDirectory&&) = default;
  SocketDirectory& operator=(SocketDirectory&&) = delete;
  ~SocketDirectory();

  /// Keeps systemd-tmpfiles from removing what is old in it, such as the lock: see tmpfiles.d(5).
  ///   Errors  those of flock(): somebody else has locked the directory alone
  Status keep_from_cleaners() const;
  /// Lets the members of a group connect to the attach socket; none: only this user. If that socket is missing, call this again
  /// when it is there. They can neither see what is in the directory nor change it. The other sockets in it must have a mode that
  /// keeps the group out.
  ///   Errors  kPermissionDenied: this process is neither root's nor a member of the group. Names group and directory. Then only
  ///           this user may connect.
  Status share_with(std::optional<gid_t> group) const;
  /// Whatever has the name of the attach socket: a cleaner of /tmp may have removed the socket. st_nlink is 0 if nothing has it.
  struct stat attach_file() const;
  /// Errors: kUnavailable: the directory or its lock was removed or replaced, so another daemon may serve there.
  Status check_ours() const;
  const std::string& path() const { return path_; }
  std::string attach_path() const { return path_ + "/attach"; }
  std::string client_path(std::uint64_t client) const { return path_ + "/c" + std::to_string(client); }

 private:
  SocketDirectory(std::string path, UniqueFd directory, UniqueFd lock)
      : path_(std::move(path)), directory_(std::move(directory)), lock_(std::move(lock)) {}
  void sweep() const;

  std::string path_;
  UniqueFd directory_, lock_;
  UniqueFd lanes_ = {};
};

}  // namespace shoal::supervisor
