#include "worker/serve/worker.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <list>
#include <new>
#include <vector>

#include "shm/base/errors.hpp"
#include "shm/base/spare_threads.hpp"
#include "shm/segment/segment.hpp"
#include "shm/wire/control.hpp"
#include "shm/wire/local_address.hpp"
#include "shm/wire/socket.hpp"
#include "worker/serve/crash_handler.hpp"
#include "worker/serve/lane.hpp"
#include "worker/serve/sandbox.hpp"

namespace shoal::worker {
namespace {

constexpr int kExitOk = 0, kExitFailed = 1;

/// The control thread's side of a worker.
///   Threads  thread-bound
class Worker {
 public:
  Worker(const ServedModelView& served, WorkerOptions options) : options_(std::move(options)), served_(served) {}

  Status start() {
    // Still to start after ZeroMQ's threads: the lanes, the threads that compile and unmap, and each lane's OpenMP threads.
    const std::size_t threads_to_come = 2 + options_.lanes * static_cast<std::size_t>(served_.threads);
    if (options_.tries_threads) SHOAL_RETURN_IF_ERROR(check_spare_threads(wire::MessageContext::kThreads + threads_to_come));
    SHOAL_ASSIGN_OR_RETURN(std::vector<UniqueFd> bound, bind_lanes());
    SHOAL_RETURN_IF_ERROR(enter_worker_sandbox());
    SHOAL_ASSIGN_OR_RETURN(status_page_, Segment::map(options_.status_page, Segment::Access::kReadWrite));
    SHOAL_RETURN_IF_ERROR(wire::check_status_page(status_page_->bytes(), options_.lanes));
    const wire::StatusPage page(status_page_->mutable_bytes(), options_.lanes);
    flight_.emplace(*page.flight);
    install_crash_handler(page.lanes.data());
    compiler_.emplace(served_.model, cancelled_, memory_, *flight_, *page.programs);
    environment_.emplace(LaneEnvironment{served_, arenas_, cancelled_, quarantine_, memory_, *compiler_, *flight_, control()});
    std::string paths;
    for (std::size_t i = 0; i < options_.lanes; ++i) {
      SHOAL_ASSIGN_OR_RETURN(wire::Dealer socket, wire::Dealer::listen(context_, std::move(bound[i])));
      lanes_.emplace_back(*environment_, static_cast<std::uint16_t>(i), std::move(socket), page.lanes[i]);
      paths += lane_path(i) + '\n';
    }
    SHOAL_ASSIGN_OR_RETURN(memory_, MemoryLimit::set(served_.memory_mb, threads_to_come));
    for (Lane& lane : lanes_) SHOAL_RETURN_IF_ERROR(lane.start());
    return wire::send_control(control(), {.kind = wire::ControlKind::kReady, .id = options_.incarnation, .text = paths});
  }

  /// Returns the exit code.
  int serve() try {
    while (true) {
      bool lost_fds = false;
      auto received = wire::receive_control(control(), true, &lost_fds);
      if (!received.ok() && received.status().code() == StatusCode::kInvalidArgument) continue;
      if (!received.ok()) return kExitOk;  // the supervisor is gone
      if (!*received) continue;
      // A worker that receives no arenas cannot serve. Its requests run elsewhere, and its replacement has descriptors again.
      if (lost_fds) return fail(unavailable("no file descriptors are left for a client's arenas (RLIMIT_NOFILE)"));
      if (const Status served = handle(**received); !served.ok()) return fail(served);
    }
  } catch (const std::bad_alloc&) {  // blames no request; those that are here run elsewhere
    return fail(out_of_memory("a worker's control thread"));
  }

  /// Tells the supervisor why the worker ends. Returns the exit code.
  int fail(const Status& why) const {
    (void)wire::send_control(
        control(),
        {.kind = wire::ControlKind::kWorkerFailed, .a = static_cast<std::uint64_t>(why.code()), .text = why.message()});
    return kExitFailed;
  }

  int control() const { return options_.control.get(); }

 private:
  std::string lane_path(std::size_t lane) const { return format("{}-{}", options_.sockets, lane); }

  // Before the sandbox, which forbids it: a worker that is taken over must not bind the path where clients look for the daemon.
  Result<std::vector<UniqueFd>> bind_lanes() const {
    std::vector<UniqueFd> bound;
    for (std::size_t i = 0; i < options_.lanes; ++i) {
      SHOAL_RETURN_IF_ERROR(wire::check_socket_path(lane_path(i)));
      SHOAL_ASSIGN_OR_RETURN(UniqueFd socket, wire::make_local_socket(SOCK_STREAM));
      SHOAL_RETURN_IF_ERROR(wire::bind_at(socket.get(), lane_path(i)));
      bound.push_back(std::move(socket));
    }
    return bound;
  }

  // Errors: why this worker cannot go on.
  Status handle(const wire::ControlMessage& message) {
    switch (message.kind) {
      case wire::ControlKind::kAttachClient:
        // If a client's arenas cannot be mapped, the lanes answer its requests with the reason. Nothing is written: nobody may
        // read what the daemon's stderr is, and this thread must not wait.
        // A lack of descriptors may pass, but the client would stay refused here for as long as it is attached: then this worker
        // ends, and its requests run elsewhere. A lack of addresses is no reason to end: a client chooses how large its arenas
        // are. Each of its requests tries to map them again.
        if (const Status attached = arenas_.attach(message.id, message.fds); attached.code() == StatusCode::kUnavailable)
          return attached;
        record(wire::FlightKind::kAttached, message.id);
        return {};
      case wire::ControlKind::kDetachClient:
        arenas_.detach(message.id);
        record(wire::FlightKind::kDetached, message.id);
        return {};
      case wire::ControlKind::kCancelRun:
        cancelled_.add(message.id);
        return {};
      case wire::ControlKind::kQuarantine:
        (void)quarantine_.replace(message.text, static_cast<std::uint8_t>(message.id));  // a list that is wrong changes nothing
        return {};
      case wire::ControlKind::kProbe:
        lanes_.front().probe(message.id);
        return {};
      default:
        return {};
    }
  }

  void record(wire::FlightKind kind, std::uint64_t client_id) { flight_->record(kind, wire::kNoLane, 0, client_id); }

  WorkerOptions options_;
  const ServedModelView& served_;
  ArenaRegistry arenas_;
  CancelledRequests cancelled_;
  Quarantine quarantine_;
  MemoryLimit memory_;
  std::optional<Segment> status_page_;
  std::optional<FlightRecorder> flight_;
  std::optional<ProgramCompiler> compiler_;  ///< a lane that needs it starts its thread
  std::optional<LaneEnvironment> environment_;
  wire::MessageContext context_;
  std::list<Lane> lanes_;
};

}  // namespace

void run_worker(const ServedModelView& served, WorkerOptions options) {
  // Never destroyed: the process ends by _exit(), while lanes may still run.
  Worker& worker = *new Worker(served, std::move(options));
  if (const Status started = worker.start(); !started.ok()) ::_exit(worker.fail(started));
  ::_exit(worker.serve());
}

}  // namespace shoal::worker
