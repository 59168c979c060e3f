// Simulated zygotes and workers of one model. They do what the world says, when it says so.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "shm/base/clock.hpp"
#include "shm/base/format.hpp"
#include "shm/wire/control.hpp"
#include "supervisor/catalog/catalog.hpp"
#include "supervisor/plane/data_plane.hpp"
#include "supervisor/process/processes.hpp"
#include "tests/sim/worker.hpp"

namespace shoal::test {

class SimProcesses;

/// All models' processes, in the order in which they were made. It notes when the supervisor ends somebody whom it must not end.
struct SimFleet {
  std::uint64_t next_incarnation = 1, next_number = 1;
  std::map<std::uint64_t, SimProcesses*> all;
  std::map<std::uint64_t, SimWorker> workers;  // by incarnation
  const Clock* clock = nullptr;
  std::uint64_t lived_ns = 0;  // time in which the supervisor ran
  std::string broken;          // the first promise that was
  bool is_over = false;        // the world ends: everything may be killed

  void breaks(const std::string& what) {
    if (broken.empty()) broken = what;
  }
  SimWorker* find(std::uint64_t incarnation) {
    const auto found = workers.find(incarnation);
    return found == workers.end() ? nullptr : &found->second;
  }
};

/// A Processes without processes. A worker that was told to end stays until dies() is called, as a real one may.
///   Threads  thread-bound
class SimProcesses final : public supervisor::Processes {
 public:
  using Worker = supervisor::WorkerProcess;
  using EndReason = supervisor::EndReason;

  SimProcesses(supervisor::ProcessOptions options, supervisor::ProcessObserver& observer, SimFleet& fleet)
      : Processes(std::move(options)), observer_(observer), fleet_(fleet), number_(fleet.next_number++) {
    fleet_.all[number_] = this;
  }
  ~SimProcesses() override {
    for_each_worker([&](const Worker& worker) { fleet_.workers.erase(worker.incarnation); });
    fleet_.all.erase(number_);
  }

  // ---- what the supervisor does ----
  void start() override { has_zygote_ = true; }
  void stop() override {
    if (state_ != supervisor::ModelState::kDraining) stopped_lived_ns_ = fleet_.lived_ns;
    state_ = supervisor::ModelState::kDraining;
    std::erase_if(workers_, [&](const auto& worker) {
      return worker->state == Worker::State::kForking && fleet_.workers.erase(worker->incarnation) > 0;
    });
    for (const auto& worker : workers_) worker->control.reset();
  }
  void kill_all() override {
    if (state_ == supervisor::ModelState::kDraining && fleet_.lived_ns < stopped_lived_ns_ + supervisor::Catalog::kExitLimitNs &&
        !fleet_.is_over)
      fleet_.breaks(format("the processes of {} were killed before they had 2 s to end", options_.name));
    end_all();
  }
  bool all_gone() const override { return !has_zygote_ && workers_.empty() && stuck_workers_.empty(); }
  void kill_worker(std::uint64_t incarnation, std::string_view why, EndReason reason) override {
    end_worker(incarnation, -1, why, reason);
  }
  void abort_worker(std::uint64_t incarnation, pid_t thread, std::string_view why, EndReason reason) override {
    Worker* worker = find_worker(incarnation);
    if (!worker || worker->was_aborted) return;
    end_worker(incarnation, thread, why, reason);
    worker->was_aborted = true;
    aborted_[incarnation] = thread;
  }
  void set_workers(int workers) override {
    options_.workers = workers;
    failures_ = 0;
    dismiss_surplus();
    fork_missing();
  }
  void let_go(std::uint64_t incarnation) override {
    if (Worker* worker = find_worker(incarnation)) worker->control.reset();
    since_lived_ns_[incarnation] = fleet_.lived_ns;
  }
  Status probe(std::uint64_t incarnation) override {
    Worker* worker = find_worker(incarnation);
    if (!worker || !worker->is_ready()) return Status(StatusCode::kNotFound, "no such worker is ready");
    SHOAL_RETURN_IF_ERROR(wire::send_control(worker->control.get(), {.kind = wire::ControlKind::kProbe, .id = incarnation}));
    ++worker->probes;
    probed_lived_ns_ = fleet_.lived_ns;
    return {};
  }
  bool makes_no_progress() const override { return failures_ >= 5; }
  bool lacks_resources() const override { return false; }
  void fail(const std::string& reason) override {
    if (state_ == supervisor::ModelState::kFailed || state_ == supervisor::ModelState::kDraining) return;
    if (reason.find("its probe was not answered") != reason.npos &&
        fleet_.lived_ns < probed_lived_ns_ + supervisor::Catalog::kProbeLimitNs)
      fleet_.breaks(format("{} failed before it had its time to answer the probe", options_.name));
    if (leaves_ && reason.find("died while it answered the probe") != reason.npos)
      fleet_.breaks(format("{} failed because a worker ended that was told to", options_.name));
    state_ = supervisor::ModelState::kFailed;
    has_failed_ = true;
    reason_ = reason;
    end_all();
    observer_.model_failed(reason);
  }
  pid_t zygote_pid() const override { return has_zygote_ ? ::getpid() : -1; }

