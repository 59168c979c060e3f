#include "tests/crash/driver/campaign.hpp"

#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <thread>

#include "shm/base/clock.hpp"
#include "shm/base/unique_fd.hpp"
#include "tests/crash/driver/client_processes.hpp"
#include "tests/crash/driver/snapshot.hpp"
#include "tests/support/checkpoint.hpp"
#include "tests/support/pool_fixture.hpp"
#include "tests/support/process_sample.hpp"

namespace shoal::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using SteadyClock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr auto kWarmUp = 1500ms;      // so that caches, arenas and heaps are filled before the first snapshot
constexpr double kServicesApart = 3;  // between two blows to one model
constexpr auto kRestLimit = 120s;     // a starved process takes long to die and to start

void write_json(const fs::path& file, const json& value) { std::ofstream(file) << value.dump(1) << '\n'; }
json read_json(const fs::path& file) { return json::parse(std::ifstream(file)); }

/// Sends signals through a pidfd, so that they cannot hit another process with the same pid.
class Victim {
 public:
  explicit Victim(pid_t pid) : fd_(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))) {}
  bool send(int signal) const { return fd_ && ::syscall(SYS_pidfd_send_signal, fd_.get(), signal, nullptr, 0) == 0; }

 private:
  UniqueFd fd_;
};

/// One daemon under its plan.
class Front {
 public:
  Front(const DaemonPlan& plan, const fs::path& directory, CampaignResult& result)
      : plan_(plan),
        directory_(directory),
        result_(result),
        daemon_({.models = arguments(plan, directory), .worker = "shoal-worker-faulty"}),
        pool_(daemon_.connect({.arena_limit_bytes = 0})),
        clients_(daemon_.directory(), directory, plan.clients, patterns_of(plan)),
        states_(plan.models.size()),
        waits_(directory / "waits"),
        supervisor_waited_(daemon_.pid()) {
    write_json(directory / "models.json", to_json(patterns_of(plan)));
  }

  void load() {
    note_waits();
    clients_.fill();
  }

  /// Ends all clients, then writes a snapshot of what the daemon holds.
  void rest(const char* name) {
    for (const auto& [victim, when] : stopped_) victim.send(SIGCONT);  // clients wait for the requests of stopped workers
    stopped_.clear();
    clients_.finish();
    next_wait_ns_ = 0;  // so that there is a sample after the last answers, too
    note_waits();
    json snapshot;
    eventually(
        [&] {
          snapshot = take_snapshot(stats(), daemon_.directory());
          if (start_snapshot_.is_null()) return Checker::at_rest(snapshot);
          Checker checker(nullptr);
          checker.compare_holdings(start_snapshot_, snapshot, "");
          return checker.report().violation_count == 0 && Checker::at_rest(snapshot);
        },
        kRestLimit);
    if (start_snapshot_.is_null()) start_snapshot_ = snapshot;
    write_json(directory_ / name, snapshot);
  }

  void begin() {
    start_ = SteadyClock::now();
    for (State& state : states_) state.last_blow = start_ - 1h;
  }
  bool is_over() const { return next_ == plan_.faults.size(); }

  /// Sends the signals that are due.
  void strike() {
    clients_.fill();
    note_waits();
    std::erase_if(stopped_, [](const auto& one) { return one.second <= SteadyClock::now() && (one.first.send(SIGCONT), true); });
    for (; !is_over() && SteadyClock::now() >= start_ + std::chrono::milliseconds(plan_.faults[next_].at_ms); ++next_) {
      if (!deal(plan_.faults[next_])) return;
    }
  }

  void count_running() {
    const json all = stats();
    for (const json& model : all.at("models"))
      result_.while_running += model.at("counts").at("kills_while_running_and_rerun").get<std::uint64_t>();
  }
  void keep_log() const {
    fs::copy_file(daemon_.directory() + "/log.txt", directory_ / "log.txt", fs::copy_options::overwrite_existing);
  }

 private:
  // Writes for the checker how long the supervisor has waited for a processor.
  void note_waits() {
    const std::uint64_t now_ns = monotonic_now_ns();
    if (now_ns < next_wait_ns_) return;
    next_wait_ns_ = now_ns + 10'000'000;
    waits_ << now_ns << ' ' << supervisor_waited_.look_ns() << '\n' << std::flush;
  }

