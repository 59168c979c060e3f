// One version of a model: its start, its probe, and its end.
#include "supervisor/model_version.hpp"

#include <algorithm>

#include "supervisor/daemon_service.hpp"
#include "supervisor/process/memory_group.hpp"
#include "supervisor/repository/model_text.hpp"

namespace shoal::supervisor {
namespace {

constexpr std::uint64_t kLookAgainNs = 100'000'000;

}  // namespace

void Daemon::ModelVersion::start(std::uint64_t limit_ns) {
  if (!entry_.failure.ok()) return processes_.fail(entry_.failure.to_string());
  start_limit_ns_ = limit_ns;
  turn_limit_ns_ = monotonic_now_ns() + processes_.options().load_limit_ns;
  advance_start(monotonic_now_ns(), false);
}

// Looks for free memory again until the limit, because a killed daemon may still be giving its memory back. Versions that are
// loading have not taken all of their memory yet. A version that does not fit beside them waits until they are loaded.
void Daemon::ModelVersion::advance_start(std::uint64_t now_ns, bool is_asked) {
  if (!start_limit_ns_ || now_ns < look_ns_) return;
  const ModelVersion* served = service_.current;
  const std::uint64_t packed = served ? served->processes().packed_bytes() : 0;
  const std::uint64_t arena = served && served->loaded() ? served->loaded()->arena_bytes : 0;
  const LoadEstimate estimate = estimate_load(entry_, packed, arena);
  const std::uint64_t available = available_memory_bytes(), promised = daemon_.promised_bytes();
  Status fits = check_estimate(service_.name, estimate, available);
  look_ns_ = now_ns + kLookAgainNs;
  if (fits.ok() && promised > 0 && estimate.sum() > available - std::min(available, promised)) {
    if (!is_asked || now_ns < turn_limit_ns_) return;
    fits = overloaded(
        "model '{}': for {} s (load_timeout_s) it has waited for memory that models take which are loading: try again when they "
        "are loaded, or unload them",
        service_.name, processes_.options().load_limit_ns / 1'000'000'000);
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

void Daemon::ModelVersion::advance_probe(std::uint64_t now_ns, bool replaces, bool is_asked) {
  if (is_probed_ || has_failed()) return;
  if (probe_) {
    if (now_ns < probe_->limit_ns) return;
    return processes_.fail(
        format("version {}: its probe was not answered within {} s", version(), kProbeLimitNs / 1'000'000'000));
  }
  if (processes_.ready_workers() < processes_.options().workers) {
    const bool is_patient = processes_.lacks_resources() && !is_asked;
    if (processes_.makes_no_progress() && !is_patient) processes_.fail(processes_.reason());
    return;
  }
  if (!replaces && !has_golden()) {
    is_probed_ = true;
    return;
  }
  const auto& workers = processes_.workers();
  const auto ready = std::ranges::find(workers, WorkerProcess::State::kReady, [](const auto& worker) { return worker->state; });
  probe_ = Probe{(*ready)->incarnation, now_ns + kProbeLimitNs};
  if (const Status sent = processes_.probe(probe_->incarnation); !sent.ok())
    processes_.fail(format("version {}: its probe cannot be sent: {}", version(), sent.message()));
}

// Without a stored input the probe is zeros of the smallest shape. The model may refuse such an input, so a refusal counts as an
// answer.
void Daemon::ModelVersion::worker_probed(const WorkerProcess& worker, const Status& status) {
  const bool is_good = status.ok() || (status.code() == StatusCode::kInvalidArgument && !has_golden());
  daemon_.ledger_.probed(worker.incarnation, is_good, monotonic_now_ns());  // for the breaker, if it asked for this probe
  daemon_.perform();
  daemon_.is_life_due_ = true;
  if (!probe_ || worker.incarnation != probe_->incarnation) return;
  probe_.reset();
  if (!is_good) return processes_.fail(format("version {} failed its probe: {}", version(), status.to_string()));
  is_probed_ = true;
}

const std::string& Daemon::ModelVersion::description() {
  std::vector<std::uint64_t> versions = service_.served_versions();
  if (description_.empty() || described_versions_ != versions) {
    described_versions_ = std::move(versions);
    description_ = describe_text(served(), *loaded_, service_.wire_id, described_versions_);
  }
  return description_;
}

void Daemon::ModelVersion::probe_died(Incarnation incarnation, const std::string& what) {
  if (!probe_ || incarnation != probe_->incarnation) return;
  probe_.reset();
  processes_.fail(format("version {}: its worker died while it answered the probe: {}", version(), what));
}

void Daemon::ModelVersion::leave(std::optional<std::uint64_t> limit_ns) {
  if (limit_ns && !leave_limit_ns_) leave_limit_ns_ = limit_ns;
  if (stage_ == Stage::kLeaving) return;
  stage_ = Stage::kLeaving;
  daemon_.ledger_.drain_model(index_, format("version {} of model '{}' is being removed", version(), served().name));
  daemon_.is_life_due_ = true;
}

bool Daemon::ModelVersion::advance_leaving(std::uint64_t now_ns) {
  const bool is_idle = daemon_.ledger_.model_idle(index_);
  if (!is_stopped_) {
    const bool can_answer = processes_.ready_workers() > 0 && daemon_.ledger_.model(index_).breaker.closed();
    if (can_answer)
      stuck_limit_ns_.reset();
    else if (!stuck_limit_ns_)
      stuck_limit_ns_ = now_ns + kLeaveLimitNs;
    const auto is_over = [&](const std::optional<std::uint64_t>& limit_ns) { return limit_ns && now_ns >= *limit_ns; };
    if (!is_idle && !is_over(leave_limit_ns_) && !is_over(stuck_limit_ns_)) return false;
    if (!is_idle) {
      daemon_.ledger_.fail_model(index_, format("version {} was removed, and the request was not finished after {} s", version(),
                                                kLeaveLimitNs / 1'000'000'000));
      daemon_.perform();
    }
    processes_.stop();
    is_stopped_ = true;
    stuck_limit_ns_.reset();
    leave_limit_ns_ = now_ns + kExitLimitNs;
  }
  if (processes_.all_gone()) return daemon_.ledger_.model_idle(index_);
  if (now_ns >= *leave_limit_ns_) {
    processes_.kill_all();
    leave_limit_ns_ = now_ns + kExitLimitNs;
  }
  return false;
}

void Daemon::ModelVersion::postpone(std::uint64_t by_ns) {
  processes_.postpone(by_ns);
  turn_limit_ns_ += by_ns;
  if (probe_) probe_->limit_ns += by_ns;
  for (std::optional<std::uint64_t>* limit_ns : {&start_limit_ns_, &leave_limit_ns_, &stuck_limit_ns_}) {
    if (*limit_ns) **limit_ns += by_ns;
  }
}

std::optional<std::uint64_t> Daemon::ModelVersion::next_tick_ns() const {
  std::optional<std::uint64_t> next = processes_.next_tick_ns();
  const auto earlier = [&](std::uint64_t at_ns) { next = next ? std::min(*next, at_ns) : at_ns; };
  if (start_limit_ns_) earlier(look_ns_);
  if (probe_) earlier(probe_->limit_ns);
  for (const auto& limit_ns : {leave_limit_ns_, stuck_limit_ns_}) {
    if (limit_ns) earlier(*limit_ns);
  }
  return next;
}

}  // namespace shoal::supervisor
