// A process that looks for files in the supervisor's place, answers once and ends.
#pragma once

#include "shm/base/unique_fd.hpp"
#include "worker/zygote/process.hpp"

namespace shoal::worker {

/// Answers the one kFind that comes on `control`. It may wait forever for a file system: the supervisor kills it after a while.
[[noreturn]] void find_files(UniqueFd control, ProcessTitle title);

}  // namespace shoal::worker
