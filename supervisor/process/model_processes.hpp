// The processes of one model: its zygote and its workers. Keeps the wanted number of workers.
//
//   zygote   none → loading → idle;  any → dead, or left alone → (back-off) → loading
//   worker   forking → starting → ready;  any → dead → forking;  ready → leaving (surplus) → gone
//   model    loading → ready;  any → failed (a bad load, or kFailedStartsForFailure failed starts in a row)
//
// A start that fails for lack of descriptors, memory or process ids is tried again and fails no model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "shm/base/clock.hpp"
#include "shm/log/log.hpp"
#include "shm/segment/segment.hpp"
#include "shm/wire/control.hpp"
#include "shm/wire/status_page.hpp"
#include "supervisor/process/backoff.hpp"
#include "supervisor/process/event_loop.hpp"
#include "supervisor/process/spawn.hpp"
#include "supervisor/process/stuck_zygotes.hpp"

namespace shoal::supervisor {

enum class ModelState { kLoading, kReady, kFailed, kDraining };
std::string_view model_state_name(ModelState state);

/// Why the supervisor ended a worker.
enum class EndReason { kNone, kRules, kStopped, kHung, kRunLimit };

/// One worker process, from FORK to its death.
struct WorkerProcess {
  enum class State { kForking, kStarting, kReady, kLeaving };
  std::uint64_t incarnation = 0;
  State state = State::kForking;
  pid_t pid = -1;
  UniqueFd pidfd, control;
  std::optional<Segment> status_page;
  std::vector<std::string> lane_paths;  // set by READY
  std::uint64_t forked_ns = 0, ready_ns = 0;
  EndReason ended = EndReason::kNone;  // why the supervisor ended it: the first reason
  std::string ended_because;
  std::optional<int> wait_status;  // as of waitpid(), from this process or from the zygote
  std::uint64_t kill_at_ns = 0;    // when SIGKILL follows SIGABRT; 0 = no SIGABRT was sent
  std::uint64_t silent_ns = 0;     // when its control socket ended; 0 = it has not
  int probes = 0;                  // sent and not answered

  /// The lines of the status page, one per lane.
  std::span<const wire::LaneLine> lines(std::size_t lanes) const;
  /// The line of its programs; null if there is no page.
  const wire::ProgramLine* programs(std::size_t lanes) const;
};
std::string_view worker_state_name(WorkerProcess::State state);

/// The path at which that lane binds its socket. No other path is accepted from the worker.
std::string lane_path(const std::string& directory, std::uint64_t incarnation, int lane);

/// What all models share: the incarnation numbers of workers, what each new worker is told, and the workers whose fork was never
/// reported. Those may have bound their sockets before they ended.
struct Births {
  struct Unborn {
    std::string directory;
    std::uint64_t incarnation = 0;
    int lanes = 1;
    std::uint64_t until_ns = 0;
  };
  std::uint64_t next_incarnation = 1;
  std::uint64_t longest_reply_bytes = 0;  // the outputs in one message of a lane; 0 = no limit
  std::vector<Unborn> unborn;
  /// Removes the sockets of workers whose fork was not reported. Call it after orphans were reaped.
  void sweep_unborn(std::uint64_t now_ns);
};

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
  /// The answer to probe().
  virtual void worker_probed(const WorkerProcess& worker, const Status& status) = 0;
  /// Its pidfd became readable. `worker` is destroyed after the call; the observer may move its members out.
  virtual void worker_died(WorkerProcess& worker) = 0;
  /// How a worker of this model ended, after worker_died(), if its zygote reaped it.
  virtual void worker_reaped(std::uint64_t incarnation, int wait_status) = 0;
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

/// Threads: thread-bound
class ModelProcesses {
 public:
  static constexpr int kFailedStartsForFailure = 5;
  static constexpr std::uint64_t kCommandLimitNs = 1'000'000'000;  // after that, a zygote that has not answered a FORK is killed
  /// From the SIGKILL of a zygote to its death. After that nobody waits for it (StuckZygotes).
  static constexpr std::uint64_t kZygoteDeathLimitNs = 10'000'000'000;
  static constexpr std::uint64_t kWorkerStartLimitNs = 10'000'000'000;
  static constexpr std::uint64_t kAbortLimitNs = 1'000'000'000;   // to write the crash record, also on a busy machine
  static constexpr int kMostForking = 8;                          // FORKs that are not answered: each has kCommandLimitNs
  static constexpr std::uint64_t kSettledNs = 1'000'000'000;      // a worker that idles this long has started well
  static constexpr std::uint64_t kSilentLimitNs = 1'000'000'000;  // from the end of a worker's control socket to its own
  static constexpr std::size_t kMostUnreported = 1024;            // dead workers whose end their zygote has not reported
  static constexpr std::uint64_t kObedientNs = 60'000'000'000;    // a zygote that lives this long starts with a clean record

  /// `observer`, `loop`, `log`, `births` and `stuck` outlive this.
  ModelProcesses(ProcessOptions options, EventLoop& loop, ProcessObserver& observer, Logger& log, Births& births,
                 StuckZygotes& stuck);
  ~ModelProcesses();
  ModelProcesses(const ModelProcesses&) = delete;
  ModelProcesses& operator=(const ModelProcesses&) = delete;

