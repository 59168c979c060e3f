// One version of a served model inside the daemon: what was asked for, what was loaded, its processes.
//
//   kComing →(loaded, its workers ready, its probe answered, the change whole)→ kServing →(replaced, unloaded)→ kLeaving → freed
//      └─(any of that failed)→ kLeaving
#pragma once

#include <optional>
#include <string>

#include "shm/base/clock.hpp"
#include "shm/base/errors.hpp"
#include "supervisor/daemon.hpp"
#include "supervisor/repository/version_entry.hpp"

namespace shoal::supervisor {

/// Threads: thread-bound
class Daemon::Model : public ProcessObserver {
 public:
  enum class Stage { kComing, kServing, kLeaving };
  static constexpr std::uint64_t kProbeLimitNs = 60'000'000'000;
  static constexpr std::uint64_t kLeaveLimitNs = 30'000'000'000;  // of an unloaded one, for what it has admitted

  Model(Daemon& daemon, Service& service, ModelIndex index, VersionEntry entry, ProcessOptions options)
      : daemon_(daemon),
        service_(service),
        index_(index),
        entry_(std::move(entry)),
        processes_(std::move(options), daemon.loop_, *this, daemon.log_, daemon.births_) {}

  ModelIndex index() const { return index_; }
  Service& service() const { return service_; }
  Stage stage() const { return stage_; }
  const VersionEntry& entry() const { return entry_; }
  const ServedModel& served() const { return entry_.model; }
  std::uint64_t version() const { return entry_.model.files.version; }
  const std::optional<LoadedModel>& loaded() const { return loaded_; }
  std::uint32_t signature() const { return signature_; }
  /// From a death's pidfd: until no request can go to the worker any more; until a request that it held was sent again.
  Histogram& unrouted_ns() { return unrouted_ns_; }
  const Histogram& unrouted_ns() const { return unrouted_ns_; }
  Histogram& sent_again_ns() { return sent_again_ns_; }
  const Histogram& sent_again_ns() const { return sent_again_ns_; }
  ModelProcesses& processes() { return processes_; }
  const ModelProcesses& processes() const { return processes_; }
  bool is_serving() const { return stage_ == Stage::kServing; }
  bool has_failed() const { return processes_.state() == ModelState::kFailed; }

  /// Starts the zygote when there is memory for it, and fails the version when there is none until `limit_ns`.
  void start(std::uint64_t limit_ns);
  void advance_start(std::uint64_t now_ns);
  /// What it will take at most, while it loads.
  std::uint64_t promised_bytes() const { return processes_.state() == ModelState::kLoading ? estimate_bytes_ : 0; }
  /// All its workers are there, and one has answered the probe where that is wanted.
  bool is_ready() const { return is_probed_ && !has_failed(); }
  /// Begins the probe once the workers are there; fails the version when it takes too long. What replaces nothing is probed only
  /// with a stored input.
  void advance_probe(std::uint64_t now_ns, bool replaces);
  /// A worker died, of what the text says. It was the probe's: no version that serves.
  void probe_died(Incarnation incarnation, const std::string& what);

  void serve() { stage_ = Stage::kServing; }
  /// Takes nothing new; what it has admitted is answered, and what is not at the limit fails. Without one a lane that hangs is
  /// the watchdog's affair, and what nobody could answer for kLeaveLimitNs fails.
  void leave(std::optional<std::uint64_t> limit_ns);
  /// True when nothing of it is left.
  bool advance_leaving(std::uint64_t now_ns);
  std::optional<std::uint64_t> next_tick_ns() const;

 private:
  bool has_golden() const { return !entry_.model.config.golden_file.empty(); }
  // A zygote that is started again must find the files it was started with: running workers have the old ones.
  Status model_loaded(std::string_view text) override {
    SHOAL_ASSIGN_OR_RETURN(LoadedModel loaded, parse_loaded(text));
    if (loaded_ && loaded_->hash != loaded.hash) {
      return failed_precondition("model '{}': changed version: its files are not the ones that were loaded at first",
                                 served().name);
    }
    loaded_ = std::move(loaded);
    for (const std::string& warning : loaded_->warnings)
      daemon_.log_.warn("load_warning model={} version={} what=\"{}\"", served().name, version(), warning);
    daemon_.log_.info("algorithms_chosen model={} version={} how=\"{}\"", served().name, version(), loaded_->tuning);
    signature_ = loaded_->signature(served().name);
    return {};
  }
  void model_failed(const std::string& reason) override {
    daemon_.ledger_.fail_model(index_, reason);
    daemon_.perform();
    daemon_.is_life_due_ = true;
  }
  void worker_ready(const WorkerProcess& worker) override {
    daemon_.worker_ready(*this, worker);
    daemon_.is_life_due_ = true;
  }
  void worker_leaving(const WorkerProcess& worker) override { daemon_.worker_leaving(*this, worker); }
  void worker_probed(const WorkerProcess& worker, const Status& status) override;
  void worker_died(WorkerProcess& worker) override {
    daemon_.worker_died(*this, worker);
    daemon_.is_life_due_ = true;
  }
  void worker_reaped(std::uint64_t incarnation, int wait_status) override {
    daemon_.deaths_.reaped(incarnation, wait_status, monotonic_now_ns());
  }
  std::uint64_t answered_by(std::uint64_t incarnation) const override { return daemon_.ledger_.answered_by(incarnation); }

  struct Probe {
    Incarnation incarnation = 0;
    std::uint64_t limit_ns = 0;
  };

  Daemon& daemon_;
  Service& service_;
  ModelIndex index_;
  VersionEntry entry_;
  Stage stage_ = Stage::kComing;
  std::optional<LoadedModel> loaded_;
  std::uint32_t signature_ = 0;
  Histogram unrouted_ns_, sent_again_ns_;
  std::optional<Probe> probe_;  // under way
  bool is_probed_ = false;
  std::optional<std::uint64_t> start_limit_ns_;  // while there is too little memory
  std::uint64_t look_ns_ = 0;                    // when that is looked at again
  std::uint64_t estimate_bytes_ = 0;             // of what loading takes; 0 until it has begun
  std::optional<std::uint64_t> leave_limit_ns_;  // for its requests, then for its processes
  std::optional<std::uint64_t> stuck_limit_ns_;  // likewise, while none of its workers could answer them
  bool is_stopped_ = false;                      // its processes have been told to go
  ModelProcesses processes_;
};

}  // namespace shoal::supervisor
