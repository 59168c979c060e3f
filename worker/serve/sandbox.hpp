// The sandbox: what a process that reads models and runs them may ask of the kernel.
#pragma once

#include <string>
#include <vector>

#include "shoal/result.hpp"
#include "worker/exec/backend.hpp"

namespace shoal::worker {

/// Ends this process, and all that it forks, with SIGSYS when it executes a program, makes a socket that is not AF_UNIX or that
/// sends datagrams, connects a socket, traces another process, calls kill(), changes a process group, or does what only root may
/// do. So it cannot signal its parent (the supervisor) or a process group: not by kill() and its like, not by a descriptor's
/// owner (F_SETOWN, O_ASYNC), not through a terminal; nor can it change the supervisor's limits, priority, policy or processors.
/// raise() and abort() work. It cannot truncate a file by its path, nor change its owner, mode, times or links. System calls that
/// are newer than Linux 6.1 fail with ENOSYS. Where the kernel has Landlock, it also cannot open a file for writing, make, rename
/// or remove one, except below `writable` and /dev/null (so it cannot write its supervisor's /proc/PID/oom_score_adj); it cannot
/// reach the memory of a process outside, it cannot bind a socket to a path that is not below `sockets`, and from Linux 6.12 on
/// it cannot signal a process outside. It may always write to what was open before. Enter it before reading any file that others
/// wrote. It needs no privileges and lasts until the process ends. Enter it before the model is loaded for another reason, too:
/// making the filters leaves holes all over the heap. The model fills them; otherwise every worker would fill them with 0.6 MB of
/// its own.
///   writable      a directory that exists, or empty
///   sockets       likewise
///   device_nodes  files that it may open for reading and writing, too, once a profile allows that; missing ones do not matter
///   Returns   empty, or what is missing and why: "no sandbox: " in a build with a sanitizer or with SHOAL_SANDBOX=off (for
///             debuggers); "no Landlock: " if the kernel has it and does not let this process use it
///   Errors    kInternal: the kernel has no seccomp filters
///   Threads   call it while the process has one thread
Result<std::string> enter_loading_sandbox(const std::string& writable = {}, const std::string& sockets = {},
                                          const std::vector<std::string>& device_nodes = {});

/// For a zygote whose model is loaded: from now on, opening a file for writing or changing one ends the process with SIGSYS too.
/// Every system call that serving does not need fails with ENOSYS, as on an older kernel. Enters the loading sandbox first if
/// that was not done. Returns, errors and threads as there.
///   profile  what the model's device needs beyond that: its ioctls, and opening its nodes for reading and writing. The filter
///            cannot see paths, so where the kernel has no Landlock, all files of the user can be opened so; the result says it
Result<std::string> enter_sandbox(const SandboxProfile& profile = {});

/// For a worker that has bound its lanes' sockets, on top of its zygote's sandbox: it can neither fork, nor signal another
/// process, nor bind a socket. Does nothing if the zygote has no sandbox. Threads as above.
Status enter_worker_sandbox();

/// The name of a system call that the sandbox ends a process for, for example "execve"; nullptr for others. Async-signal-safe.
const char* forbidden_call_name(int number);

}  // namespace shoal::worker
