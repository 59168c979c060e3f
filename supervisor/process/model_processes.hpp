// The processes of one model: its zygote and its workers, kept at the wanted number.
//
//   zygote   none → loading → idle;  any → dead → (back-off) → loading
//   worker   forking → starting → ready;  any → dead → forking;  ready → leaving (one too many) → gone
//   model    loading → ready;  any → failed (a bad load, or kFailedStartsForFailure failed starts in a row)
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shm/base/clock.hpp"
#include "shm/log/log.hpp"
#include "shm/segment/segment.hpp"
#include "shm/wire/control.hpp"
#include "shm/wire/status_page.hpp"
#include "supervisor/process/backoff.hpp"
#include "supervisor/process/event_loop.hpp"
#include "supervisor/process/spawn.hpp"

namespace shoal::supervisor {

enum class ModelState { kLoading, kReady, kFailed, kDraining };
std::string_view model_state_name(ModelState state);

/// Why the supervisor ended a worker.
enum class EndReason { kNone, kRules, kStopped, kHung, kRunLimit };

/// One life of a worker as others see it.
struct WorkerProcess {
  enum class State { kForking, kStarting, kReady, kLeaving };
  std::uint64_t incarnation = 0;
  State state = State::kForking;
  pid_t pid = -1;
  UniqueFd pidfd, control;
  std::optional<Segment> status_page;
  std::vector<std::string> lane_paths;  // set when ready
  std::uint64_t forked_ns = 0, ready_ns = 0;
  EndReason ended = EndReason::kNone;  // by the supervisor: the first reason
  std::string ended_because;
  std::optional<int> wait_status;  // of a dead one, as of waitpid(), when this process reaped it
  std::uint64_t kill_at_ns = 0;    // after SIGABRT; 0 = none was sent

  /// The lines of the status page, one per lane.
  std::span<const wire::LaneLine> lines(std::size_t lanes) const;
  /// The line of its programs; null when there is no page.
  const wire::ProgramLine* programs(std::size_t lanes) const;
};
std::string_view worker_state_name(WorkerProcess::State state);

/// Where that lane binds its socket; the only path that is accepted from the worker.
std::string lane_path(const std::string& directory, std::uint64_t incarnation, int lane);

/// What all models' processes share: the numbers of workers, and those whose fork was never reported. They may have bound their
/// sockets before they noticed that nobody wants them.
struct Births {
  struct Unborn {
    std::string directory;
    std::uint64_t incarnation = 0;
    int lanes = 1;
    std::uint64_t until_ns = 0;
  };
  std::uint64_t next_incarnation = 1;
  std::vector<Unborn> unborn;
  /// After orphans were reaped: removes their sockets.
  void sweep_unborn(std::uint64_t now_ns);
};

/// Who is told of what happens. Called from within the event loop.
class ProcessObserver {
 public:
  virtual ~ProcessObserver() = default;
  /// The zygote has loaded the model; a Status that is not OK refuses it (a changed version).
  virtual Status model_loaded(std::string_view loaded_text) = 0;
  virtual void model_failed(const std::string& reason) = 0;
  virtual void worker_ready(const WorkerProcess& worker) = 0;
  /// It is one too many: nothing new for it; let_go() when it holds nothing.
  virtual void worker_leaving(const WorkerProcess& worker) = 0;
  /// What became of a probe().
  virtual void worker_probed(const WorkerProcess& worker, const Status& status) = 0;
  /// Its pidfd reported; `worker` is gone after the call, which may keep what it owns.
  virtual void worker_died(WorkerProcess& worker) = 0;
  /// How a worker ended, where its zygote reaped it: after worker_died() as a rule.
  virtual void worker_reaped(std::uint64_t incarnation, int wait_status) = 0;
  virtual std::uint64_t answered_by(std::uint64_t incarnation) const = 0;
};

struct ProcessOptions {
  std::string name;
  std::filesystem::path worker_file;
  std::string directory;  // of the lane sockets
  std::string load_text;  // of kLoad
  int workers = 1, lanes = 1;
  int load_nice = 0;  // of the first load: others serve meanwhile
  std::uint64_t load_limit_ns = 600'000'000'000;
};

/// Threads: thread-bound
class ModelProcesses {
 public:
  static constexpr int kFailedStartsForFailure = 5;
  static constexpr std::uint64_t kCommandLimitNs = 1'000'000'000;  // a zygote that leaves a command unanswered is killed
  static constexpr std::uint64_t kWorkerStartLimitNs = 10'000'000'000;
  static constexpr std::uint64_t kAbortLimitNs = 100'000'000;
  static constexpr int kMostForking = 8;                      // FORKs that are not answered: each has kCommandLimitNs
  static constexpr std::uint64_t kSettledNs = 1'000'000'000;  // a worker that idles this long has started well

