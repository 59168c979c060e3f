// ForkGuard: tells a process that it is a forked child of the one that made an object.
#pragma once

#include <cstdint>

namespace shoal::client {

/// Remembers the process it was made in. After fork() the child's ZeroMQ sockets and locks are unusable, so nothing of the
/// parent's may be touched there.
///   Threads  immutable
class ForkGuard {
 public:
  ForkGuard();
  bool in_child() const;

 private:
  std::uint64_t generation_;
};

}  // namespace shoal::client
