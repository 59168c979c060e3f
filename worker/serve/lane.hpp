// Lane: one thread of a worker with one socket, one status line and one activation arena.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "shm/base/unique_fd.hpp"
#include "shm/wire/socket.hpp"
#include "shm/wire/status_page.hpp"
#include "worker/serve/request_runner.hpp"

namespace shoal::worker {

/// What a worker's lanes have in common; outlives them.
struct LaneEnvironment {
  const ServedModelView& served;
  ArenaRegistry& arenas;
  const CancelledRequests& cancelled;
  ProgramCompiler& compiler;
  int drain_fd;  ///< readable for ever once the worker drains
};

/// Receives, runs, answers, until the worker drains and nothing is left in its socket. A request whose program must be compiled
/// first is parked, the supervisor is told so, and others are served meanwhile.
///   Threads  made, started and joined by the control thread
class Lane {
 public:
  Lane(const LaneEnvironment& environment, wire::Dealer socket, wire::LaneLine& line);
  void start();
  void join() { thread_.join(); }

 private:
  struct Parked {
    wire::Message message;
    std::shared_ptr<const PendingProgram> program;
  };
  void serve();
  void answer(RequestRunner& runner, wire::Message& message, std::shared_ptr<const PendingProgram> program = nullptr);
  bool answer_parked(RequestRunner& runner);
  bool wait_for_work() const;

  const LaneEnvironment& environment_;
  wire::Dealer socket_;
  wire::LaneLine& line_;
  UniqueFd wake_fd_;  ///< an eventfd: a program is ready
  std::list<Parked> parked_;
  std::vector<std::span<const std::byte>> frames_;  ///< of the message at hand
  std::thread thread_;
};

}  // namespace shoal::worker
