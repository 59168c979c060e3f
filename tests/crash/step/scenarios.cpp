#include "tests/crash/step/scenarios.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "shm/wire/local_address.hpp"
#include "tests/crash/step/tracee.hpp"
#include "tests/support/process_sample.hpp"
#include "tests/support/says.hpp"

namespace shoal::test {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using nlohmann::json;

}  // namespace

Served::Served(DaemonSettings settings, int together, std::int64_t columns)
    : together_(together), columns_(columns), daemon_(std::move(settings)), pool_(connect()) {
  expect_service();
}

Pool Served::connect(PoolOptions options) {
  options.connect_timeout = options.reconnect_timeout = options.control_timeout = kPatience;
  return daemon_.connect(options);
}

void Served::submit() {
  for (int i = 0; i < together_; ++i)
    under_way_.push_back(pool_.submit("echo", {{"data", counting({1, columns_}, next_ += 64)}}));
}

void Served::expect_answer() {
  ASSERT_FALSE(under_way_.empty());
  float first = next_ - 64 * static_cast<float>(under_way_.size() - 1);
  for (Prediction& prediction : std::exchange(under_way_, {})) {
    ASSERT_TRUE(prediction.wait_for(kPatience)) << "lost";
    const auto& outputs = prediction.get();
    ASSERT_TRUE(outputs.ok()) << outputs.status().to_string();
    EXPECT_EQ(outputs->front().tensor.values<float>()[63], std::exchange(first, first + 64) + 63);
  }
}

void Served::expect_service() {
  submit();
  expect_answer();
}

json Served::worker() {
  json found;
  EXPECT_TRUE(soon([&] {
    const json now = model();
    for (const json& worker : now.at("workers")) {
      if (worker.at("state") == "ready" && worker.at("lanes").at(0).at("thread_id") != 0) found = worker;
    }
    return found.is_object();
  }));
  return found;
}

namespace {

/// An input that crashes its lane.
Tensor guilty_input(int number) {
  Tensor tensor = counting({1, 64}, static_cast<float>(-64 * number));
  tensor.values<float>()[0] = kTrigger;
  return tensor;
}

// ---- workers ----

/// The lane of the only worker. The replacement runs its requests again.
class LaneScenario : public Scenario {
 public:
  explicit LaneScenario(Served& served) : served_(served) {}
  Victim next() override {
    const json worker = served_.worker();
    return {worker.at("pid"), worker.at("lanes").at(0).at("thread_id")};
  }
  pid_t watchdog() const override { return served_.daemon().pid(); }
  void provoke() override { served_.submit(); }
  void after_death() override {
    served_.expect_answer();
    served_.expect_service();
    const json model = served_.model();
    EXPECT_EQ(model.at("counts").at("poison"), 0);
    EXPECT_EQ(model.at("state"), "ready") << model.at("reason");
  }

 private:
  Served& served_;
};

/// The lane that runs two requests as one, while it answers the second.
class BatchScenario : public LaneScenario {
 public:
  using LaneScenario::LaneScenario;
  int entries() const override { return 2; }
};

/// The control thread of the only worker, while a client comes or goes.
class ControlScenario : public LaneScenario {
 public:
  ControlScenario(Served& served, bool going) : LaneScenario(served), served_(served), going_(going) {}
  Victim next() override {
    served_.expect_service();
    if (going_) come();
    const pid_t pid = LaneScenario::next().pid;
    return {pid, pid};
  }
  void provoke() override {
    if (!going_) return come_without_waiting();
    guest_.reset();
    served_.submit();
  }
  void after_death() override {
    if (asked_) {
      EXPECT_TRUE(asked_->wait_for(kPatience)) << "lost";
      EXPECT_TRUE(asked_->get().ok()) << asked_->get().status().to_string();
      asked_.reset();
    }
    guest_.reset();
    LaneScenario::after_death();
  }

 private:
  void come_without_waiting() {
    guest_.emplace(served_.connect());
    const auto admitted = [&] { return served_.model().at("counts").at("admitted").get<int>(); };
    const int before = admitted();
    asked_ = guest_->submit("echo", {{"data", counting({2, 64})}});
    EXPECT_TRUE(soon([&] { return guest_->poll_once(), admitted() > before; }));
    served_.submit();
  }
  void come() {
    guest_.emplace(served_.connect());
    EXPECT_TRUE(guest_->predict("echo", {{"data", counting({2, 64})}}).ok());
  }

