// Simulated zygotes and workers of one model. They do what a test says, when it says so.
#pragma once

#include <unistd.h>

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "shm/wire/control.hpp"
#include "supervisor/process/processes.hpp"

namespace shoal::test {

class SimProcesses;

/// All models' processes, in the order in which they were made.
struct SimFleet {
  std::uint64_t next_incarnation = 1, next_number = 1;
  std::map<std::uint64_t, SimProcesses*> all;
};

/// A Processes without processes. A worker that was told to end stays until dies() is called, as a real one may.
///   Threads  thread-bound
class SimProcesses final : public supervisor::Processes {
 public:
  using Worker = supervisor::WorkerProcess;

  SimProcesses(supervisor::ProcessOptions options, supervisor::ProcessObserver& observer, SimFleet& fleet)
      : Processes(std::move(options)), observer_(observer), fleet_(fleet), number_(fleet.next_number++) {
    fleet_.all[number_] = this;
  }
  ~SimProcesses() override { fleet_.all.erase(number_); }

  // ---- what the supervisor does ----
  void start() override { has_zygote_ = true; }
  void tick(std::uint64_t) override {}
  void postpone(std::uint64_t) override {}
  std::optional<std::uint64_t> next_tick_ns() const override { return std::nullopt; }
  void stop() override {
    state_ = supervisor::ModelState::kDraining;
    std::erase_if(workers_, [](const auto& worker) { return worker->state == Worker::State::kForking; });
    for (const auto& worker : workers_) worker->control.reset();
  }
  void kill_all() override {
    for (const auto& worker : workers_) worker->ended = supervisor::EndReason::kRules;
  }
  bool all_gone() const override { return !has_zygote_ && workers_.empty(); }
  void kill_worker(std::uint64_t incarnation, std::string_view why, supervisor::EndReason reason) override {
    Worker* worker = find_worker(incarnation);
    if (!worker || worker->ended != supervisor::EndReason::kNone) return;
    worker->ended = reason;
    worker->ended_because = why;
  }
  void abort_worker(std::uint64_t incarnation, pid_t, std::string_view why, supervisor::EndReason reason) override {
    kill_worker(incarnation, why, reason);
  }
  void set_workers(int workers) override {
    options_.workers = workers;
    failures_ = 0;
    dismiss_surplus();
    fork_missing();
  }
  void let_go(std::uint64_t incarnation) override {
    if (Worker* worker = find_worker(incarnation)) worker->control.reset();
  }
  Status probe(std::uint64_t incarnation) override {
    Worker* worker = find_worker(incarnation);
    if (!worker || worker->state != Worker::State::kReady) return Status(StatusCode::kNotFound, "no such worker is ready");
    ++worker->probes;
    return {};
  }
  bool makes_no_progress() const override { return failures_ >= 5; }
  bool lacks_resources() const override { return false; }
  void fail(const std::string& reason) override {
    if (state_ == supervisor::ModelState::kFailed || state_ == supervisor::ModelState::kDraining) return;
    state_ = supervisor::ModelState::kFailed;
    reason_ = reason;
    kill_all();
    observer_.model_failed(reason);
  }
  pid_t zygote_pid() const override { return has_zygote_ ? ::getpid() : -1; }

  // ---- what may happen to them; false: it cannot happen now ----
  bool loads(const std::string& text) {
    if (!has_zygote_ || state_ != supervisor::ModelState::kLoading) return false;
    state_ = supervisor::ModelState::kReady;
    if (const Status accepted = observer_.model_loaded(text); !accepted.ok()) fail(accepted.to_string());
    fork_missing();
    return true;
  }
  bool fails_to_load() {
    if (!has_zygote_ || state_ != supervisor::ModelState::kLoading) return false;
    fail("its files are torn");
    return true;
  }
  bool zygote_exits() {
    const bool is_over = state_ == supervisor::ModelState::kFailed || state_ == supervisor::ModelState::kDraining;
    return is_over && std::exchange(has_zygote_, false);
  }
  bool becomes_ready(std::uint64_t incarnation) {
    Worker* worker = find_worker(incarnation);
    if (!worker || worker->state != Worker::State::kForking || worker->ended != supervisor::EndReason::kNone ||
        state_ != supervisor::ModelState::kReady)
      return false;
    for (int lane = 0; lane < options_.lanes; ++lane)
      worker->lane_paths.push_back(supervisor::lane_path(options_.directory, incarnation, lane));
    worker->state = Worker::State::kReady;
    failures_ = 0;
    reason_.clear();
    observer_.worker_ready(*worker);
    dismiss_surplus();
    return true;
  }
  bool fails_to_start(std::uint64_t incarnation) {
    Worker* worker = find_worker(incarnation);
    if (!worker || worker->state != Worker::State::kForking) return false;
    reason_ = "no memory";
    std::erase_if(workers_, [&](const auto& other) { return other->incarnation == incarnation; });
    if (++failures_ >= 5 && ready_workers() == 0 && state_ == supervisor::ModelState::kReady)
      fail("its workers do not start");
    else
      fork_missing();
    return true;
  }
  bool dies(std::uint64_t incarnation) {
    Worker* worker = find_worker(incarnation);
    if (!worker || worker->state == Worker::State::kForking) return false;
    observer_.worker_died(*worker);
    std::erase_if(workers_, [&](const auto& other) { return other->incarnation == incarnation; });
    fork_missing();
    return true;
  }
  bool answers_probe(std::uint64_t incarnation, const Status& status) {
    Worker* worker = find_worker(incarnation);
    if (!worker || worker->probes == 0 || worker->ended != supervisor::EndReason::kNone) return false;
    --worker->probes;
    observer_.worker_probed(*worker, status);
    return true;
  }
  /// The supervisor has told this worker to end: by a signal, or by the end of its control socket.
  static bool is_told_to_end(const Worker& worker) {
    return worker.state != Worker::State::kForking && (worker.ended != supervisor::EndReason::kNone || !worker.control);
  }
  /// Reads what the supervisor has told its workers, as they do.
  void read_controls() {
    for (auto& [incarnation, control] : controls_) {
      for (auto said = wire::receive_control(control.get()); said.ok() && *said; said = wire::receive_control(control.get()))
        continue;
    }
  }

 private:
  void fork_missing() {
    const auto staying = [&] { return static_cast<int>(workers_.size()) - count(Worker::State::kLeaving); };
    while (state_ == supervisor::ModelState::kReady && staying() < options_.workers) {
      auto worker = std::make_unique<Worker>();
      worker->incarnation = fleet_.next_incarnation++;
      worker->pid = ::getpid();
      wire::ControlPair pair = wire::make_control_pair().value();
      worker->control = std::move(pair.ours);
      controls_[worker->incarnation] = std::move(pair.theirs);
      workers_.push_back(std::move(worker));
    }
    std::erase_if(controls_, [&](const auto& control) { return !find_worker(control.first); });
  }
  void dismiss_surplus() {
    for (std::size_t i = workers_.size(); i-- > 0 && ready_workers() > options_.workers;) {
      if (workers_[i]->state != Worker::State::kReady) continue;
      workers_[i]->state = Worker::State::kLeaving;
      observer_.worker_leaving(*workers_[i]);
    }
  }

  supervisor::ProcessObserver& observer_;
  SimFleet& fleet_;
  const std::uint64_t number_;
  std::map<std::uint64_t, UniqueFd> controls_;  // the workers' ends, by incarnation
  bool has_zygote_ = false;
  int failures_ = 0;
};

}  // namespace shoal::test
