// The zygote: loads one model version, then forks workers on command.
#pragma once

#include "shm/base/unique_fd.hpp"
#include "worker/zygote/process.hpp"

namespace shoal::worker {

/// Serves the supervisor at the other end of `control` until that end is closed, then exits. The forked workers exit by
/// themselves then. Single-threaded.
[[noreturn]] void run_zygote(UniqueFd control, ProcessTitle title);

/// main() of `shoal-worker`, and of test binaries that add operators to it.
int worker_main(int argc, char** argv);

}  // namespace shoal::worker
