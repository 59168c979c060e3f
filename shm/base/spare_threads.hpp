// Whether this process may start more threads.
#pragma once

#include <cstddef>

#include "shoal/status.hpp"

namespace shoal {

/// Tries whether this process may run `count` more threads at the same time: it starts that many, ends them, and waits until the
/// kernel does not count them any more. For use before a library that aborts the process if it cannot start a thread, as libzmq
/// 4.3.4 does in the first zmq_socket() of a context. Others may take the threads afterwards.
///   Errors   kUnavailable: too few may be started (RLIMIT_NPROC, a pids cgroup, no memory for their stacks)
///   Threads  thread-safe
Status check_spare_threads(std::size_t count);

}  // namespace shoal
