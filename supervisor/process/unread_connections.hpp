// Who has sent what this process has not read yet.
#pragma once

#include <sys/types.h>

#include <unordered_map>

namespace shoal::supervisor {

/// Notes a local socket that is being connected (stream_guard.hpp). It need not be told when the socket is closed.
///   Errors   throws std::bad_alloc
///   Threads  thread-safe
void note_connection(int fd);

/// Of the connections that were noted, the streams that hold unread bytes, and the processes at their other ends.
///
/// The time depends on how many connections there have been at once, and not on what strangers send along with their messages: a
/// process may hold a hundred thousand of those. But the number of a connection that is closed may be the number of one of those
/// now. So this asks sockets of other kinds nothing that takes their lock: a stranger can hold the lock of a TCP connection for
/// as long as it likes.
///   Errors   throws std::bad_alloc
///   Threads  thread-safe
std::unordered_map<int, pid_t> unread_connections();

}  // namespace shoal::supervisor
