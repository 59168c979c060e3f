// The processes of one model: its zygote and its workers. Keeps the wanted number of workers.
//
//   zygote   none → loading → idle;  any → dead, or left alone → (back-off) → loading
//   worker   forking → starting → ready;  any → dead → forking;  ready → leaving (surplus) → gone;  killed → stuck → dead
//   model    loading → ready;  any → failed (a bad load, or kFailedStartsForFailure failed starts in a row)
//
// A start that fails for lack of descriptors, memory, process ids or threads is tried again and fails no model.
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
#include "supervisor/process/processes.hpp"
#include "supervisor/process/spawn.hpp"
#include "supervisor/process/stuck_zygotes.hpp"

namespace shoal::supervisor {

/// What all models share: the incarnation numbers of workers, what each new worker is told, and the workers whose fork was never
/// reported. Those may have bound their sockets before they ended.
struct Births {
  struct Unborn {
    std::string sockets;
    int lanes = 1;
    std::uint64_t until_ns = 0;
  };
  std::uint64_t next_incarnation = 1;
  std::uint64_t longest_reply_bytes = 0;  // the outputs in one message of a lane; 0 = no limit
  static constexpr int kMostStuckWorkers = 32;
  int stuck_workers = 0;  // that were killed and do not die
  std::vector<Unborn> unborn;
  /// Removes the sockets of workers whose fork was not reported. Call it after orphans have ended.
  void sweep_unborn(std::uint64_t now_ns);
};

/// Threads: thread-bound
class ModelProcesses final : public Processes {
 public:
  static constexpr int kFailedStartsForFailure = 5;
  static constexpr std::uint64_t kCommandLimitNs = 1'000'000'000;  // after that, a zygote that has not answered a FORK is killed
  static constexpr std::uint64_t kEndLimitNs = 2'000'000'000;      // for a zygote that was told to end
  /// From the SIGKILL of a zygote to its death. After that nobody waits for it (StuckZygotes).
  static constexpr std::uint64_t kZygoteDeathLimitNs = 10'000'000'000;
  static constexpr std::uint64_t kNoRoomRetryNs = 1'000'000'000;  // while there are too many of those that do not die
  static constexpr std::uint64_t kWorkerStartLimitNs = 10'000'000'000;
  /// From the SIGKILL of a worker to its death. After that another one takes its place (stuck_workers()).
  static constexpr std::uint64_t kWorkerDeathLimitNs = 10'000'000'000;
  static constexpr std::size_t kMostStuckWorkers = 8;             // of one version
  static constexpr std::uint64_t kAbortLimitNs = 1'000'000'000;   // to write the crash record, also on a busy machine
  static constexpr int kMostForking = 8;                          // FORKs that are not answered: each has kCommandLimitNs
  static constexpr std::uint64_t kSettledNs = 1'000'000'000;      // a worker that idles this long has started well
  static constexpr std::uint64_t kSilentLimitNs = 1'000'000'000;  // from the end of a worker's control socket to its own
  static constexpr std::size_t kMostUnreported = 1024;            // dead workers whose end their zygote has not reported
  static constexpr std::uint64_t kObedientNs = 60'000'000'000;    // a zygote that lives this long starts with a clean record

  /// All but the options outlive this, and `log` outlives the loop, too.
  ModelProcesses(ProcessOptions options, const Clock& clock, EventLoop& loop, Timers& timers, ProcessObserver& observer,
                 Logger& log, Births& births, StuckZygotes& stuck);
  ~ModelProcesses() override;

  void start() override;
  void stop() override;
  void kill_all() override;
  bool all_gone() const override { return !zygote_ && workers_.empty() && stuck_workers_.empty(); }
  void kill_worker(std::uint64_t incarnation, std::string_view why, EndReason reason = EndReason::kRules) override;
  void abort_worker(std::uint64_t incarnation, pid_t thread, std::string_view why, EndReason reason) override;
  void set_workers(int workers) override;
  void let_go(std::uint64_t incarnation) override;
  Status probe(std::uint64_t incarnation) override;
  bool makes_no_progress() const override;
  bool lacks_resources() const override { return shortage_.failures() > 0; }
  void fail(const std::string& reason) override;
  pid_t zygote_pid() const override { return zygote_ ? zygote_->child.pid : -1; }

