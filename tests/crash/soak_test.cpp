// The soak: several models and many shapes; clients come, go and are killed; workers and zygotes are killed. No process may grow,
// no descriptor may be left open, no reply may be lost or wrong.
//   SHOAL_SOAK_SECONDS  how long; default 20, with SHOAL_TEST_LONG=1 1800
//   SHOAL_SOAK_JSON     a file for the report as JSON
#include <gtest/gtest.h>
#include <signal.h>

#include <array>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <thread>

#include "shoal/engine.hpp"
#include "tests/crash/driver/client_processes.hpp"
#include "tests/support/checkpoint.hpp"
#include "tests/support/child_process.hpp"
#include "tests/support/pool_fixture.hpp"
#include "tests/support/process_sample.hpp"
#include "tests/support/scratch_directory.hpp"

namespace shoal::test {
namespace {

namespace fs = std::filesystem;
using SteadyClock = std::chrono::steady_clock;

constexpr double kWarmUp = 0.5;        // of the time; caches, arenas and buffers fill
constexpr double kSlopesFrom = 60;     // seconds; in a shorter run slopes are noise
constexpr double kAllowedShare = 2e6;  // of PSS; when a worker ends, the others account for its share
constexpr std::size_t kBlocks = 8;     // that the time after the warm-up is divided into; see Trend

/// Growth in bytes after the warm-up that is always allowed.
double allowed_growth(double seconds) { return seconds < 600 ? 1e6 : 1e5; }

int duration_seconds() {
  if (const char* seconds = std::getenv("SHOAL_SOAK_SECONDS")) return std::atoi(seconds);
  return std::getenv("SHOAL_TEST_LONG") ? 1800 : 20;
}

/// The models' files, which the daemon and the engine that checks the answers read.
class Models {
 public:
  Models() {
    const char* source = std::getenv("SHOAL_SOURCE_DIR");
    fs::copy(fs::path(source ? source : ".") / "tools/shapes/model", directory_.path("shapes"));
    std::ofstream(directory_.path("shapes/model.toml"))
        << "inputs = [{name = \"data\", shape = [-1, 3, \"32..64\", \"32..64\"]}]\n"
           "shapes = [{data = [1, 3, 64, 64]}]\n"
           "cache_mb = 4\n";
    write_checkpoint(directory_.path("times3"), "m", {{"_mul_scalar", "times3", {{"scalar", "3"}}, {}}}, "[-1, 16]");
    std::ofstream(directory_.path("times3/model.toml"), std::ios::app) << "\nbuckets = [2, 4, 8]\n";
  }

  std::vector<std::string> arguments() const {
    const std::string path = directory_.path();
    return {"steady=" + path + "/shapes,workers=1,contexts=2,timeout_ms=0",
            "shapes=" + path + "/shapes,workers=2,contexts=2,timeout_ms=0", "times3=" + path + "/times3,workers=2,timeout_ms=0",
            "echo=builtin:identity,workers=1,contexts=2,timeout_ms=0"};
  }
  PatternModels patterns() const {
    const PatternModel pictures{.inputs = PatternModel::Inputs::kPictures, .sizes = 40, .contents = 3};
    return {{"steady", pictures},
            {"shapes", pictures},
            {"times3", {.factors = {{1, 3.0f}}, .sizes = 9}},
            {"echo", {.inputs = PatternModel::Inputs::kFlat, .factors = {{1, 1.0f}}, .sizes = 40}}};
  }
  fs::path directory() const { return directory_.path(); }

 private:
  const ScratchDirectory directory_;
};

/// Samples of one process over time.
struct Series {
  std::string role;
  std::vector<Point> memory, pss, descriptors;
};

/// Samples every process of the daemon.
class Sampler {
 public:
  Sampler(const DaemonFixture& daemon, pid_t client) : daemon_(daemon), client_(client) {}

  void sample(double seconds) {
    for (const auto& [pid, role] : roles()) {
      const auto sample = sample_process(pid);
      if (!sample) continue;
      Series& series = series_[pid];
      series.role = role;
      series.memory.push_back({seconds, static_cast<double>(sample->private_bytes)});
      series.pss.push_back({seconds, static_cast<double>(sample->pss_bytes)});
      series.descriptors.push_back({seconds, static_cast<double>(sample->descriptors)});
    }
  }
  const std::map<pid_t, Series>& series() const { return series_; }