  struct State {
    SteadyClock::time_point last_blow;
    std::uint64_t ok_then = 0;
  };

  static std::vector<std::string> arguments(const DaemonPlan& plan, const fs::path& directory) {
    fs::create_directories(directory);
    std::vector<std::string> arguments;
    for (const PlannedModel& model : plan.models) {
      std::string path = "builtin:identity";
      if (model.spin_ms > 0) {
        path = directory / model.name;
        write_checkpoint(path, "m",
                         {{"_fault_abort", "abort0", {{"scalar", std::to_string(static_cast<int>(kTrigger))}}, {}},
                          {"_fault_spin", "spin0", {{"scalar", std::to_string(model.spin_ms)}}, {}},
                          {"_mul_scalar", "times0", {{"scalar", std::to_string(model.pattern.factors.begin()->second)}}, {}}},
                         "[-1, 16]");
      }
      arguments.push_back(model.name + "=" + path + ",workers=" + std::to_string(model.workers) +
                          ",contexts=" + std::to_string(model.lanes) + ",timeout_ms=0");
    }
    return arguments;
  }

  json stats() { return json::parse(pool_.stats().value()); }
  static bool runs_something(const json& worker) {
    return std::ranges::any_of(worker.at("lanes"), [](const json& lane) { return lane.at("running_request") != 0; });
  }

  // Returns false when it is too early for this blow.
  bool deal(const Fault& fault) {
    if (fault.victim == Fault::Victim::kClient) {
      if (const auto pid = clients_.pick(fault.pick, fault.signal)) strike_at(*pid, fault, result_.clients);
      return true;
    }
    State& state = states_[fault.model];
    const json all = stats();
    const json& model = all.at("models").at(fault.model);
    const auto since = SteadyClock::now() - state.last_blow;
    const double service_ms = model.at("latency_ms").at("compute").at("p50");
    const double services = std::chrono::duration<double, std::milli>(since).count() / std::max(service_ms, 1e-3);
    if (services < kServicesApart) return false;
    if (model.at("counts").at("ok") < state.ok_then + fault.progress && since < 2s) return false;
    std::vector<pid_t> pids;
    if (fault.victim == Fault::Victim::kZygote) {
      if (model.at("zygote").at("pid").is_number()) pids.push_back(model.at("zygote").at("pid"));
    } else {
      const auto add_workers = [&](bool running) {
        for (const json& worker : model.at("workers")) {
          if (worker.at("pid") > 0 && (!running || runs_something(worker))) pids.push_back(worker.at("pid"));
        }
      };
      if (fault.while_running) add_workers(true);
      if (fault.while_running && pids.empty() && since < 2s) return false;
      if (pids.empty()) add_workers(false);
    }
    if (pids.empty()) return since >= 2s;  // wait for a replacement
    if (!strike_at(pids[fault.pick % pids.size()], fault,
                   fault.victim == Fault::Victim::kZygote ? result_.zygotes : result_.workers))
      return true;
    double& shortest = result_.shortest_interval_in_services;
    if (since < 30min) shortest = shortest == 0 ? services : std::min(shortest, services);
    state.last_blow = SteadyClock::now();
    state.ok_then = model.at("counts").at("ok");
    return true;
  }

  bool strike_at(pid_t pid, const Fault& fault, std::uint64_t& count) {
    Victim victim(pid);
    if (!victim.send(fault.signal)) return false;
    ++count;
    ++result_.blows;
    ++(fault.signal == SIGKILL ? result_.kills : fault.signal == SIGABRT ? result_.aborts : result_.stops);
    if (fault.signal == SIGSTOP)
      stopped_.emplace_back(std::move(victim), SteadyClock::now() + std::chrono::milliseconds(fault.stop_ms));
    return true;
  }

  const DaemonPlan& plan_;
  fs::path directory_;
  CampaignResult& result_;
  DaemonFixture daemon_;
  Pool pool_;
  ClientProcesses clients_;
  std::vector<State> states_;
  json start_snapshot_;
  std::ofstream waits_;
  WaitedTime supervisor_waited_;
  std::uint64_t next_wait_ns_ = 0;
  std::vector<std::pair<Victim, SteadyClock::time_point>> stopped_;
  SteadyClock::time_point start_;
  std::size_t next_ = 0;
};