  void start();
  /// Does what is due: restarts, and kills of those that exceeded a limit.
  void tick(std::uint64_t now_ns);
  /// This process did not run for so long: the limits of others do not count that time.
  void postpone(std::uint64_t by_ns);
  std::optional<std::uint64_t> next_tick_ns() const;
  /// Replaces no process from now on, and closes all control sockets, which tells the processes to end.
  void stop();
  void kill_all();
  bool all_gone() const { return !zygote_ && workers_.empty(); }

  ModelState state() const { return state_; }
  const std::string& reason() const { return reason_; }  ///< of the failure, or of the last failed load or start
  pid_t zygote_pid() const { return zygote_ ? zygote_->child.pid : -1; }
  const std::vector<std::unique_ptr<WorkerProcess>>& workers() const { return workers_; }
  WorkerProcess* find_worker(std::uint64_t incarnation);
  const ProcessOptions& options() const { return options_; }
  std::uint64_t packed_bytes() const { return packed_bytes_; }
  void kill_worker(std::uint64_t incarnation, std::string_view why, EndReason reason = EndReason::kRules);
  /// Sends SIGABRT to that thread, which makes it leave a crash record, and SIGKILL kAbortLimitNs later.
  void abort_worker(std::uint64_t incarnation, pid_t thread, std::string_view why, EndReason reason);
  /// Changes the wanted number. Missing workers are forked; surplus workers leave, the youngest first.
  void set_workers(int workers);
  /// Closes the control socket of a worker that is leaving, which tells it to end.
  void let_go(std::uint64_t incarnation);
  /// Asks that worker to answer its model's stored input. Errors: kNotFound (no such worker is ready), those of send_control().
  Status probe(std::uint64_t incarnation);
  /// Whether starting a zygote or worker has failed kFailedStartsForFailure times in a row. Starts are still tried.
  bool makes_no_progress() const;
  /// Whether the last start failed because this process or the zygote lacks descriptors, memory or process ids. Such starts never
  /// fail a model.
  bool lacks_resources() const { return shortage_.failures() > 0; }
  int ready_workers() const { return count(WorkerProcess::State::kReady); }
  void fail(const std::string& reason);

 private:
  struct Zygote {
    Child child;
    UniqueFd control;
    bool loaded = false;
    bool forked = false;  // it has forked a worker
    std::uint64_t started_ns = 0, load_limit_ns = 0;
    bool closing = false;                    // told to end: its death is no failed start
    std::optional<std::uint64_t> killed_ns;  // it gets no more commands, and its end is awaited
    bool broke_rules = false;
    bool is_loaded_in_vain = false;  // this process had no descriptor for its weights
    std::string load_failure;
    std::unordered_set<std::uint64_t> unreported;  // incarnations of its workers whose end it has not reported
  };

  void start_zygote();
  Status watch_zygote();
  void forget_zygote();
  void zygote_speaks();
  void zygote_exited();
  void leave_zygote_alone();
  void kill_hidden_children();
  void zygote_ended(const Zygote& zygote, const std::string& how);
  // If the result is not OK, the zygote is ended.
  Status handle_zygote_message(wire::ControlMessage& message, bool lost_fds);
  Status handle_loaded(wire::ControlMessage& message);
  Status handle_load_failed(const wire::ControlMessage& message);
  Status handle_forked(const wire::ControlMessage& message, bool lost_fds);
  Status handle_fork_failed(const wire::ControlMessage& message);
  Status handle_exited(const wire::ControlMessage& message);
  Status load_failed(const std::string& reason);
  void weights_lost();
  void end_zygote(const std::string& why);
  void kill_zygote();
  bool may_leave_zygote_alone() const { return zygote_ && zygote_->killed_ns && stuck_.has_room(); }
  void mute_zygote();
  void close_zygote();
  void plan_zygote_restart(std::uint64_t at_ns) { zygote_start_ns_ = at_ns; }

  bool may_fork() const;
  void fork_missing_workers(std::uint64_t now_ns);
  Status fork_worker(std::uint64_t now_ns);
  void fork_not_sent(const Status& why, std::uint64_t now_ns);
  void worker_speaks(std::uint64_t incarnation);
  void worker_exited(std::uint64_t incarnation);
  Status adopt(WorkerProcess& worker, const wire::ControlMessage& message, bool lost_fds);
  Status handle_worker_message(WorkerProcess& worker, const wire::ControlMessage& message);
  Result<std::vector<std::string>> check_ready(const WorkerProcess& worker, const std::string& text) const;
  void becomes_ready_when_complete(WorkerProcess& worker);
  void account_for_death(const WorkerProcess& worker, std::uint64_t now_ns);
  void failed_start(std::uint64_t now_ns, const std::string& why, int others_ready);
  void drop_worker(std::uint64_t incarnation);
  void note_unborn(const WorkerProcess& worker, std::uint64_t now_ns);
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
  StuckZygotes& stuck_;

  ModelState state_ = ModelState::kLoading;
  std::string reason_;
  std::unique_ptr<Zygote> zygote_;
  UniqueFd packed_;  // the sealed weights: a new zygote maps them again
  std::uint64_t packed_bytes_ = 0;
  bool ever_loaded_ = false;
  Backoff zygote_backoff_, worker_backoff_;
  Backoff breach_backoff_;  // of zygotes that break the protocol
  Backoff shortage_;        // of starts for which descriptors, memory or process ids are missing
  std::optional<std::uint64_t> zygote_start_ns_;
  std::uint64_t next_fork_ns_ = 0;
  std::vector<std::unique_ptr<WorkerProcess>> workers_;
};

}  // namespace shoal::supervisor
