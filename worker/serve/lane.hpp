// Lane: one thread of a worker with one socket, one status line and one activation arena.
#pragma once

#include <cstdint>
#include <string>
#include <thread>

#include "shm/wire/socket.hpp"
#include "shm/wire/status_page.hpp"
#include "worker/serve/request_runner.hpp"

namespace shoal::worker {

/// What a worker's lanes have in common; outlives them.
struct LaneEnvironment {
  const ServedModelView& served;
  ArenaRegistry& arenas;
  const CancelledRequests& cancelled;
  int drain_fd;  ///< readable for ever once the worker drains
};

/// Receives, runs, answers, until the worker drains and nothing is left in its socket.
///   Threads  made, started and joined by the control thread
class Lane {
 public:
  Lane(const LaneEnvironment& environment, wire::Dealer socket, wire::LaneLine& line);
  void start();
  void join() { thread_.join(); }

 private:
  void serve();
  bool wait_for_work() const;

  const LaneEnvironment& environment_;
  wire::Dealer socket_;
  wire::LaneLine& line_;
  std::thread thread_;
};

}  // namespace shoal::worker