 private:
  struct Zygote {
    Child child;
    UniqueFd control;
    bool loaded = false;
    bool forked = false;  // it has forked a worker
    std::uint64_t started_ns = 0;
    bool closing = false;  // told to end: its death is no failed start
    bool killed = false;   // it gets no more commands, and its end is awaited
    bool broke_rules = false;
    bool is_loaded_in_vain = false;  // this process had no descriptor for its weights
    std::string load_failure;
    std::unordered_set<std::uint64_t> unreported;  // incarnations of its workers whose end it has not reported
  };

  static constexpr int kMessagesPerTurn = 16;       // of one process, before the others have their turn
  static constexpr std::size_t kMostReason = 4096;  // bytes that a process may say of a failure
  /// Nothing if the code is none of ours.
  static std::optional<Status> said_status(const wire::ControlMessage& message);

  Timer::Handler when_due(void (ModelProcesses::*handle)());
  void start_zygote();
  void zygote_not_started(const Status& why, std::uint64_t now_ns);
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
  void zygote_is_stuck();
  void mute_zygote();
  void close_zygote();

  bool may_fork() const;
  void fork_missing_workers();
  bool waits_to_fork(std::uint64_t now_ns) const { return fork_.at_ns() > now_ns; }
  Status fork_worker(std::uint64_t now_ns);
  void fork_not_sent(const Status& why, std::uint64_t now_ns);
  void worker_speaks(std::uint64_t incarnation);
  void worker_exited(std::uint64_t incarnation);
  Status adopt(WorkerProcess& worker, const wire::ControlMessage& message, bool lost_fds);
  Status handle_worker_message(WorkerProcess& worker, const wire::ControlMessage& message);
  Result<std::vector<std::string>> check_ready(const WorkerProcess& worker, const std::string& text) const;
  void becomes_ready_when_complete(WorkerProcess& worker);
  void note_worker_failed(WorkerProcess& worker, const wire::ControlMessage& message);
  void hear_last_words(WorkerProcess& worker);
  void lacked_resources(std::uint64_t now_ns);
  void account_for_death(const WorkerProcess& worker, std::uint64_t now_ns);
  void failed_start(std::uint64_t now_ns, const std::string& why, int others_ready);
  void worker_is_late(std::uint64_t incarnation);
  void send_kill(WorkerProcess& worker);
  void leave_worker_alone(WorkerProcess& worker);
  void drop_worker(std::uint64_t incarnation);
  void note_unborn(const WorkerProcess& worker, std::uint64_t now_ns);
  void forget_unborn(std::uint64_t now_ns);
  void note_end(WorkerProcess& worker, std::string_view why, EndReason reason);
  void dismiss_surplus_workers();
  int staying_workers() const { return static_cast<int>(workers_.size()) - count(WorkerProcess::State::kLeaving); }

  const Clock& clock_;
  EventLoop& loop_;
  Timers& timers_;
  ProcessObserver& observer_;
  Logger& log_;
  Births& births_;
  StuckZygotes& stuck_;

  std::unique_ptr<Zygote> zygote_;
  UniqueFd packed_;  // the sealed weights: a new zygote maps them again
  bool ever_loaded_ = false;
  Backoff zygote_backoff_, worker_backoff_;
  Backoff breach_backoff_;            // of zygotes that break the protocol
  Backoff shortage_;                  // of starts for which descriptors, memory, process ids or threads are missing
  Timer zygote_start_, fork_;         // when to try again
  Timer zygote_load_, zygote_death_;  // the limits of the zygote
};

}  // namespace shoal::supervisor