  /// Also when it was stopped afterwards, which may be in the same turn.
  bool has_failed() const { return has_failed_; }

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
    if (!worker || worker->state != Worker::State::kForking || worker->ended != EndReason::kNone ||
        state_ != supervisor::ModelState::kReady)
      return false;
    for (int lane = 0; lane < options_.lanes; ++lane) worker->lane_paths.push_back(supervisor::lane_path(worker->sockets, lane));
    if (has_sockets(incarnation)) {
      for (const std::string& path : worker->lane_paths) UniqueFd(::creat(path.c_str(), 0600));
    }
    worker->state = Worker::State::kReady;
    fleet_.workers.at(incarnation).is_ready = true;
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
    drop(incarnation);
    if (++failures_ >= 5 && ready_workers() == 0 && state_ == supervisor::ModelState::kReady)
      fail("its workers do not start");
    else
      fork_missing();
    return true;
  }
  /// It was killed 10 s ago, and lives.
  bool gets_stuck(std::uint64_t incarnation) {
    const auto place = std::ranges::find(workers_, incarnation, [](const auto& worker) { return worker->incarnation; });
    if (place == workers_.end() || (*place)->ended == EndReason::kNone || (*place)->state == Worker::State::kForking)
      return false;
    (*place)->control.reset();
    stuck_workers_.push_back(std::move(*place));
    workers_.erase(place);
    fork_missing();
    return true;
  }
  /// `reaps_later`: its zygote tells how it ended after the pidfd has told that it did.
  bool dies(std::uint64_t incarnation, int wait_status, bool reaps_later) {
    Worker* worker = find_watched(incarnation);
    if (!worker || worker->state == Worker::State::kForking) return false;
    if (!reaps_later) worker->wait_status = wait_status;
    leaves_ = worker->state == Worker::State::kLeaving;
    observer_.worker_died(*worker);
    leaves_ = false;
    for (int lane = 0; has_sockets(incarnation) && lane < options_.lanes; ++lane) {
      if (::access(supervisor::lane_path(worker->sockets, lane).c_str(), F_OK) == 0)
        fleet_.breaks(format("the socket of lane {} of worker {} is left", lane, incarnation));
    }
    drop(incarnation);
    if (reaps_later) observer_.worker_reaped(incarnation, wait_status);
    fork_missing();
    return true;
  }
  bool answers_probe(std::uint64_t incarnation, const Status& status) {
    Worker* worker = find_worker(incarnation);
    if (!worker || worker->probes == 0 || worker->ended != EndReason::kNone || !fleet_.workers.at(incarnation).can_act(0))
      return false;
    --worker->probes;
    observer_.worker_probed(*worker, status);
    return true;
  }
  /// The supervisor has told this worker to end: by a signal, or by the end of its control socket.
  static bool is_told_to_end(const Worker& worker) {
    return worker.state != Worker::State::kForking && (worker.ended != EndReason::kNone || !worker.control);
  }
  /// The thread that got SIGABRT; -1: none did.
  pid_t aborted_thread(std::uint64_t incarnation) const {
    const auto found = aborted_.find(incarnation);
    return found == aborted_.end() ? -1 : found->second;
  }
  std::uint64_t number() const { return number_; }

