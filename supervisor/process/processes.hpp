// What the supervisor knows of the processes of one model, and what it may do with them. ModelProcesses is the real thing; the
// simulator has one of its own.
//
//   worker   forking → starting → ready;  any → dead → forking;  ready → leaving (surplus) → gone;  killed → stuck → dead
//   model    loading → ready;  any → failed
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shm/base/unique_fd.hpp"
#include "shm/segment/segment.hpp"
#include "shm/wire/status_page.hpp"
#include "shoal/result.hpp"
#include "supervisor/process/timers.hpp"

namespace shoal::supervisor {

enum class ModelState { kLoading, kReady, kFailed, kDraining };
std::string_view model_state_name(ModelState state);

/// Why the supervisor ended a worker.
enum class EndReason { kNone, kRules, kStopped, kHung, kRunLimit };

/// One worker process, from FORK to its death.
struct WorkerProcess {
  enum class State { kForking, kStarting, kReady, kLeaving };
  std::uint64_t incarnation = 0;
  std::string sockets;  // what the paths of its lanes' sockets begin with (lane_sockets)
  State state = State::kForking;
  pid_t pid = -1;
  UniqueFd pidfd, control;
  std::optional<Segment> status_page;
  std::vector<std::string> lane_paths;  // set by READY
  std::uint64_t forked_ns = 0, ready_ns = 0;
  EndReason ended = EndReason::kNone;  // why the supervisor ended it: the first reason
  std::string ended_because;
  std::optional<int> wait_status;  // as of waitpid(), from this process or from the zygote
  bool was_aborted = false;        // SIGABRT was sent; SIGKILL follows
  bool was_killed = false;         // SIGKILL was sent
  bool is_silent = false;          // its control socket has ended
  bool lacked_resources = false;   // it said that it cannot start for lack of threads or descriptors
  std::optional<Timer> limit;      // for what must happen next: FORKED, READY, or its end
  std::uint64_t last_probe = 0;    // its number; 0: none was sent
  int probes = 0;                  // the last so many are not answered

