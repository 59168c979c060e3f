// Checks the descriptor that a zygote sends as the pidfd of a new worker.
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "shm/base/unique_fd.hpp"
#include "shoal/result.hpp"
#include "supervisor/process/spawn.hpp"

namespace shoal::supervisor {

/// A worker that a zygote reported.
struct ReportedWorker {
  pid_t pid = -1;
  UniqueFd pidfd;  // opened by this process; empty if the worker has died and was reaped
};

/// Finds the process that `sent` refers to. It must be a child of `zygote`, or, when `zygote` dies, one of its former children,
/// which are this process's now (a subreaper gets the orphans) and still in the process group of `zygote`.
///   sent     only read: what the zygote does to it later changes nothing
///   claimed  the pid that the zygote's message names
///   Errors   kInvalidArgument: no pidfd, or not of such a process, or not of `claimed`; others: this process cannot check it,
///            because it has no descriptor left or there is no /proc
Result<ReportedWorker> check_sent_pidfd(const UniqueFd& sent, std::uint64_t claimed, const Child& zygote);

}  // namespace shoal::supervisor
