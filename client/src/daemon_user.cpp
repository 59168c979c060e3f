#include "client/src/daemon_user.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "shm/base/errors.hpp"

namespace shoal::client {
namespace {

namespace fs = std::filesystem;

// Whether only root and this user decide what is in the directory at `path`, and so on up to the root directory.
bool is_ours_from_the_root(const fs::path& path) {
  fs::path directory;
  for (const fs::path& part : path) {
    directory /= part;
    struct stat info {};
    if (::stat(directory.c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) return false;
    if (info.st_uid != 0 && info.st_uid != ::geteuid()) return false;
    if ((info.st_mode & (S_IWGRP | S_IWOTH)) != 0) return false;
  }
  return true;
}

// Both the path as it was given and what it means are checked, because a link may lead somewhere else.
bool is_placed_by_root(const std::string& given, uid_t owner) {
  std::error_code error;
  const fs::path path = fs::absolute(given, error), real = error ? fs::path() : fs::canonical(path, error);
  struct stat info {};
  if (error || ::lstat(real.c_str(), &info) != 0 || info.st_uid != owner) return false;
  const fs::path as_given = path.has_filename() ? path : path.parent_path();  // "/run/shoal/"
  return is_ours_from_the_root(as_given.parent_path()) && is_ours_from_the_root(real.parent_path());
}

}  // namespace

Status check_daemon_user(const std::string& directory, uid_t daemon) {
  const uid_t own = ::geteuid();
  if (own == 0 || daemon == 0 || daemon == own) return {};
  if (const char* trusted = ::secure_getenv("SHOAL_DAEMON_USER"); trusted && *trusted) {
    const std::string_view text = trusted;
    uid_t user = 0;
    const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), user);
    if (failed != std::errc() || end != text.data() + text.size())
      return invalid_argument("SHOAL_DAEMON_USER is '{}', and must be the number of a user (`id -u NAME` tells it)", text);
    if (user == daemon) return {};
  }
  if (is_placed_by_root(directory, daemon)) return {};
  return permission_denied(
      "the daemon at {} belongs to user {}, not to you (user {}): if you trust that user, set SHOAL_DAEMON_USER={}, or let root "
      "make its directory where nobody else can make one, as in /run",
      directory, daemon, own, daemon);
}

}  // namespace shoal::client
