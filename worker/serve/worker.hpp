// The worker: what a forked child of the zygote does for the rest of its life.
#pragma once

#include <cstdint>
#include <string>

#include "shm/base/unique_fd.hpp"
#include "worker/serve/request_runner.hpp"

namespace shoal::worker {

struct WorkerOptions {
  std::uint64_t incarnation = 0;
  std::size_t lanes = 1;
  std::string directory;  ///< for the lanes' sockets: DIRECTORY/w<incarnation>-<lane>
  UniqueFd control;       ///< to the supervisor
  UniqueFd status_page;   ///< memfd of at least `lanes` lines
};

/// Says READY, then serves until the supervisor is gone (EOF: exits at once, so that a stuck kernel exits too) or asks it to
/// drain.
[[noreturn]] void run_worker(const ServedModelView& served, WorkerOptions options);

}  // namespace shoal::worker