 private:
  // Files take time, so only some workers have them.
  static bool has_sockets(std::uint64_t incarnation) { return incarnation % 8 == 1; }
  void fork_missing() {
    const auto staying = [&] { return static_cast<int>(workers_.size()) - count(Worker::State::kLeaving); };
    while (state_ == supervisor::ModelState::kReady && staying() < options_.workers) {
      auto worker = std::make_unique<Worker>();
      worker->incarnation = fleet_.next_incarnation++;
      worker->sockets = format("{}/w{}-abcdefghijklmnopqrstuvwxyz", options_.directory, worker->incarnation);
      worker->pid = SimWorker::pid_of(worker->incarnation);
      worker->forked_ns = fleet_.clock->now_ns();
      wire::ControlPair pair = wire::make_control_pair().value();
      worker->control = std::move(pair.ours);
      SimWorker& its_side =
          fleet_.workers.try_emplace(worker->incarnation, worker->incarnation, options_.lanes, std::move(pair.theirs))
              .first->second;
      its_side.unit = number_;
      worker->status_page = its_side.map_page();
      workers_.push_back(std::move(worker));
    }
  }
  void drop(std::uint64_t incarnation) {
    for (auto* those : {&workers_, &stuck_workers_})
      std::erase_if(*those, [&](const auto& other) { return other->incarnation == incarnation; });
    fleet_.workers.erase(incarnation);
    since_lived_ns_.erase(incarnation);
    aborted_.erase(incarnation);
  }
  void dismiss_surplus() {
    for (std::size_t i = workers_.size(); i-- > 0 && ready_workers() > options_.workers;) {
      if (!workers_[i]->is_ready()) continue;
      workers_[i]->state = Worker::State::kLeaving;
      since_lived_ns_[workers_[i]->incarnation] = fleet_.lived_ns;
      observer_.worker_leaving(*workers_[i]);
    }
  }
  void end_all() {
    for (const auto& worker : workers_) worker->ended = EndReason::kRules;
  }
  void end_worker(std::uint64_t incarnation, pid_t thread, std::string_view why, EndReason reason) {
    Worker* worker = find_worker(incarnation);
    if (!worker || worker->ended != EndReason::kNone) return;
    worker->ended = reason;
    worker->ended_because = why;
    observer_.worker_ending(*worker);
    check_end(*worker, fleet_.workers.at(incarnation), thread, why);
  }
  // Only who is stopped, stuck or too late is ended, and time in which the supervisor did not run counts for nobody.
  void check_end(const Worker& worker, SimWorker& its_side, pid_t thread, std::string_view why) {
    const auto is_any = [&](Pace pace) { return std::ranges::count(its_side.lanes(), pace, &SimLane::pace) > 0; };
    bool is_right = true;
    if (worker.ended == EndReason::kStopped) is_right = its_side.is_stopped;
    if (worker.ended == EndReason::kRunLimit) is_right = is_any(Pace::kSlow) || is_any(Pace::kHung);
    if (worker.ended == EndReason::kHung) {
      is_right = is_any(Pace::kHung);
      for (std::size_t i = 0; i < its_side.lanes().size(); ++i) {
        if (thread == its_side.lane_thread(i)) is_right = its_side.lanes()[i].pace == Pace::kHung;
      }
    }
    if (why == "it did not leave in time") {
      const std::uint64_t limit_ns =
          worker.control ? supervisor::DataPlane::kSurplusLimitNs : supervisor::DataPlane::kExitLimitNs;
      is_right = fleet_.lived_ns >= since_lived_ns_[worker.incarnation] + limit_ns;
    }
    if (!is_right) fleet_.breaks(format("worker {} was ended for nothing: {}", worker.incarnation, why));
  }

  supervisor::ProcessObserver& observer_;
  SimFleet& fleet_;
  const std::uint64_t number_;
  std::map<std::uint64_t, std::uint64_t> since_lived_ns_;  // that a worker leaves, or was let go
  std::map<std::uint64_t, pid_t> aborted_;
  bool has_failed_ = false, leaves_ = false;  // leaves_: the surplus worker that dies now
  std::uint64_t stopped_lived_ns_ = 0, probed_lived_ns_ = 0;
  bool has_zygote_ = false;
  int failures_ = 0;
};

}  // namespace shoal::test
