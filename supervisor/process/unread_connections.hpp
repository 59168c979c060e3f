// Who has sent what this process has not read yet.
#pragma once

#include <sys/types.h>

#include <unordered_map>

namespace shoal::supervisor {

/// The local stream connections of this process that hold unread bytes, and the processes at their other ends. Empty if no
/// descriptor is free.
///
/// Looks at all descriptors of the process, also at those that strangers sent and that wait to be closed. So it asks sockets of
/// other kinds nothing that takes their lock: a stranger can hold the lock of a TCP connection for as long as it likes.
///   Threads  thread-safe
std::unordered_map<int, pid_t> unread_connections();

}  // namespace shoal::supervisor
