// One version of a model: its start, its probe, and what its processes report.
#include "supervisor/fleet/model_version.hpp"

#include <algorithm>

#include "shm/base/clock.hpp"
#include "shm/base/errors.hpp"
#include "supervisor/fleet/fleet.hpp"
#include "supervisor/repository/load_estimate.hpp"
#include "supervisor/repository/model_text.hpp"

namespace shoal::supervisor {

ModelVersion::ModelVersion(Fleet& fleet, VersionId id, VersionEntry entry, ProcessOptions options)
    : fleet_(fleet),
      plane_(fleet.plane_),
      id_(id),
      entry_(std::move(entry)),
      memory_look_(fleet.timers_, Timer::Kind::kClock, [this](std::uint64_t now_ns) { try_to_start(now_ns); }),
      start_limit_(fleet.timers_, Timer::Kind::kPatience, [this](std::uint64_t now_ns) { try_to_start(now_ns); }),
      turn_limit_(fleet.timers_, Timer::Kind::kPatience, [this](std::uint64_t now_ns) { try_to_start(now_ns); }),
      processes_(make_processes(std::move(options))),
      routed_(plane_.add_version(id, entry_.model.name, entry_.model, *processes_)) {}

std::unique_ptr<Processes> ModelVersion::make_processes(ProcessOptions options) {
  if (fleet_.options_.make_processes) return fleet_.options_.make_processes(std::move(options), *this);
  return std::make_unique<ModelProcesses>(std::move(options), fleet_.clock_, fleet_.loop_, fleet_.timers_, *this, fleet_.log_,
                                          fleet_.births_, fleet_.stuck_zygotes_);
}

VersionFacts ModelVersion::facts() const {
  const int ready = processes_->ready_workers();
  // Whoever asked hears kOverloaded if the same wish may come true later.
  const bool may_succeed_later = processes_->lacks_resources() || entry_.failure.code() == StatusCode::kOverloaded;
  const ModelView asked = plane_.ledger().model(routed_.index);
  const std::size_t requests = asked.queued + asked.running + asked.suspected;
  std::size_t held_by_stuck = 0;
  for (const auto& worker : processes_->stuck_workers()) held_by_stuck += plane_.ledger().held_by(worker->incarnation);
  return {.ready = ready,
          .alive = static_cast<int>(processes_->workers().size()),
          .has_failed = has_failed(),
          .is_stalled = processes_->makes_no_progress(),
          .lacks_resources = processes_->lacks_resources(),
          .can_answer = ready > 0 && asked.breaker.closed() && (requests > held_by_stuck || requests == 0),
          .is_idle = plane_.ledger().model_idle(routed_.index),
          .requests = requests,
          .is_gone = processes_->all_gone(),
          .reason = processes_->reason(),
          .failure = may_succeed_later ? StatusCode::kOverloaded : StatusCode::kFailedPrecondition};
}

void ModelVersion::start(std::uint64_t limit_ns) {
  if (!entry_.failure.ok()) return processes_->fail(entry_.failure.to_string());
  const std::uint64_t now_ns = fleet_.clock_.now_ns();
  waits_for_memory_ = true;
  start_limit_.set(limit_ns);
  turn_limit_.set(now_ns + processes_->options().load_limit_ns);
  try_to_start(now_ns);
}

// Looks for free memory again until the limit, because a killed daemon may still be giving its memory back. Versions that are
// loading have not taken all of their memory yet. A version that does not fit beside them waits until they are loaded.
void ModelVersion::try_to_start(std::uint64_t now_ns) {
  if (!waits_for_memory_ || fleet_.is_closed_) return;
  const ModelVersion* current = fleet_.current_of(served().name);
  const std::uint64_t packed = current ? current->processes().packed_bytes() : 0;
  const std::uint64_t arena = current && current->loaded() ? current->loaded()->arena_bytes : 0;
  const LoadEstimate estimate = estimate_load(entry_, packed, arena);
  const std::uint64_t available = fleet_.memory_.bytes(now_ns), promised = fleet_.promised_bytes();
  Status fits = check_estimate(served().name, estimate, available);
  memory_look_.set(AvailableMemory::next_look_ns(now_ns));
  fleet_.wake();
  if (fits.ok() && promised > 0 && estimate.sum() > available - std::min(available, promised)) {
    if (turn_limit_.at_ns() > now_ns || !fleet_.catalog_.is_asked(id_)) return;
    fits = overloaded(
        "model '{}': for {} s (load_timeout_s) it has waited for memory that models take which are loading: try again when they "
        "are loaded, or unload them",
        served().name, processes_->options().load_limit_ns / 1'000'000'000);
  } else if (!fits.ok() && start_limit_.at_ns() > now_ns) {
    return;
  }
  stop_waiting();
  if (!fits.ok()) {
    entry_.failure = fits;
    return processes_->fail(fits.to_string());
  }
  estimate_bytes_ = estimate.sum();
  processes_->start();
}

void ModelVersion::send_probe() {
  const auto& workers = processes_->workers();
  const auto ready = std::ranges::find_if(workers, [](const auto& worker) { return worker->is_ready(); });
  if (ready == workers.end()) return fleet_.catalog_.probe_not_sent(id_);
  probed_worker_ = (*ready)->incarnation;
  const Status sent = processes_->probe(*probed_worker_);
  if (sent.ok()) return;
  // It does not read its control socket, or has closed it. Another worker is asked.
  fleet_.catalog_.probe_not_sent(id_);
  processes_->kill_worker(*std::exchange(probed_worker_, std::nullopt), format("its probe cannot be sent: {}", sent.message()));
}

void ModelVersion::worker_probed(const WorkerProcess& worker, const Status& status) {
  plane_.worker_probed(worker, answers_probe(status, entry_.model.config));
  fleet_.wake();
  if (probed_worker_ != worker.incarnation) return;
  probed_worker_.reset();
  fleet_.catalog_.probed(id_, status);
}

void ModelVersion::stop_waiting() {
  waits_for_memory_ = false;
  for (Timer* timer : {&memory_look_, &start_limit_, &turn_limit_}) timer->clear();
}

void ModelVersion::end() {
  stop_waiting();
  processes_->stop();
}

Status ModelVersion::model_loaded(std::string_view text) {
  SHOAL_ASSIGN_OR_RETURN(LoadReport loaded, parse_loaded(text));
  if (loaded_ && loaded_->hash != loaded.hash) {
    return failed_precondition("model '{}': its files have changed since this version was loaded first", served().name);
  }
  loaded_ = std::move(loaded);
  description_.clear();
  for (const std::string& warning : loaded_->warnings)
    fleet_.log_.warn("load_warning model={} version={} what=\"{}\"", served().name, number(), warning);
  fleet_.log_.info("algorithms_chosen model={} version={} precision={} how=\"{}\"", served().name, number(), loaded_->precision,
                   loaded_->tuning);
  plane_.version_loaded(routed_, loaded_->signature(served().name));
  return {};
}

void ModelVersion::model_failed(const std::string& reason) {
  plane_.end_requests(id_, reason);
  fleet_.wake();
}

void ModelVersion::worker_ready(const WorkerProcess& worker) {
  plane_.worker_ready(routed_, worker);
  fleet_.wake();
}

// If it ends before it has answered the probe, that says nothing about the version. Another worker is asked.
void ModelVersion::worker_leaving(const WorkerProcess& worker) {
  plane_.worker_leaving(worker);
  if (probed_worker_ != worker.incarnation) return;
  probed_worker_.reset();
  fleet_.catalog_.probe_not_sent(id_);
  fleet_.wake();
}

void ModelVersion::worker_ending(const WorkerProcess& worker) { plane_.worker_ending(worker); }

void ModelVersion::worker_died(WorkerProcess& worker) {
  std::string what;
  plane_.worker_died(routed_, worker, what);
  fleet_.wake();
  if (probed_worker_ != worker.incarnation) return;
  probed_worker_.reset();
  processes_->fail(format("version {}: its worker died while it answered the probe: {}", number(), what));
}

void ModelVersion::worker_reaped(std::uint64_t incarnation, int wait_status) {
  plane_.deaths().reaped(incarnation, wait_status, fleet_.clock_.now_ns());
}

void ModelVersion::limit_was_over() { fleet_.wake(); }

std::uint64_t ModelVersion::answered_by(std::uint64_t incarnation) const { return plane_.ledger().answered_by(incarnation); }

bool ModelVersion::holds_requests(std::uint64_t incarnation) const { return plane_.ledger().held_by(incarnation) > 0; }

const std::string& ModelVersion::description(const Service& service) {
  std::vector<std::uint64_t> versions = service.served_versions();
  if (description_.empty() || described_versions_ != versions) {
    described_versions_ = std::move(versions);
    description_ = describe_text(served(), *loaded_, service.wire_id, described_versions_);
  }
  return description_;
}

}  // namespace shoal::supervisor
