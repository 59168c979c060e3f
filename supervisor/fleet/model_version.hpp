// One version of a served model: what was loaded, and its processes. The catalog decides when it comes, serves and leaves.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "supervisor/catalog/catalog.hpp"
#include "supervisor/plane/data_plane.hpp"
#include "supervisor/process/processes.hpp"
#include "supervisor/repository/model_text.hpp"

namespace shoal::supervisor {

class Fleet;

///   Threads  thread-bound
class ModelVersion final : public ProcessObserver {
 public:
  /// Adds itself to the data plane. `fleet` outlives this. Call DataPlane::remove_version() before it is destroyed, unless the
  /// data plane does nothing more.
  ModelVersion(Fleet& fleet, VersionId id, VersionEntry entry, ProcessOptions options);
  ModelVersion(const ModelVersion&) = delete;
  ModelVersion& operator=(const ModelVersion&) = delete;

  const VersionEntry& entry() const { return entry_; }
  const ServedModel& served() const { return entry_.model; }
  std::uint64_t number() const { return entry_.model.files.version; }
  const std::optional<LoadReport>& loaded() const { return loaded_; }
  const RoutedVersion& routed() const { return routed_; }
  Processes& processes() { return *processes_; }
  const Processes& processes() const { return *processes_; }
  bool has_failed() const { return processes_->state() == ModelState::kFailed; }
  VersionFacts facts() const;
  /// The answer to `describe`, for a version that has loaded. Made anew when the versions that `service` serves have changed.
  const std::string& description(const Service& service);

  /// Starts the zygote as soon as there is memory for it. Fails the version if there is too little until `limit_ns`. While other
  /// versions load, and there would be enough without them, it waits. If a client waits for it (Catalog::is_asked), then at most
  /// for its load_timeout_s.
  void start(std::uint64_t limit_ns);
  /// The most memory that its load will take; 0 when it does not load.
  std::uint64_t promised_bytes() const { return processes_->state() == ModelState::kLoading ? estimate_bytes_ : 0; }
  /// Asks a ready worker to answer the model's stored input. If that worker dies meanwhile, the version fails.
  void send_probe();
  /// Nobody waits for the answer to its probe any more.
  void retire() { probed_worker_.reset(); }
  /// Ends its processes, or what it would start.
  void end();

 private:
  std::unique_ptr<Processes> make_processes(ProcessOptions options);
  void try_to_start(std::uint64_t now_ns);
  void stop_waiting();
  // A zygote that is started again must find the same files, because running workers serve what the first zygote read.
  Status model_loaded(std::string_view text) override;
  void model_failed(const std::string& reason) override;
  void worker_ready(const WorkerProcess& worker) override;
  void worker_leaving(const WorkerProcess& worker) override;
  void worker_ending(const WorkerProcess& worker) override;
  void worker_probed(const WorkerProcess& worker, const Status& status) override;
  void worker_died(WorkerProcess& worker) override;
  void worker_reaped(std::uint64_t incarnation, int wait_status) override;
  void limit_was_over() override;
  std::uint64_t answered_by(std::uint64_t incarnation) const override;
  bool holds_requests(std::uint64_t incarnation) const override;

  Fleet& fleet_;
  DataPlane& plane_;
  const VersionId id_;
  VersionEntry entry_;
  std::optional<LoadReport> loaded_;
  std::string description_;                        // empty: must be made
  std::vector<std::uint64_t> described_versions_;  // that it names
  std::optional<Incarnation> probed_worker_;       // has not answered yet
  bool waits_for_memory_ = false;
  Timer memory_look_;                 // while it waits
  Timer start_limit_;                 // while there is too little memory to start
  Timer turn_limit_;                  // while others load
  std::uint64_t estimate_bytes_ = 0;  // memory that loading takes; 0 until it has begun
  std::unique_ptr<Processes> processes_;
  RoutedVersion& routed_;
};

}  // namespace shoal::supervisor
