// The process of a client, and what all its connections have together.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "shm/wire/socket.hpp"
#include "supervisor/plane/rate_limit.hpp"

namespace shoal::supervisor {

/// The account of one process. It has one share of each total ([limits] total_message_mb, total_arena_gb), however many
/// connections it has. Its connections that are gone count until their last request is over.
///   Threads  thread-bound
struct ClientProcess {
  std::size_t connections = 0;
  std::uint64_t arena_bytes = 0;
  std::uint64_t request_bytes = 0;                   // of the memory for messages, what its requests hold
  wire::ByteCount unsent = wire::make_byte_count();  // likewise, of answers that it has not read
  std::uint64_t waiting_describes = 0;               // answers that wait until a model has loaded
  RateLimit control_answers{1'000'000'000};          // their bytes

  std::uint64_t unread_bytes() const { return unsent->load(std::memory_order_relaxed); }
  std::uint64_t message_bytes() const { return request_bytes + unread_bytes(); }
};

/// Names the process of a connection, from what SO_PEERCRED says. The kernel gives processes that our pid namespace does not show
/// the pid 0. All of one user's count as one process: they cannot be told apart, and each could have any number of connections.
constexpr std::int64_t process_key(pid_t pid, uid_t uid) { return pid > 0 ? pid : -1 - std::int64_t{uid}; }

}  // namespace shoal::supervisor