  /// A worker that was killed does not become ready any more.
  bool is_starting() const { return state == State::kStarting && ended == EndReason::kNone; }
  /// One that was killed answers nothing more, although it may live on for a while.
  bool is_ready() const { return state == State::kReady && ended == EndReason::kNone; }
  std::string_view state_name() const;  ///< "killed" if the supervisor ended it and it lives yet
  /// Empty if there is no page.
  wire::StatusPage<const std::byte> page(std::size_t lanes) const;
};

/// What the paths of a new worker's lane sockets begin with: DIRECTORY/lanes/w<incarnation>-<128 random bits>. Nobody but that
/// worker and its zygote can know it before the lanes have bound, so nobody can bind there first.
///   Errors  kUnavailable: the kernel has no random numbers
Result<std::string> lane_sockets(const std::string& directory, std::uint64_t incarnation);
/// The path at which that lane binds its socket. No other path is accepted from the worker.
std::string lane_path(const std::string& sockets, int lane);

/// The event loop tells it what happens to the processes of a model.
class ProcessObserver {
 public:
  virtual ~ProcessObserver() = default;
  /// The zygote has loaded the model; a Status that is not OK refuses it (a changed version).
  virtual Status model_loaded(std::string_view loaded_text) = 0;
  virtual void model_failed(const std::string& reason) = 0;
  virtual void worker_ready(const WorkerProcess& worker) = 0;
  /// It is surplus: it must get no new requests. Call let_go() when it holds none.
  virtual void worker_leaving(const WorkerProcess& worker) = 0;
  /// It was told to end by a signal: it must get no new requests. Its death is told later.
  virtual void worker_ending(const WorkerProcess& worker) = 0;
  /// The answer to probe().
  virtual void worker_probed(const WorkerProcess& worker, const Status& status) = 0;
  /// Its pidfd became readable. `worker` is destroyed after the call; the observer may move its members out.
  virtual void worker_died(WorkerProcess& worker) = 0;
  /// How a worker of this model ended, after worker_died(), if its zygote says so.
  virtual void worker_reaped(std::uint64_t incarnation, int wait_status) = 0;
  /// A time has come: something was started again, or ended. Anything that Processes tells may have changed.
  virtual void limit_was_over() = 0;
  virtual std::uint64_t answered_by(std::uint64_t incarnation) const = 0;
  /// Whether requests were sent to that worker that it has not answered.
  virtual bool holds_requests(std::uint64_t incarnation) const = 0;
};

struct ProcessOptions {
  std::string name;
  std::filesystem::path worker_file;
  std::string directory;  // of the lane sockets
  std::string load_text;  // of kLoad
  int workers = 1, lanes = 1;
  int load_nice = 0;  // of the first load, if other models serve meanwhile
  std::uint64_t load_limit_ns = 600'000'000'000;
};

/// The processes of one model.
///   Threads  thread-bound
class Processes {
 public:
  virtual ~Processes() = default;
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  virtual void start() = 0;
  /// Replaces no process from now on, and closes all control sockets, which tells the processes to end.
  virtual void stop() = 0;
  virtual void kill_all() = 0;
  virtual bool all_gone() const = 0;
  virtual void kill_worker(std::uint64_t incarnation, std::string_view why, EndReason reason = EndReason::kRules) = 0;
  /// Sends SIGABRT to that thread, which makes it leave a crash record, and SIGKILL a second later.
  virtual void abort_worker(std::uint64_t incarnation, pid_t thread, std::string_view why, EndReason reason) = 0;
  /// Changes the wanted number. Missing workers are forked; surplus workers leave, the youngest first.
  virtual void set_workers(int workers) = 0;
  /// Closes the control socket of a worker that is leaving, which tells it to end.
  virtual void let_go(std::uint64_t incarnation) = 0;
  /// Asks that worker to answer its model's stored input. Errors: kNotFound (no such worker is ready), those of send_control().
  virtual Status probe(std::uint64_t incarnation) = 0;
  /// Whether starting a zygote or worker has failed again and again. Starts are still tried.
  virtual bool makes_no_progress() const = 0;
  /// Whether the last start failed for lack of descriptors, memory, process ids or threads. Such starts never fail a model.
  virtual bool lacks_resources() const = 0;
  virtual void fail(const std::string& reason) = 0;
  virtual pid_t zygote_pid() const = 0;  ///< -1: there is none

  ModelState state() const { return state_; }
  const std::string& reason() const { return reason_; }  ///< of the failure, or of the last failed load or start
  const std::vector<std::unique_ptr<WorkerProcess>>& workers() const { return workers_; }
  /// Those that were killed and do not die, because the kernel waits for a device or a file system. They are none of workers()
  /// any more; what they hold stays theirs until their deaths are told.
  const std::vector<std::unique_ptr<WorkerProcess>>& stuck_workers() const { return stuck_workers_; }
  /// Calls visit(worker) for all of workers() and stuck_workers().
  template <typename Visit>
  void for_each_worker(Visit visit) const {
    for (const auto* those : {&workers_, &stuck_workers_}) {
      for (const auto& worker : *those) visit(*worker);
    }
  }
  WorkerProcess* find_worker(std::uint64_t incarnation);
  WorkerProcess* find_watched(std::uint64_t incarnation);  ///< also among the stuck ones
  /// Whether this is its zygote, or a worker whose end will be noticed.
  bool watches(pid_t pid) const;
  int ready_workers() const;
  const ProcessOptions& options() const { return options_; }
  std::uint64_t packed_bytes() const { return packed_bytes_; }  ///< of the shared weights

 protected:
  explicit Processes(ProcessOptions options) : options_(std::move(options)) {}
  int count(WorkerProcess::State state) const;

  ProcessOptions options_;
  ModelState state_ = ModelState::kLoading;
  std::string reason_;
  std::uint64_t packed_bytes_ = 0;
  std::vector<std::unique_ptr<WorkerProcess>> workers_, stuck_workers_;
};

/// Makes the processes of a model. `observer` outlives them.
using MakeProcesses = std::function<std::unique_ptr<Processes>(ProcessOptions, ProcessObserver& observer)>;

}  // namespace shoal::supervisor
