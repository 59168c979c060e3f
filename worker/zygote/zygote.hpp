// The zygote: loads one model version, then forks workers on command.
#pragma once

#include "shm/base/unique_fd.hpp"
#include "worker/zygote/process.hpp"

namespace shoal::worker {

/// Serves the supervisor at the other end of `control` until it is gone, then exits; so do the children that it forks. Always
/// single-threaded.
[[noreturn]] void run_zygote(UniqueFd control, ProcessTitle title);

/// main() of `shoal-worker`, and of every binary that is the worker and more.
int worker_main(int argc, char** argv);

}  // namespace shoal::worker
