// The sandbox: what a process that has loaded its model may still ask of the kernel.
#pragma once

#include <string>

#include "shoal/result.hpp"

namespace shoal::worker {

/// Sends this process, and all it forks, SIGSYS when it wants to execute a program, make a socket that is not AF_UNIX or connect
/// one, trace another process, or anything that only root may: before files that others wrote are read. Lasts until the process
/// ends; works without privileges. Call it before a model is loaded, too, because making the filters, all at once, leaves holes
/// all over the heap, and every worker would fill them with memory of its own, 0.6 MB, were they not filled by the model.
///   Returns  why there is none, empty when there is: SHOAL_SANDBOX=off (for debuggers), a build with a sanitizer
///   Errors   kInternal: the kernel has no seccomp filters
///   Threads  call it while the process has one thread
Result<std::string> enter_loading_sandbox();

/// When the model is loaded: no file is opened for writing, or changed, any more, and what serving needs not is refused with
/// ENOSYS, as an older kernel would. Enters what goes before it if nobody has; returns, errors and threads as there.
Result<std::string> enter_sandbox();

/// A worker's, beyond its zygote's: it can neither fork nor signal another process, nor set its limits. A no-op where the zygote
/// has none.
Status enter_worker_sandbox();

/// "execve" when the sandbox refuses that system call with SIGSYS, else nullptr. Async-signal-safe.
const char* forbidden_call_name(int number);

}  // namespace shoal::worker
