// One version of a served model: what was loaded, and its processes. The catalog decides when it comes, serves and leaves.
#pragma once

#include <optional>
#include <string>

#include "shm/base/clock.hpp"
#include "shm/base/errors.hpp"
#include "supervisor/daemon.hpp"

namespace shoal::supervisor {

/// Threads: thread-bound
class Daemon::ModelVersion : public ProcessObserver {
 public:
  ModelVersion(Daemon& daemon, VersionId id, ModelIndex index, VersionEntry entry, ProcessOptions options)
      : daemon_(daemon),
        id_(id),
        index_(index),
        entry_(std::move(entry)),
        processes_(std::move(options), daemon.loop_, *this, daemon.log_, daemon.births_, daemon.stuck_zygotes_) {}

  VersionId id() const { return id_; }
  ModelIndex index() const { return index_; }
  const VersionEntry& entry() const { return entry_; }
  const ServedModel& served() const { return entry_.model; }
  std::uint64_t version() const { return entry_.model.files.version; }
  const std::optional<LoadReport>& loaded() const { return loaded_; }
  std::uint32_t signature() const { return signature_; }
  /// The answer to `describe`, for a version that has loaded. Made anew when the versions that `service` serves have changed.
  const std::string& description(const Service& service);
  /// Times since the pidfd of a dead worker was readable: until no request can go to the worker any more, and until a request
  /// that it held was sent again.
  Histogram& unrouted_ns() { return unrouted_ns_; }
  const Histogram& unrouted_ns() const { return unrouted_ns_; }
  Histogram& sent_again_ns() { return sent_again_ns_; }
  const Histogram& sent_again_ns() const { return sent_again_ns_; }
  ModelProcesses& processes() { return processes_; }
  const ModelProcesses& processes() const { return processes_; }
  bool has_failed() const { return processes_.state() == ModelState::kFailed; }
  VersionFacts facts() const;

  /// Starts the zygote as soon as there is memory for it. Fails the version if there is too little until `limit_ns`. While other
  /// versions load, and there would be enough without them, it waits. If a client waits for it (`is_asked`), then at most for its
  /// load_timeout_s.
  void start(std::uint64_t limit_ns);
  void advance_start(std::uint64_t now_ns);
  /// The most memory that its load will take; 0 when it does not load.
  std::uint64_t promised_bytes() const { return processes_.state() == ModelState::kLoading ? estimate_bytes_ : 0; }
  /// Asks a ready worker to answer the model's stored input.
  void send_probe();
  /// A worker died; `what` says how. If it was answering the probe, the version fails.
  void probe_died(Incarnation incarnation, const std::string& what);
  /// Nobody waits for the answer to its probe any more.
  void retire() { probed_worker_.reset(); }
  /// Ends its processes, or what it would start.
  void end();

  std::optional<std::uint64_t> next_tick_ns() const;
  /// This process did not run for so long: no limit counts that time.
  void postpone(std::uint64_t by_ns);

  bool awaits_idle = false;  ///< the catalog waits until none of its requests is left

 private:
  // A zygote that is started again must find the same files, because running workers serve what the first zygote read.
  Status model_loaded(std::string_view text) override;
  void model_failed(const std::string& reason) override;
  void worker_ready(const WorkerProcess& worker) override;
  void worker_leaving(const WorkerProcess& worker) override { daemon_.worker_leaving(*this, worker); }
  void worker_probed(const WorkerProcess& worker, const Status& status) override;
  void worker_died(WorkerProcess& worker) override;
  void worker_reaped(std::uint64_t incarnation, int wait_status) override {
    daemon_.deaths_.reaped(incarnation, wait_status, monotonic_now_ns());
  }
  std::uint64_t answered_by(std::uint64_t incarnation) const override { return daemon_.ledger_.answered_by(incarnation); }
  bool holds_requests(std::uint64_t incarnation) const override { return daemon_.ledger_.held_by(incarnation) > 0; }

  Daemon& daemon_;
  const VersionId id_;
  const ModelIndex index_;
  VersionEntry entry_;
  std::optional<LoadReport> loaded_;
  std::uint32_t signature_ = 0;
  std::string description_;                        // empty: must be made
  std::vector<std::uint64_t> described_versions_;  // that it names
  Histogram unrouted_ns_, sent_again_ns_;
  std::optional<Incarnation> probed_worker_;     // has not answered yet
  std::optional<std::uint64_t> start_limit_ns_;  // set while there is too little memory to start
  std::uint64_t turn_limit_ns_ = 0;              // for its start while others load
  std::uint64_t look_ns_ = 0;                    // when to look for memory again
  std::uint64_t estimate_bytes_ = 0;             // memory that loading takes; 0 until it has begun
  ModelProcesses processes_;
};

}  // namespace shoal::supervisor
