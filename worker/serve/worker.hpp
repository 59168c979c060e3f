// The worker: the rest of the life of a forked child of the zygote.
#pragma once

#include <cstdint>
#include <string>

#include "shm/base/unique_fd.hpp"
#include "worker/serve/request_runner.hpp"

namespace shoal::worker {

struct WorkerOptions {
  std::uint64_t incarnation = 0;
  std::size_t lanes = 1;
  std::string sockets;         ///< the lanes' sockets are at SOCKETS-<lane>
  bool tries_threads = false;  ///< first checks that its threads can start, which takes a millisecond (check_spare_threads())
  UniqueFd control;            ///< to the supervisor
  UniqueFd status_page;        ///< memfd of at least `lanes` lines
};

/// Sends READY, then serves until the control socket ends. Then it exits at once, whatever its lanes are doing.
[[noreturn]] void run_worker(const ServedModelView& served, WorkerOptions options);

}  // namespace shoal::worker
