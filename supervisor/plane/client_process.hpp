// The process of a client, and what all its connections have together.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "shm/wire/transport.hpp"
#include "supervisor/plane/rate_limit.hpp"
#include "supervisor/plane/shared_rate.hpp"

namespace shoal::supervisor {

/// Messages that carried tensors, because an arena had no room or an output's size was not known before. Messages whose tensors
/// are all empty do not count.
struct Copied {
  std::uint64_t messages = 0, bytes = 0;
  void add(std::uint64_t tensor_bytes) {
    if (tensor_bytes == 0) return;
    ++messages;
    bytes += tensor_bytes;
  }
};

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
  RateShare control_share;                           // likewise, of what all processes may have
  RateLimit arena_looks{1'000'000'000};              // pages of its arenas that the kernel was asked about
  RateShare look_share;                              // likewise
  pid_t pid = 0;                                     // 0: in another pid namespace
  Copied copied_requests, copied_answers;

  std::uint64_t unread_bytes() const { return unsent->load(std::memory_order_relaxed); }
  std::uint64_t message_bytes() const { return request_bytes + unread_bytes(); }
  /// Whether its rates limit nothing any more. Until then they outlive its last connection, so that to connect anew does not
  /// renew them.
  bool has_rested(std::uint64_t now_ns) const {
    const auto has_rested = [&](const RateLimit& rate) { return rate.next_ns() == 0 || rate.next_ns() + kRestNs <= now_ns; };
    const auto is_forgotten = [&](const RateShare& share) { return SharedRate::has_forgotten(share, now_ns); };
    return has_rested(control_answers) && has_rested(arena_looks) && is_forgotten(control_share) && is_forgotten(look_share);
  }
  static constexpr std::uint64_t kRestNs = 2'000'000'000;  // a RateLimit is at most a second behind its last charge
};

/// Names the process of a connection, from what SO_PEERCRED says. The kernel gives processes that our pid namespace does not show
/// the pid 0. All of one user's count as one process: they cannot be told apart, and each could have any number of connections.
constexpr std::int64_t process_key(pid_t pid, uid_t uid) { return pid > 0 ? pid : -1 - std::int64_t{uid}; }

}  // namespace shoal::supervisor
