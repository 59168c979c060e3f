// Which daemons a client trusts: a daemon reads what its clients send, and makes up their answers.
#pragma once

#include <sys/types.h>

#include <string>

#include "shoal/result.hpp"

namespace shoal::client {

/// Whether this process trusts the daemon of user `daemon` that listens in `directory`. It trusts
///   - its own user, and root. A process of root trusts everyone, because root chose where to connect;
///   - the user whose number is in $SHOAL_DAEMON_USER (not in a process that has more rights than who started it);
///   - the owner of the directory, if only root or this user can have made it: no one else may write to a directory above it.
///     So /run/shoal is trusted, and /tmp/shoal is not: anybody may have made that one.
/// Never blocks: looks up no names.
///   Errors  kPermissionDenied (says how to trust the daemon), kInvalidArgument ($SHOAL_DAEMON_USER is no number)
Status check_daemon_user(const std::string& directory, uid_t daemon);

}  // namespace shoal::client
