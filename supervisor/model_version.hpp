// One version of a served model: the request for it, what was loaded, and its processes.
//
//   kComing →(loaded, its workers ready, its probe answered, the change whole)→ kServing →(replaced, unloaded)→ kLeaving → freed
//      └─(any of these failed)→ kLeaving
#pragma once

#include <optional>
#include <string>

#include "shm/base/clock.hpp"
#include "shm/base/errors.hpp"
#include "supervisor/daemon.hpp"
#include "supervisor/repository/load_estimate.hpp"

namespace shoal::supervisor {

/// Threads: thread-bound
class Daemon::ModelVersion : public ProcessObserver {
 public:
  enum class Stage { kComing, kServing, kLeaving };
  static constexpr std::uint64_t kProbeLimitNs = 60'000'000'000;
  static constexpr std::uint64_t kLeaveLimitNs = 30'000'000'000;  // for an unloaded version to answer its admitted requests

  ModelVersion(Daemon& daemon, Service& service, ModelIndex index, VersionEntry entry, ProcessOptions options)
      : daemon_(daemon),
        service_(service),
        index_(index),
        entry_(std::move(entry)),
        processes_(std::move(options), daemon.loop_, *this, daemon.log_, daemon.births_, daemon.stuck_zygotes_) {}

  ModelIndex index() const { return index_; }
  Service& service() const { return service_; }
  Stage stage() const { return stage_; }
  const VersionEntry& entry() const { return entry_; }
  const ServedModel& served() const { return entry_.model; }
  std::uint64_t version() const { return entry_.model.files.version; }
  const std::optional<LoadReport>& loaded() const { return loaded_; }
  std::uint32_t signature() const { return signature_; }
  /// The answer to `describe`, for a version that has loaded. Made anew when the service's versions have changed.
  const std::string& description();
  /// Times since the pidfd of a dead worker was readable: until no request can go to the worker any more, and until a request
  /// that it held was sent again.
  Histogram& unrouted_ns() { return unrouted_ns_; }
  const Histogram& unrouted_ns() const { return unrouted_ns_; }
  Histogram& sent_again_ns() { return sent_again_ns_; }
  const Histogram& sent_again_ns() const { return sent_again_ns_; }
  ModelProcesses& processes() { return processes_; }
  const ModelProcesses& processes() const { return processes_; }
  bool is_serving() const { return stage_ == Stage::kServing; }
  bool has_failed() const { return processes_.state() == ModelState::kFailed; }

  /// Starts the zygote as soon as there is memory for it. Fails the version if there is too little until `limit_ns`. While other
  /// versions load, and there would be enough without them, it waits. If a client waits for it (`is_asked`), then at most for its
  /// load_timeout_s.
  void start(std::uint64_t limit_ns);
  void advance_start(std::uint64_t now_ns, bool is_asked);
  /// The most memory that its load will take; 0 when it does not load.
  std::uint64_t promised_bytes() const { return processes_.state() == ModelState::kLoading ? estimate_bytes_ : 0; }
  /// True when all its workers are ready, and one has answered the probe if there is one.
  bool is_ready() const { return is_probed_ && !has_failed(); }
  /// Sends the probe when all workers are ready. Fails the version when the answer takes too long. A version that replaces
  /// nothing is probed only if it has a stored input. A version that nobody waits for (`is_asked` is false) does not fail because
  /// descriptors, memory or process ids are missing: its start is tried until they are there.
  void advance_probe(std::uint64_t now_ns, bool replaces, bool is_asked);
  /// The code for the clients whose change ends because this version has failed: kOverloaded if descriptors, memory or process
  /// ids were missing, so that the same change may succeed later.
  StatusCode failure_code() const {
    const bool may_succeed_later = processes_.lacks_resources() || entry_.failure.code() == StatusCode::kOverloaded;
    return may_succeed_later ? StatusCode::kOverloaded : StatusCode::kFailedPrecondition;
  }
  /// A worker died; `what` says how. If it was answering the probe, the version fails.
  void probe_died(Incarnation incarnation, const std::string& what);

  void serve() { stage_ = Stage::kServing; }
  /// Takes no new requests and answers the admitted ones. At `limit_ns` the rest fails. Without a limit, the watchdog ends lanes
  /// that hang, and requests fail when no worker could have answered them for kLeaveLimitNs.
  void leave(std::optional<std::uint64_t> limit_ns);
  /// True when nothing of it is left.
  bool advance_leaving(std::uint64_t now_ns);
  std::optional<std::uint64_t> next_tick_ns() const;
  /// This process did not run for so long: no limit counts that time.
  void postpone(std::uint64_t by_ns);

 private:
  bool has_golden() const { return !entry_.model.config.golden_file.empty(); }
  // A zygote that is started again must find the same files, because running workers serve what the first zygote read.
  Status model_loaded(std::string_view text) override {
    SHOAL_ASSIGN_OR_RETURN(LoadReport loaded, parse_loaded(text));
    if (loaded_ && loaded_->hash != loaded.hash) {
      return failed_precondition("model '{}': its files have changed since this version was loaded first", served().name);
    }
    loaded_ = std::move(loaded);
    description_.clear();
    daemon_.versions_changed_ = true;
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
  bool holds_requests(std::uint64_t incarnation) const override { return daemon_.ledger_.held_by(incarnation) > 0; }

  struct Probe {
    Incarnation incarnation = 0;
    std::uint64_t limit_ns = 0;
  };

  Daemon& daemon_;
  Service& service_;
  ModelIndex index_;
  VersionEntry entry_;
  Stage stage_ = Stage::kComing;
  std::optional<LoadReport> loaded_;
  std::uint32_t signature_ = 0;
  std::string description_;                        // empty: must be made
  std::vector<std::uint64_t> described_versions_;  // that it names
  Histogram unrouted_ns_, sent_again_ns_;
  std::optional<Probe> probe_;  // sent and not answered
  bool is_probed_ = false;
  std::optional<std::uint64_t> start_limit_ns_;  // set while there is too little memory to start
  std::uint64_t turn_limit_ns_ = 0;              // for its start while others load
  std::uint64_t look_ns_ = 0;                    // when to look for memory again
  std::uint64_t estimate_bytes_ = 0;             // memory that loading takes; 0 until it has begun
  std::optional<std::uint64_t> leave_limit_ns_;  // first for its requests, then for its processes
  std::optional<std::uint64_t> stuck_limit_ns_;  // for its requests; set while no worker of it can answer
  bool is_stopped_ = false;                      // its processes were told to end
  ModelProcesses processes_;
};

}  // namespace shoal::supervisor
