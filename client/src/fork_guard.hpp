// ForkGuard: detects that this process is a forked child of the process that made an object.
#pragma once

#include <cstdint>

namespace shoal::client {

/// Remembers the process that made it. After fork() the parent's ZeroMQ sockets and locks cannot be used in the child, so the
/// child must not touch them.
///   Threads  immutable
class ForkGuard {
 public:
  ForkGuard();
  bool in_child() const;

 private:
  std::uint64_t generation_;
};

}  // namespace shoal::client
