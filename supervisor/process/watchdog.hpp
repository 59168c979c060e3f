// The watchdog: tells a lane that is stopped or stuck from one that is slow or starved.
//
// A lane makes progress while its step counter grows, while its threads use processor time, or while one of them waits for a
// processor. A lane that waits for an accelerator is not quiet either, but its run limit holds. Two kinds of time do not count
// against a lane. First, time in which this process did not look, because it was starved or frozen itself. Second, time in which
// a thread that the lane may depend on waited for a processor: a thread of its process, which may hold a lock, or one of ours,
// which may hold its answer.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace shoal::supervisor {

/// One thread, as /proc describes it.
struct ThreadTimes {
  pid_t thread = 0;
  char state = '?';           // R, S, D, T, t, ...
  std::uint64_t cpu_ns = 0;   // used so far
  std::uint64_t wait_ns = 0;  // runnable without a processor so far; 0 if the kernel does not count it
  bool is_message_io = false, is_compiler = false;
  bool is_control = false;  // also the one that unmaps the arenas of others
};
/// The threads of a process, the lowest id first. A thread that ends meanwhile is left out. Empty if the process is gone. Nothing
/// if it has more than `most` threads: a worker makes as many as it likes, and the caller must not read them all.
std::optional<std::vector<ThreadTimes>> read_threads(pid_t process, std::size_t most);
using ReadThreads = std::function<std::optional<std::vector<ThreadTimes>>(pid_t process, std::size_t most)>;
/// The most threads that a worker needs: for control, unmapping, ZeroMQ, each lane and the compiler with their OpenMP teams. Some
/// more are allowed, because the libraries may start threads of their own.
std::size_t most_threads_of_worker(int lanes, int threads_per_lane);

/// What is known of a lane at one moment.
struct LaneSample {
  std::uint64_t now_ns = 0;
  std::uint64_t request = 0;  // the request that it has held longest
  std::uint64_t running = 0;  // as its status line says
  std::uint64_t steps = 0;    // as its status line says
  std::uint64_t cpu_ns = 0, wait_ns = 0;
  std::uint64_t starved_ns = 0;  // since the last sample: longest_wait_ns() of its process and of ours
  bool is_runnable = false, is_stopped = false;
  bool waits_for_device = false;  // as its status line says
};
/// What a lane does with its oldest request.
enum class LaneStage { kReceiving, kCompiling, kRunning };

/// Adds up the times of the threads that may work for one lane. Threads of other lanes never count. The control thread and the
/// threads of ZeroMQ count while the request is being received, because one of them may hold the message or its arenas; while it
/// is compiled, a thread of ZeroMQ counts if it waits for a processor. All other threads count: OpenMP's, the compiling one.
///   lane_threads   of all lanes, as the worker's status page claims. A number that is no thread of the process has no effect
///   Returns        the sample without `now_ns`, `request`, `running`, `steps`, `starved_ns` and `waits_for_device`
LaneSample sample_lane(std::span<const ThreadTimes> threads, std::span<const std::uint64_t> lane_threads, std::size_t lane,
                       LaneStage stage);

/// The longest time that a thread of a process waited for a processor between two samples. The largest number if a thread waits
/// now and has not run since the first sample. Both samples are in the order of read_threads().
std::uint64_t longest_wait_ns(std::span<const ThreadTimes> before, std::span<const ThreadTimes> now);

enum class LaneVerdict { kFine, kStopped, kHung, kOverRunLimit };

struct LaneLimits {
  std::uint64_t quiet_ns = 0;  // without any progress
  std::uint64_t run_ns = 0;    // without a step; the time that it waited for a processor does not count
};

/// The history of one lane.
///   Threads  thread-compatible
class LaneWatch {
 public:
  static constexpr std::uint64_t kLongestGapNs = 200'000'000;  // a longer gap between two samples counts as this

  LaneVerdict judge(const LaneSample& sample, const LaneLimits& limits);
  std::uint64_t quiet_ns() const { return quiet_ns_; }

 private:
  LaneSample last_;
  std::uint64_t quiet_ns_ = 0, without_step_ns_ = 0;
};

}  // namespace shoal::supervisor
