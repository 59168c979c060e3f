// One version of a model: its start, its probe, and what its processes report.
#include "supervisor/model_version.hpp"

#include <algorithm>

#include "supervisor/process/memory_group.hpp"
#include "supervisor/repository/load_estimate.hpp"
#include "supervisor/repository/model_text.hpp"

namespace shoal::supervisor {
namespace {

constexpr std::uint64_t kLookAgainNs = 100'000'000;

}  // namespace

VersionFacts Daemon::ModelVersion::facts() const {
  const int ready = processes_.ready_workers();
  // Whoever asked hears kOverloaded if the same wish may come true later.
  const bool may_succeed_later = processes_.lacks_resources() || entry_.failure.code() == StatusCode::kOverloaded;
  return {.ready = ready,
          .alive = static_cast<int>(processes_.workers().size()),
          .has_failed = has_failed(),
          .is_stalled = processes_.makes_no_progress(),
          .lacks_resources = processes_.lacks_resources(),
          .can_answer = ready > 0 && daemon_.ledger_.model(index_).breaker.closed(),
          .is_idle = daemon_.ledger_.model_idle(index_),
          .is_gone = processes_.all_gone(),
          .reason = processes_.reason(),
          .failure = may_succeed_later ? StatusCode::kOverloaded : StatusCode::kFailedPrecondition};
}

void Daemon::ModelVersion::start(std::uint64_t limit_ns) {
  if (!entry_.failure.ok()) return processes_.fail(entry_.failure.to_string());
  start_limit_ns_ = limit_ns;
  turn_limit_ns_ = monotonic_now_ns() + processes_.options().load_limit_ns;
  advance_start(monotonic_now_ns());
}

// Looks for free memory again until the limit, because a killed daemon may still be giving its memory back. Versions that are
// loading have not taken all of their memory yet. A version that does not fit beside them waits until they are loaded.
void Daemon::ModelVersion::advance_start(std::uint64_t now_ns) {
  if (!start_limit_ns_ || now_ns < look_ns_) return;
  const ModelVersion* current = daemon_.current_of(served().name);
  const std::uint64_t packed = current ? current->processes().packed_bytes() : 0;
  const std::uint64_t arena = current && current->loaded() ? current->loaded()->arena_bytes : 0;
  const LoadEstimate estimate = estimate_load(entry_, packed, arena);
  const std::uint64_t available = available_memory_bytes(), promised = daemon_.promised_bytes();
  Status fits = check_estimate(served().name, estimate, available);
  look_ns_ = now_ns + kLookAgainNs;
  if (fits.ok() && promised > 0 && estimate.sum() > available - std::min(available, promised)) {
    if (now_ns < turn_limit_ns_ || !daemon_.catalog_.is_asked(id_)) return;
    fits = overloaded(
        "model '{}': for {} s (load_timeout_s) it has waited for memory that models take which are loading: try again when they "
        "are loaded, or unload them",
        served().name, processes_.options().load_limit_ns / 1'000'000'000);
  } else if (!fits.ok() && now_ns < *start_limit_ns_) {
    return;
  }
  start_limit_ns_.reset();
  if (!fits.ok()) {
    entry_.failure = fits;
    return processes_.fail(fits.to_string());
  }
  estimate_bytes_ = estimate.sum();
  processes_.start();
}

void Daemon::ModelVersion::send_probe() {
  const auto& workers = processes_.workers();
  const auto ready = std::ranges::find(workers, WorkerProcess::State::kReady, [](const auto& worker) { return worker->state; });
  if (ready == workers.end()) return daemon_.catalog_.probe_not_sent(id_);
  probed_worker_ = (*ready)->incarnation;
  if (const Status sent = processes_.probe(*probed_worker_); !sent.ok())
    processes_.fail(format("version {}: its probe cannot be sent: {}", version(), sent.message()));
}

void Daemon::ModelVersion::worker_probed(const WorkerProcess& worker, const Status& status) {
  // For the breaker, if it asked for this probe. Without a stored input the probe is zeros of the smallest shape. The model may
  // refuse such an input, so a refusal counts as an answer.
  const bool is_answered =
      status.ok() || (status.code() == StatusCode::kInvalidArgument && entry_.model.config.golden_file.empty());
  daemon_.ledger_.probed(worker.incarnation, is_answered, monotonic_now_ns());
  daemon_.perform();
  daemon_.is_catalog_due_ = true;
  if (probed_worker_ != worker.incarnation) return;
  probed_worker_.reset();
  daemon_.catalog_.probed(id_, status);
}

void Daemon::ModelVersion::probe_died(Incarnation incarnation, const std::string& what) {
  if (probed_worker_ != incarnation) return;
  probed_worker_.reset();
  processes_.fail(format("version {}: its worker died while it answered the probe: {}", version(), what));
}

void Daemon::ModelVersion::end() {
  start_limit_ns_.reset();
  processes_.stop();
}

Status Daemon::ModelVersion::model_loaded(std::string_view text) {
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

void Daemon::ModelVersion::model_failed(const std::string& reason) {
  daemon_.ledger_.fail_model(index_, reason);
  daemon_.perform();
  daemon_.is_catalog_due_ = true;
}

void Daemon::ModelVersion::worker_ready(const WorkerProcess& worker) {
  daemon_.worker_ready(*this, worker);
  daemon_.is_catalog_due_ = true;
}

void Daemon::ModelVersion::worker_died(WorkerProcess& worker) {
  daemon_.worker_died(*this, worker);
  daemon_.is_catalog_due_ = true;
}

const std::string& Daemon::ModelVersion::description(const Service& service) {
  std::vector<std::uint64_t> versions = service.served_versions();
  if (description_.empty() || described_versions_ != versions) {
    described_versions_ = std::move(versions);
    description_ = describe_text(served(), *loaded_, service.wire_id, described_versions_);
  }
  return description_;
}

void Daemon::ModelVersion::postpone(std::uint64_t by_ns) {
  processes_.postpone(by_ns);
  turn_limit_ns_ += by_ns;
  if (start_limit_ns_) *start_limit_ns_ += by_ns;
}

std::optional<std::uint64_t> Daemon::ModelVersion::next_tick_ns() const {
  std::optional<std::uint64_t> next = processes_.next_tick_ns();
  if (start_limit_ns_) next = next ? std::min(*next, look_ns_) : look_ns_;
  return next;
}

}  // namespace shoal::supervisor
