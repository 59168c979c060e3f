// ModelProcesses with zygotes that the test plays: real processes, real sockets, real deaths.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "supervisor/process/model_processes.hpp"
#include "tests/support/scratch_directory.hpp"
#include "tests/support/unix_socket.hpp"
#include "tests/unit/supervisor/process/puppet.hpp"

namespace shoal::supervisor {

/// What ModelProcesses tells its owner.
struct Events : ProcessObserver {
  Status model_loaded(std::string_view text) override {
    loaded.emplace_back(text);
    return refusal;
  }
  void model_failed(const std::string& reason) override { failure = reason; }
  void worker_ready(const WorkerProcess& worker) override { ready.push_back(worker.incarnation); }
  void worker_leaving(const WorkerProcess& worker) override { leaving.push_back(worker.incarnation); }
  void worker_ending(const WorkerProcess& worker) override { ending.push_back(worker.incarnation); }
  void worker_probed(const WorkerProcess& worker, const Status&) override { probed.push_back(worker.incarnation); }
  void worker_died(WorkerProcess& worker) override { died[worker.incarnation] = worker.ended_because; }
  void worker_reaped(std::uint64_t incarnation, int status) override { reaped[incarnation] = status; }
  std::uint64_t answered_by(std::uint64_t incarnation) const override { return answered.contains(incarnation) ? 1 : 0; }
  void limit_was_over() override { ++limits_over; }
  bool holds_requests(std::uint64_t) const override { return false; }

  Status refusal;
  std::vector<std::string> loaded;
  std::string failure;
  std::vector<std::uint64_t> ready, leaving, ending, probed;
  std::map<std::uint64_t, std::string> died;
  std::map<std::uint64_t, int> reaped;
  std::unordered_set<std::uint64_t> answered;
  int limits_over = 0;
};

/// Goes on by itself, and can be set forward.
struct LaterClock final : Clock {
  std::uint64_t now_ns() const override { return monotonic_now_ns() + ahead_ns; }
  std::uint64_t ahead_ns = 0;
};

class ModelProcessesTest : public testing::Test {
 protected:
  using ControlKind = wire::ControlKind;
  using ControlMessage = wire::ControlMessage;
  static constexpr std::uint64_t kSecondNs = 1'000'000'000;

  ModelProcessesTest() {
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);  // as the daemon is
    options_.name = "m";
    options_.worker_file = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "shoal-puppet";
    options_.directory = directory_.path();
    options_.load_text = "what to load";
    make();
  }
  ~ModelProcessesTest() override { processes_.reset(); }

  void make() { processes_ = std::make_unique<ModelProcesses>(options_, clock_, loop_, timers_, events_, log_, births_, stuck_); }

  /// Waits for the zygote that was spawned last.
  Puppet accept() {
    pollfd waiting{.fd = listener_.get(), .events = POLLIN, .revents = 0};
    EXPECT_EQ(::poll(&waiting, 1, 10'000), 1) << "no zygote came";
    return Puppet(UniqueFd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC)));
  }
  /// Starts the model up to its LOAD.
  Puppet start() {
    processes_->start();
    Puppet zygote = accept();
    EXPECT_EQ(zygote.hear().text, "what to load");
    return zygote;
  }
  Puppet start_loaded() {
    Puppet zygote = start();
    zygote.say({.kind = wire::ControlKind::kLoaded, .text = "loaded"});
    EXPECT_TRUE(pump_until([&] { return processes_->state() == ModelState::kReady; })) << processes_->reason();
    return zygote;
  }
  /// The next zygote, when the one before has died, up to its LOAD.
  Puppet start_again() {
    EXPECT_TRUE(listen_until([&] { return processes_->zygote_pid() == -1; }));
    EXPECT_TRUE(next_ns());
    run_at(next_ns().value_or(0));
    Puppet zygote = accept();
    EXPECT_EQ(zygote.hear().kind, ControlKind::kLoad);
    return zygote;
  }
  Fork make_ready(const Puppet& zygote) {
    Fork worker = zygote.fork_worker();
    worker.say_ready();
    EXPECT_TRUE(pump_until([&] { return is_ready(worker.incarnation); })) << processes_->reason();
    return worker;
  }
  bool is_ready(std::uint64_t incarnation) const { return std::ranges::count(events_.ready, incarnation) == 1; }
  bool is_forked(std::uint64_t incarnation) const {
    const WorkerProcess* worker = processes_->find_worker(incarnation);
    return worker && worker->state != WorkerProcess::State::kForking;
  }

  /// Runs the event loop and what is due, until the condition holds.
  bool pump_until(const std::function<bool()>& condition) {
    for (const std::uint64_t end_ns = monotonic_now_ns() + 10 * kSecondNs; monotonic_now_ns() < end_ns;) {
      if (condition()) return true;
      pump();
    }
    return false;
  }
  void pump() {
    pollfd ready{.fd = loop_.fd(), .events = POLLIN, .revents = 0};
    ::poll(&ready, 1, 5);
    loop_.run_ready();
    timers_.run_due(clock_.now_ns());
  }
  /// Sets the clock forward to that time, and does what is due.
  void run_at(std::uint64_t at_ns) {
    clock_.ahead_ns += at_ns - std::min(at_ns, clock_.now_ns());
    timers_.run_due(at_ns);
  }
  std::optional<std::uint64_t> next_ns() const { return timers_.next_ns(); }
  /// The same, but nothing that is due later than now is done.
  bool listen_until(const std::function<bool()>& condition) {
    for (const std::uint64_t end_ns = monotonic_now_ns() + 10 * kSecondNs; monotonic_now_ns() < end_ns;) {
      if (condition()) return true;
      pollfd ready{.fd = loop_.fd(), .events = POLLIN, .revents = 0};
      ::poll(&ready, 1, 5);
      loop_.run_ready();
    }
    return false;
  }
  /// The worker has answered, is killed, and its death is seen.
  void kill_after_an_answer(const Fork& worker) {
    events_.answered.insert(worker.incarnation);
    ::kill(worker.pid, SIGKILL);
    ASSERT_TRUE(listen_until([&] { return events_.died.contains(worker.incarnation); }));
  }
  /// The zygote is ended for what it said, and that is the reason that is told.
  void expect_ended(const Puppet& zygote, const std::string& why) {
    EXPECT_TRUE(listen_until([&] { return zygote.is_dead() && processes_->zygote_pid() == -1; })) << why;
    EXPECT_NE(processes_->reason().find(why), std::string::npos) << processes_->reason();
    ASSERT_TRUE(next_ns()) << "it is not started again";
    EXPECT_GT(*next_ns(), clock_.now_ns()) << "it is started again at once";
  }

  const test::ScratchDirectory directory_;
  UniqueFd listener_ = test::bound_socket(directory_.path("puppet"), SOCK_SEQPACKET);
  LaterClock clock_;
  Logger log_{"test"};
  EventLoop loop_;
  Timers timers_;
  Events events_;
  Births births_;
  StuckZygotes stuck_{loop_, log_};
  ProcessOptions options_;
  std::unique_ptr<ModelProcesses> processes_;
};

inline UniqueFd sealed_weights(std::uint64_t bytes) {
  UniqueFd fd = create_memfd("test", bytes).value();
  EXPECT_TRUE(seal(fd, Seals::kReadOnly).ok());
  return fd;
}

inline wire::ControlMessage with_fd(wire::ControlMessage message, UniqueFd fd) {
  message.fds.push_back(std::move(fd));
  return message;
}

}  // namespace shoal::supervisor