  Served& served_;
  bool going_;
  std::optional<Pool> guest_;
  std::optional<Prediction> asked_;
};

/// A lane that crashes because of a guilty request is killed while it writes the crash record.
class CrashScenario : public Scenario {
 public:
  explicit CrashScenario(Served& served) : served_(served) {}
  Victim next() override {
    served_.expect_service();
    const json worker = served_.worker();
    return {worker.at("pid"), worker.at("lanes").at(0).at("thread_id")};
  }
  pid_t watchdog() const override { return served_.daemon().pid(); }
  void provoke() override {
    guilty_ = served_.pool().submit("echo", {{"data", guilty_input(++round_)}});  // new bytes: the last input is known as poison
  }
  void after_death() override {
    ASSERT_TRUE(guilty_.wait_for(kPatience)) << "lost";
    EXPECT_EQ(guilty_.get().status().code(), StatusCode::kPoison) << guilty_.get().status().to_string();
    EXPECT_LE(guilty_.outcome().attempts, 3);
    served_.expect_service();
    EXPECT_EQ(served_.model().at("state"), "ready");
  }

 private:
  Served& served_;
  Prediction guilty_;
  int round_ = 0;
};

// ---- zygotes ----

int lane_sockets_in(const std::string& directory) {
  const fs::directory_iterator files(wire::lanes_directory(directory));
  return static_cast<int>(
      std::count_if(begin(files), end(files), [](const auto& file) { return file.path().filename().string().starts_with("w"); }));
}

/// The idle zygote, when it forks a worker in place of one that was killed.
class ZygoteScenario : public Scenario {
 public:
  explicit ZygoteScenario(Served& served) : served_(served) {}
  Victim next() override {
    served_.expect_service();
    pid_t pid = -1;
    EXPECT_TRUE(soon([&] {
      const json model = served_.model();
      if (model.at("zygote").at("pid").is_number()) pid = model.at("zygote").at("pid");
      return pid > 0 && model.at("workers").size() == 1 && has_loaded(pid);
    }));
    return {pid, pid};
  }
  pid_t watchdog() const override { return served_.daemon().pid(); }
  void provoke() override { ::kill(served_.worker().at("pid"), SIGKILL); }
  void after_death() override {
    served_.expect_service();
    EXPECT_TRUE(soon([&] { return served_.daemon().wait_until_ready() && served_.daemon().all_processes().size() == 3; }))
        << "a worker whose fork was never reported is still there";
    EXPECT_TRUE(soon([&] { return lane_sockets_in(served_.daemon().directory()) == 1; })) << "it has left its socket";
  }
  bool is_costly() const override { return true; }

 private:
  // A new zygote may not have executed its program yet, or may execute it once more. One that has loaded its model does not.
  bool has_loaded(pid_t pid) const {
    return contains(served_.daemon().log(), "model_loaded model=echo zygote=" + std::to_string(pid) + " ");
  }

  Served& served_;
};

/// The main thread of a worker, from its fork on. The supervisor tells it of a known poison as soon as it is ready.
class BirthScenario : public Scenario {
 public:
  explicit BirthScenario(Served& served) : served_(served) {
    Prediction guilty = served.pool().submit("echo", {{"data", guilty_input(1)}});
    EXPECT_TRUE(guilty.wait_for(kPatience) && guilty.get().status().code() == StatusCode::kPoison);
  }
  Victim next() override {
    served_.expect_service();
    const pid_t worker = served_.worker().at("pid");
    BirthTrap trap(served_.model().at("zygote").at("pid"));
    ::kill(worker, SIGKILL);
    const pid_t pid = trap.wait();
    return {pid, pid, true};
  }
  pid_t watchdog() const override { return served_.daemon().pid(); }
  void provoke() override { served_.submit(); }
  void after_death() override {
    served_.expect_answer();
    EXPECT_TRUE(soon([&] { return served_.daemon().wait_until_ready() && served_.daemon().all_processes().size() == 3; }));
    EXPECT_TRUE(soon([&] { return lane_sockets_in(served_.daemon().directory()) == 1; })) << "it has left its socket";
    const auto refused = served_.pool().predict("echo", {{"data", guilty_input(1)}});
    EXPECT_EQ(refused.status().code(), StatusCode::kPoison) << refused.status().to_string();
    EXPECT_EQ(served_.model().at("state"), "ready");
  }
  bool is_costly() const override { return true; }  // a worker that dies before it is ready is replaced 100 ms later