 private:
  std::map<pid_t, std::string> roles() const {
    std::map<pid_t, std::string> roles{{daemon_.pid(), "supervisor"}, {client_, "client"}};
    const nlohmann::json stats = daemon_.stats();
    if (!stats.is_object()) return roles;
    for (const auto& model : stats["models"]) {
      const std::string name = model["name"];
      if (model["zygote"]["pid"].is_number()) roles[model["zygote"]["pid"]] = name + " zygote";
      for (const auto& worker : model["workers"]) {
        if (worker["pid"].is_number() && worker["state"] == "ready") roles[worker["pid"]] = name + " worker";
      }
    }
    return roles;
  }

  const DaemonFixture& daemon_;
  const pid_t client_;
  std::map<pid_t, Series> series_;
};

/// Growth of one quantity after the warm-up, and its standard error. Neighboring points are correlated, because the allocator
/// keeps buffers for a while. So the error is computed from the means of blocks of points.
struct Trend {
  double first = 0, last = 0, growth = 0, noise = 0;
  bool is_flat(double allowed) const { return growth <= std::max(allowed, 3 * noise); }
};

Trend trend_of(const std::vector<Point>& points, double from) {
  std::vector<Point> settled;
  std::ranges::copy_if(points, std::back_inserter(settled), [from](const Point& point) { return point.x >= from; });
  if (settled.size() < 3) return {};
  const double slope = slope_of(settled), span = settled.back().x - settled.front().x;
  std::array<double, kBlocks> sums{}, counts{};
  double mean = 0;
  for (const Point& point : settled) {
    const double time = point.x - settled.front().x, rest = point.y - slope * time;
    const auto block = std::min(kBlocks - 1, static_cast<std::size_t>(kBlocks * time / span));
    sums[block] += rest;
    ++counts[block];
    mean += rest / static_cast<double>(settled.size());
  }
  double variance = 0;  // the variance of a block's mean
  for (std::size_t block = 0; block < kBlocks; ++block) {
    const double deviation = counts[block] > 0 ? sums[block] / counts[block] - mean : 0;
    variance += deviation * deviation / (kBlocks - 2);
  }
  // The standard error of the slope of a line through n evenly spaced means is σ / (√n · s), where s, the standard deviation of
  // their times, is span / √12.
  const double noise = std::sqrt(12 * variance / kBlocks);
  return {.first = settled.front().y, .last = settled.back().y, .growth = slope * span, .noise = noise};
}

/// Knows every right answer. For pictures it asks an engine in this process.
class Answers {
 public:
  explicit Answers(const Models& models)
      : patterns_(models.patterns()), shapes_(Engine::load(models.directory() / "shapes").value()) {}

  std::optional<std::uint64_t> of(const Question& question, std::uint64_t version) {
    const PatternModel& model = patterns_.at(question.model);
    if (model.inputs != PatternModel::Inputs::kPictures) return pattern_answer(patterns_, question, version);
    if (version != 1) return std::nullopt;
    return hash_of(shapes_.run({{"data", pattern_input(model, question)}}).value().front().tensor);
  }