  /// `observer`, `loop`, `log` and `births` outlive this.
  ModelProcesses(ProcessOptions options, EventLoop& loop, ProcessObserver& observer, Logger& log, Births& births);
  ~ModelProcesses();
  ModelProcesses(const ModelProcesses&) = delete;
  ModelProcesses& operator=(const ModelProcesses&) = delete;

  void start();
  /// What is due: restarts, commands left unanswered.
  void tick(std::uint64_t now_ns);
  std::optional<std::uint64_t> next_tick_ns() const;
  /// No process is replaced from now on; each is told to go by closing its control socket.
  void stop();
  void kill_all();
  bool all_gone() const { return !zygote_ && workers_.empty(); }

  ModelState state() const { return state_; }
  const std::string& reason() const { return reason_; }  ///< of a failure, or of the last load that failed
  pid_t zygote_pid() const { return zygote_ ? zygote_->child.pid : -1; }
  const std::vector<std::unique_ptr<WorkerProcess>>& workers() const { return workers_; }
  WorkerProcess* find_worker(std::uint64_t incarnation);
  const ProcessOptions& options() const { return options_; }
  std::uint64_t packed_bytes() const { return packed_bytes_; }
  void kill_worker(std::uint64_t incarnation, std::string_view why, EndReason reason = EndReason::kRules);
  /// SIGABRT to that thread, so that a record of what it does is left, and SIGKILL kAbortLimitNs later.
  void abort_worker(std::uint64_t incarnation, pid_t thread, std::string_view why, EndReason reason);
  /// Forks what is missing; what is too much leaves, the youngest first.
  void set_workers(int workers);
  /// Ends a worker that is leaving: its control socket is closed.
  void let_go(std::uint64_t incarnation);
  /// Has that worker answer its model's stored input. Errors: kNotFound (no such worker is ready), those of send_control().
  Status probe(std::uint64_t incarnation);
  /// Starting a zygote or worker has failed kFailedStartsForFailure times in a row; it goes on being tried.
  bool makes_no_progress() const;
  int ready_workers() const { return count(WorkerProcess::State::kReady); }
  void fail(const std::string& reason);

 private:
  struct Zygote {
    Child child;
    UniqueFd control;
    bool loaded = false;
    bool forked = false;  // it has forked a worker
    std::uint64_t started_ns = 0, load_limit_ns = 0;
    bool closing = false;  // told to go, or being killed: it is no failed start
    bool killed = false;   // for what it left undone: nothing more is wanted of it but its end
    std::string load_failure;
  };

  void start_zygote();
  void zygote_speaks();
  void zygote_exited();
  void handle_loaded(wire::ControlMessage message);
  void handle_load_failed(const std::string& reason);
  void handle_forked(wire::ControlMessage message);
  void handle_fork_failed(const wire::ControlMessage& message);
  void close_zygote();
  void plan_zygote_restart(std::uint64_t at_ns) { zygote_start_ns_ = at_ns; }

  bool may_fork() const;
  void fork_missing_workers(std::uint64_t now_ns);
  Status fork_worker(std::uint64_t now_ns);
  void fork_not_sent(const Status& why, std::uint64_t now_ns);
  void worker_speaks(std::uint64_t incarnation);
  void worker_exited(std::uint64_t incarnation);
  Status handle_worker_message(WorkerProcess& worker, const wire::ControlMessage& message);
  Result<std::vector<std::string>> check_ready(const WorkerProcess& worker, const std::string& text) const;
  void becomes_ready_when_complete(WorkerProcess& worker);
  void account_for_death(const WorkerProcess& worker, std::uint64_t now_ns);
  void failed_start(std::uint64_t now_ns, const std::string& why, int others_ready);
  void drop_worker(std::uint64_t incarnation);
  void forget_unborn(std::uint64_t now_ns);
  void note_end(WorkerProcess& worker, std::string_view why, EndReason reason);
  void dismiss_surplus_workers();
  int count(WorkerProcess::State state) const;
  int staying_workers() const { return static_cast<int>(workers_.size()) - count(WorkerProcess::State::kLeaving); }

  ProcessOptions options_;
  EventLoop& loop_;
  ProcessObserver& observer_;
  Logger& log_;
  Births& births_;

  ModelState state_ = ModelState::kLoading;
  std::string reason_;
  std::unique_ptr<Zygote> zygote_;
  UniqueFd packed_;  // the sealed weights: a new zygote maps them again
  std::uint64_t packed_bytes_ = 0;
  bool ever_loaded_ = false;
  Backoff zygote_backoff_, worker_backoff_;
  std::optional<std::uint64_t> zygote_start_ns_;
  std::uint64_t next_fork_ns_ = 0;
  int forks_not_sent_ = 0;  // in a row
  std::vector<std::unique_ptr<WorkerProcess>> workers_;
};

}  // namespace shoal::supervisor
