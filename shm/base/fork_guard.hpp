// ForkGuard: detects that this process is a forked child of the process that made an object.
#pragma once

#include <cstdint>

namespace shoal {

/// Remembers the process that made it. After fork() the parent's threads are not in the child, and its ZeroMQ sockets and
/// locks cannot be used there, so the child must not touch them.
///   Threads  immutable
class ForkGuard {
 public:
  ForkGuard();
  bool in_child() const;

 private:
  std::uint64_t generation_;
};

}  // namespace shoal