 private:
  PatternModels patterns_;
  Engine shapes_;
};

/// Four clients that come and go.
std::vector<ClientPlan> four_clients(std::mt19937& random) {
  std::vector<ClientPlan> plans(4);
  for (ClientPlan& plan : plans) plan.seed = random() % 1'000'000;
  return plans;
}

/// A client that lives as long as the test. Its memory is sampled, too.
pid_t start_steady_client(const DaemonFixture& daemon) {
  return start_child([&daemon] {
    Pool pool = daemon.connect();
    for (std::int64_t i = 0;; ++i) {
      (void)pool.predict("echo", {{"data", counting({1, 1 + i % 4000})}});
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return 0;
  });
}

TEST(Soak, NothingGrowsAndNoReplyIsLostOrWrong) {
  const Models models;
  DaemonFixture daemon({.models = models.arguments()});
  std::mt19937 random(7);
  const double seconds = duration_seconds(), from = kWarmUp * seconds;
  ClientProcesses clients(daemon.directory(), models.directory(), four_clients(random), models.patterns());
  const pid_t steady_client = start_steady_client(daemon);
  Sampler sampler(daemon, steady_client);
  int worker_kills = 0, zygote_kills = 0, client_kills = 0;
  const auto start = SteadyClock::now();
  const auto elapsed = [&] { return std::chrono::duration<double>(SteadyClock::now() - start).count(); };
  const auto kill_any = [&](const std::vector<pid_t>& pids, int& count) {
    if (!pids.empty() && pids[0] > 0 && ::kill(pids[random() % pids.size()], SIGKILL) == 0) ++count;
  };
  for (double next_kill = 1, next_sample = 0; elapsed() < seconds;) {
    clients.fill();
    if (elapsed() >= next_sample) {
      sampler.sample(elapsed());
      next_sample += std::max(1.0, seconds / 300);
    }
    if (elapsed() >= next_kill) {
      const std::string victim = random() % 2 ? "shapes" : "times3";  // the workers of "steady" are never killed
      switch (random() % 6) {
        case 0:
          if (const auto client = clients.pick(random(), SIGKILL)) kill_any({*client}, client_kills);
          break;
        case 1:
          kill_any({daemon.zygote(victim)}, zygote_kills);
          break;
        default:
          kill_any(daemon.workers(victim), worker_kills);
      }
      clients.end_one(random());
      next_kill += 1;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  clients.finish();
  ::kill(steady_client, SIGKILL);
  EXPECT_EQ(exit_code_of(steady_client), 128 + SIGKILL);
  EXPECT_TRUE(daemon.wait_until_ready());
  const nlohmann::json stats = daemon.stats();

  Answers answers(models);
  Checker checker([&](const Question& question, std::uint64_t version) { return answers.of(question, version); });
  read_histories(models.directory(), checker);
  const CheckReport& found = checker.report();
  EXPECT_GT(found.ok, 0u);
  for (const Violation& violation : found.violations) ADD_FAILURE() << to_string(violation);

  EXPECT_GT(worker_kills, 0);
  if (seconds >= kSlopesFrom) {
    EXPECT_GT(zygote_kills, 0);
    EXPECT_GT(client_kills, 0);
  }

  nlohmann::json report{{"seconds", seconds},
                        {"clients", clients.started()},
                        {"kills", {{"workers", worker_kills}, {"zygotes", zygote_kills}, {"clients", client_kills}}},
                        {"asked", found.asked},
                        {"answered", found.answered},
                        {"under_way_when_their_client_was_killed", found.unknown},
                        {"violations", found.violation_count}};
  std::printf("%.0f s, %d clients, kills: %d workers, %d zygotes, %d clients; %llu asked, %llu answered, %llu violations\n\n",
              seconds, clients.started(), worker_kills, zygote_kills, client_kills, static_cast<unsigned long long>(found.asked),
              static_cast<unsigned long long>(found.answered), static_cast<unsigned long long>(found.violation_count));
  std::printf("%-16s %8s %7s %10s %10s %12s %10s %6s %6s %7s\n", "process", "pid", "samples", "private MB", "to MB", "growth KB",
              "noise KB", "PSS MB", "fds", "growth");
  for (const auto& [pid, series] : sampler.series()) {
    const Trend memory = trend_of(series.memory, from), descriptors = trend_of(series.descriptors, from);
    // A worker that was killed early has no trend.
    if (series.memory.back().x - std::max(from, series.memory.front().x) < 0.3 * (seconds - from)) continue;
    std::printf("%-16s %8d %7zu %10.2f %10.2f %12.1f %10.1f %6.1f %6.0f %7.2f\n", series.role.c_str(), pid, series.memory.size(),
                memory.first / 1e6, memory.last / 1e6, memory.growth / 1e3, memory.noise / 1e3, series.pss.back().y / 1e6,
                series.descriptors.back().y, descriptors.growth);
    report["processes"].push_back({{"role", series.role},
                                   {"pid", pid},
                                   {"samples", series.memory.size()},
                                   {"private_bytes", {memory.first, memory.last}},
                                   {"growth_bytes", memory.growth},
                                   {"noise_bytes", memory.noise},
                                   {"pss_bytes", series.pss.back().y},
                                   {"descriptors", {descriptors.first, descriptors.last}},
                                   {"descriptor_growth", descriptors.growth}});
    if (seconds < kSlopesFrom) continue;
    EXPECT_TRUE(trend_of(series.pss, from).is_flat(kAllowedShare)) << series.role << " " << pid << " costs more and more";
    EXPECT_TRUE(memory.is_flat(allowed_growth(seconds)))
        << series.role << " " << pid << " grows by " << memory.growth << " bytes";
    EXPECT_TRUE(descriptors.is_flat(2)) << series.role << " " << pid << " gathers descriptors: " << descriptors.growth;
  }
  if (const char* file = std::getenv("SHOAL_SOAK_JSON")) std::ofstream(file) << report.dump(1) << "\n";
}

}  // namespace
}  // namespace shoal::test
