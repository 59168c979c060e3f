// One served model inside the daemon: what was asked for, what was loaded, its processes.
#pragma once

#include <optional>
#include <string>

#include "shm/base/clock.hpp"
#include "shm/base/errors.hpp"
#include "supervisor/daemon.hpp"

namespace shoal::supervisor {

/// Threads: thread-bound
class Daemon::Model : public ProcessObserver {
 public:
  Model(Daemon& daemon, ModelIndex index, ServedModel served, ProcessOptions options)
      : daemon_(daemon),
        index_(index),
        served_(std::move(served)),
        processes_(std::move(options), daemon.loop_, *this, daemon.log_, daemon.next_incarnation_) {}

  ModelIndex index() const { return index_; }
  std::uint32_t wire_id() const { return index_ + 1; }
  const ServedModel& served() const { return served_; }
  const std::optional<LoadedModel>& loaded() const { return loaded_; }
  std::uint32_t signature() const { return signature_; }
  /// From a death's pidfd: until no request can go to the worker any more; until a request that it held was sent again.
  Histogram& unrouted_ns() { return unrouted_ns_; }
  Histogram& sent_again_ns() { return sent_again_ns_; }
  ModelProcesses& processes() { return processes_; }
  const ModelProcesses& processes() const { return processes_; }

 private:
  // A zygote that is started again must find the files it was started with: running workers have the old ones.
  Status model_loaded(std::string_view text) override {
    SHOAL_ASSIGN_OR_RETURN(LoadedModel loaded, parse_loaded(text));
    if (loaded_ && loaded_->hash != loaded.hash) {
      return failed_precondition("model '{}': changed version: its files are not the ones that were loaded at first",
                                 served_.name);
    }
    loaded_ = std::move(loaded);
    for (const std::string& warning : loaded_->warnings)
      daemon_.log_.warn("load_warning model={} what=\"{}\"", served_.name, warning);
    daemon_.log_.info("algorithms_chosen model={} how=\"{}\"", served_.name, loaded_->tuning);
    signature_ = loaded_->signature(served_.name);
    daemon_.answer_waiting_describes();
    return {};
  }
  void model_failed(const std::string& reason) override {
    daemon_.ledger_.fail_model(index_, reason);
    daemon_.perform();
    daemon_.answer_waiting_describes();
  }
  void worker_ready(const WorkerProcess& worker) override { daemon_.worker_ready(*this, worker); }
  void worker_died(WorkerProcess& worker) override { daemon_.worker_died(*this, worker); }
  void worker_reaped(std::uint64_t incarnation, int wait_status) override {
    daemon_.deaths_.reaped(incarnation, wait_status, monotonic_now_ns());
  }
  std::uint64_t answered_by(std::uint64_t incarnation) const override { return daemon_.ledger_.answered_by(incarnation); }

  Daemon& daemon_;
  ModelIndex index_;
  ServedModel served_;
  std::optional<LoadedModel> loaded_;
  std::uint32_t signature_ = 0;
  Histogram unrouted_ns_, sent_again_ns_;
  ModelProcesses processes_;
};

}  // namespace shoal::supervisor