 private:
  Served& served_;
};

/// The zygote of a new daemon, which loads the model for the first time.
class LoadScenario : public Scenario {
 public:
  explicit LoadScenario(Served& served) : served_(served) {}
  Victim next() override {
    DaemonFixture& daemon = served_.daemon();
    ::kill(daemon.pid(), SIGKILL);
    daemon.wait_for_exit();
    pid_t pid = -1;
    {
      std::optional<BirthTrap> trap;
      daemon.start([&](pid_t supervisor) {
        trap.emplace(supervisor);
        ::kill(supervisor, SIGCONT);
        pid = trap->wait("--zygote");
      });
    }
    return {pid, pid, true};
  }
  pid_t watchdog() const override { return served_.daemon().pid(); }
  void provoke() override {}
  void after_death() override {
    EXPECT_TRUE(served_.daemon().wait_until_ready(kPatience)) << served_.daemon().log();
    served_.expect_service();
    EXPECT_EQ(served_.daemon().all_processes().size(), 3u);
  }
  bool is_costly() const override { return true; }

 private:
  Served& served_;
};

// ---- supervisors ----

/// The supervisor. After its death another is started in the same directory.
class SupervisorScenario : public Scenario {
 public:
  using Act = std::function<void(Served&)>;
  SupervisorScenario(Served& served, Act act) : served_(served), act_(std::move(act)) {}
  Victim next() override {
    served_.expect_service();
    return {served_.daemon().pid(), served_.daemon().pid()};
  }
  void provoke() override {
    if (act_) act_(served_);
    served_.submit();
  }
  void after_death() override {
    served_.daemon().start();  // fails the test when the last daemon left something in its way
    EXPECT_TRUE(soon([&] { return served_.daemon().all_processes().size() == 3; })) << "not what one daemon needs";
    served_.expect_answer();
  }
  bool is_costly() const override { return true; }

 private:
  Served& served_;
  Act act_;
};

/// Connects in a child process, because the supervisor may be stopped meanwhile.
void attach_guest(Served& served) {
  if (::fork() != 0) return;
  (void)Pool::connect({.directory = served.daemon().directory(), .connect_timeout = 1s});
  ::_exit(0);
}

}  // namespace

std::unique_ptr<Scenario> scenario_of(Part part, Served& served) {
  using Act = SupervisorScenario::Act;
  switch (part) {
    case Part::kConnecting:
    case Part::kSubmitting:
    case Part::kGrowing:
    case Part::kCommitting:
      return client_scenario_of(part, served);
    case Part::kLane:
      return std::make_unique<LaneScenario>(served);
    case Part::kCrash:
      return std::make_unique<CrashScenario>(served);
    case Part::kArrival:
      return std::make_unique<ControlScenario>(served, false);
    case Part::kDeparture:
      return std::make_unique<ControlScenario>(served, true);
    case Part::kBatch:
      return std::make_unique<BatchScenario>(served);
    case Part::kBirth:
      return std::make_unique<BirthScenario>(served);
    case Part::kLoad:
      return std::make_unique<LoadScenario>(served);
    case Part::kZygote:
      return std::make_unique<ZygoteScenario>(served);
    case Part::kSupervisor:
      return std::make_unique<SupervisorScenario>(served, nullptr);
    case Part::kSupervisorAtDeath:
      return std::make_unique<SupervisorScenario>(served, Act([](Served& it) { ::kill(it.worker().at("pid"), SIGKILL); }));
    case Part::kSupervisorAtZygoteDeath:
      return std::make_unique<SupervisorScenario>(served, Act([](Served& it) { ::kill(it.daemon().zygote(), SIGKILL); }));
    case Part::kSupervisorAtAttach:
      return std::make_unique<SupervisorScenario>(served, Act(attach_guest));
  }
  return nullptr;
}

}  // namespace shoal::test
