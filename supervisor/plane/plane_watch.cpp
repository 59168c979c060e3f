// The watchdog's rounds: chooses the lanes to look at, and acts on the verdicts.
#include <unistd.h>

#include <algorithm>

#include "shm/base/format.hpp"
#include "supervisor/plane/data_plane.hpp"
#include "supervisor/process/closer.hpp"

namespace shoal::supervisor {
namespace {

static_assert(kProbe == wire::kProbeRequest, "a lane's line says so of a probe that runs");
// Far above the threads of Closer, ZeroMQ and the log.
constexpr std::size_t kMostThreadsOfOurs = 2 * (Closer::kMostThreads + Closer::kMostThreadsOfSenders);

}  // namespace

// While requests run, lists busy lanes every kFirstLookNs. Reads /proc only for lanes that have held a request that long.
void DataPlane::watch_lanes(std::uint64_t now_ns) {
  deaths_.oom_kills().count(now_ns);
  ledger_.busy_lanes(busy_lanes_);
  std::unordered_map<wire::PeerId, LaneWatch> seen;
  std::unordered_map<Incarnation, std::vector<ThreadTimes>> threads;  // 0: our receiving threads
  for (const BusyLane& busy : busy_lanes_) {
    const std::uint64_t due_ns = busy.leased_ns + kFirstLookNs;
    lane_look_.set_earlier(std::max(due_ns, now_ns + kLookEveryNs));
    RoutedVersion& version = *models_[busy.model];
    const WorkerProcess* worker = version.processes.find_worker(busy.lane.incarnation);
    if (now_ns < due_ns || !worker || worker->ended != EndReason::kNone) continue;
    if (threads.empty()) {
      threads[0] = read_threads_(::getpid(), kMostThreadsOfOurs).value_or(std::vector<ThreadTimes>());
      std::erase_if(threads[0], [](const ThreadTimes& times) { return !times.is_message_io; });
    }
    const auto [its_threads, is_new] = threads.try_emplace(busy.lane.incarnation);
    if (is_new) {
      const std::size_t most = most_threads_of_worker(version.processes.options().lanes, version.served.config.threads);
      auto read = read_threads_(worker->pid, most);
      if (!read) {
        version.processes.kill_worker(busy.lane.incarnation, format("it has more than {} threads", most));
        continue;
      }
      its_threads->second = *std::move(read);
    }
    if (auto watch = watches_.extract(peer_of(busy.lane))) seen.insert(std::move(watch));
    const std::uint64_t starved_ns =
        std::max(longest_wait_ns(threads_[0], threads[0]), longest_wait_ns(threads_[busy.lane.incarnation], its_threads->second));
    judge_lane(busy, version, *worker, its_threads->second, starved_ns, seen[peer_of(busy.lane)]);
  }
  watches_ = std::move(seen);
  threads_ = std::move(threads);
  perform();
}

void DataPlane::judge_lane(const BusyLane& busy, RoutedVersion& version, const WorkerProcess& worker,
                           const std::vector<ThreadTimes>& threads, std::uint64_t starved_ns, LaneWatch& watch) {
  const auto lines = worker.page(worker.lane_paths.size()).lanes;
  if (busy.lane.lane >= lines.size()) return;
  std::vector<std::uint64_t> lane_threads;
  for (const wire::LaneLine& each : lines) lane_threads.push_back(each.thread_id.load(std::memory_order_relaxed));
  const wire::LaneLine& line = lines[busy.lane.lane];
  const RequestId running = line.running_request.load(std::memory_order_relaxed);
  const LaneStage stage = running != 0 ? LaneStage::kRunning : busy.parked ? LaneStage::kCompiling : LaneStage::kReceiving;
  LaneSample sample = sample_lane(threads, lane_threads, busy.lane.lane, stage);
  sample.now_ns = now_ns_;
  sample.request = busy.oldest;
  sample.running = running;
  sample.steps = line.step_counter.load(std::memory_order_relaxed);
  sample.starved_ns = starved_ns;
  sample.waits_for_device = stage == LaneStage::kRunning && line.waits_for_device.load(std::memory_order_relaxed) != 0;
  const std::uint64_t p99_ns = ledger_.model(busy.model).compute_ns.quantile(0.99);
  const auto run_limit_ms = static_cast<std::uint64_t>(version.served.config.run_limit_ms);
  // Nobody knows how long a compilation takes, and a probe may wait for one. So there is no run limit then.
  const bool may_compile = stage == LaneStage::kCompiling || (busy.oldest == kProbe && running == 0);
  const LaneLimits limits{.quiet_ns = std::max(kFirstLookNs, kQuietP99s * p99_ns),
                          .run_ns = may_compile ? ~std::uint64_t{0} : run_limit_ms * 1'000'000};
  const LaneVerdict verdict = watch.judge(sample, limits);
  if (verdict == LaneVerdict::kFine) return;

  if (verdict == LaneVerdict::kStopped) {
    return version.processes.kill_worker(busy.lane.incarnation, "it was stopped while it held requests", EndReason::kStopped);
  }
  const bool is_hung = verdict == LaneVerdict::kHung;
  const std::string why = is_hung ? format("no step and no processor time for {} ms", watch.quiet_ns() / 1'000'000)
                                  : format("no step within the run limit of {} ms", run_limit_ms);
  // The thread that should write the crash record. If it is not a thread of that process, any of its threads gets the signal.
  const auto compiler = std::ranges::find(threads, true, &ThreadTimes::is_compiler);
  const bool blames_compiler = stage == LaneStage::kCompiling && compiler != threads.end();
  const pid_t thread = blames_compiler ? compiler->thread : static_cast<pid_t>(lane_threads[busy.lane.lane]);
  version.processes.abort_worker(busy.lane.incarnation, thread, why, is_hung ? EndReason::kHung : EndReason::kRunLimit);
}

}  // namespace shoal::supervisor