void add(CheckReport& sum, const CheckReport& report) {
  sum.asked += report.asked;
  sum.answered += report.answered;
  sum.ok += report.ok;
  sum.rerun += report.rerun;
  sum.cancelled += report.cancelled;
  sum.expired += report.expired;
  sum.poisoned += report.poisoned;
  sum.unknown += report.unknown;
  for (const auto& [language, counts] : report.clients_in) {
    sum.clients_in[language].ok += counts.ok;
    sum.clients_in[language].killed += counts.killed;
  }
  sum.violation_count += report.violation_count;
  sum.violations.insert(sum.violations.end(), report.violations.begin(), report.violations.end());
}

CheckReport check_front(const fs::path& directory) {
  const PatternModels models = pattern_models_from(read_json(directory / "models.json"));
  Checker checker([&](const Question& question, std::uint64_t version) { return pattern_answer(models, question, version); });
  std::ifstream waits(directory / "waits");
  checker.read_waits(waits);
  auto clients_in = read_histories(directory, checker);
  checker.compare_snapshots(read_json(directory / "start.json"), read_json(directory / "end.json"), directory.filename());
  CheckReport report = checker.report();
  report.clients_in = std::move(clients_in);
  return report;
}

}  // namespace

json to_json(const CampaignResult& result) {
  const CheckReport& report = result.report;
  json clients_in;
  for (const auto& [language, counts] : report.clients_in) clients_in[language] = {{"ok", counts.ok}, {"killed", counts.killed}};
  return {{"seed", result.seed},
          {"seconds", result.seconds},
          {"blows", result.blows},
          {"victims", {{"workers", result.workers}, {"zygotes", result.zygotes}, {"clients", result.clients}}},
          {"signals", {{"kill", result.kills}, {"abort", result.aborts}, {"stop", result.stops}}},
          {"while_running", result.while_running},
          {"shortest_interval_in_services", result.shortest_interval_in_services},
          {"asked", report.asked},
          {"answered", report.answered},
          {"ok", report.ok},
          {"rerun", report.rerun},
          {"cancelled", report.cancelled},
          {"expired", report.expired},
          {"poisoned", report.poisoned},
          {"unknown", report.unknown},
          {"clients_in", clients_in},
          {"violations", report.violation_count}};
}

CampaignResult run_campaign(const Plan& plan, const fs::path& directory) {
  const rlimit none{0, 0};
  ::setrlimit(RLIMIT_CORE, &none);  // no core dumps of SIGABRT
  CampaignResult result{.seed = plan.seed};
  fs::remove_all(directory);
  {
    std::vector<std::unique_ptr<Front>> fronts;
    for (std::size_t i = 0; i < plan.daemons.size(); ++i)
      fronts.push_back(std::make_unique<Front>(plan.daemons[i], directory / ("daemon-" + std::to_string(i)), result));
    for (const auto& front : fronts) front->load();
    std::this_thread::sleep_for(kWarmUp);
    for (const auto& front : fronts) front->rest("start.json");
    for (const auto& front : fronts) front->load();
    for (const auto& front : fronts) front->begin();
    const auto start = SteadyClock::now();
    while (!std::ranges::all_of(fronts, [](const auto& front) { return front->is_over(); })) {
      for (const auto& front : fronts) front->strike();
      std::this_thread::sleep_for(2ms);
    }
    result.seconds = std::chrono::duration<double>(SteadyClock::now() - start).count();
    for (const auto& front : fronts) front->rest("end.json");
    for (const auto& front : fronts) front->count_running();
    result.report = check_directory(directory);
    if (result.report.violation_count > 0) {
      for (const auto& front : fronts) front->keep_log();
    }
  }
  if (result.report.violation_count == 0) fs::remove_all(directory);
  return result;
}

CheckReport check_directory(const fs::path& directory) {
  CheckReport report;
  for (const auto& entry : fs::directory_iterator(directory)) {
    if (entry.is_directory()) add(report, check_front(entry.path()));
  }
  return report;
}

}  // namespace shoal::test
