// The watchdog: tells a lane that is stopped or stuck from one that is slow or starved.
//
// A lane moves while it makes steps, while its threads use processor time, or while one of them waits for a processor. Time in
// which nobody looked (this process was starved or frozen itself) counts for no verdict, nor does time in which any thread waited
// for a processor that the lane may wait for: one of its process, which may hold a lock, or one of ours, which may hold its
// answer.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace shoal::supervisor {

/// One thread, as /proc said it.
struct ThreadTimes {
  pid_t thread = 0;
  char state = '?';           // R, S, D, T, t, ...
  std::uint64_t cpu_ns = 0;   // used so far
  std::uint64_t wait_ns = 0;  // spent runnable without a processor so far; 0 where the kernel does not count it
  bool is_message_io = false, is_control = false, is_compiler = false;
};
/// The threads of a process. One that vanishes meanwhile is left out; empty when the process is gone.
std::vector<ThreadTimes> read_threads(pid_t process);

/// What is seen of a lane at one moment.
struct LaneSample {
  std::uint64_t now_ns = 0;
  std::uint64_t request = 0;  // what it has had for longest
  std::uint64_t running = 0;  // as its status line says
  std::uint64_t steps = 0;    // of its status line
  std::uint64_t cpu_ns = 0, wait_ns = 0;
  std::uint64_t starved_ns = 0;  // since the last look: longest_wait_ns() of its process and of ours
  bool is_runnable = false, is_stopped = false;
};
/// What a lane does with what it holds.
enum class LaneStage { kReceiving, kCompiling, kRunning };

/// The times of the threads that may work for one lane: all but the other lanes', the control thread's once the request is there,
/// and ZeroMQ's once it is there, which count before it runs only where they wait for a processor. (Width and compilations are
/// threads of their own; before, the message, or the arenas it is in, may be what a starved thread holds.)
///   lane_threads   of all lanes, as the worker's status page claims; one that is no thread of the process is not believed
///   Returns        the sample but for `now_ns`, `request`, `running`, `steps` and `starved_ns`
LaneSample sample_lane(std::span<const ThreadTimes> threads, std::span<const std::uint64_t> lane_threads, std::size_t lane,
                       LaneStage stage);

/// How long, between two looks at a process, one of its threads waited for a processor: the longest of all of them; more than any
/// gap where one is seen waiting that got none since.
std::uint64_t longest_wait_ns(std::span<const ThreadTimes> before, std::span<const ThreadTimes> now);

enum class LaneVerdict { kFine, kStopped, kHung, kOverRunLimit };

struct LaneLimits {
  std::uint64_t quiet_ns = 0;  // without any movement
  std::uint64_t run_ns = 0;    // without a step, not counting the time that it waited for a processor
};

/// What was seen of one lane before.
///   Threads  thread-compatible
class LaneWatch {
 public:
  static constexpr std::uint64_t kLongestGapNs = 200'000'000;  // between two samples, as far as it counts

  LaneVerdict judge(const LaneSample& sample, const LaneLimits& limits);
  std::uint64_t quiet_ns() const { return quiet_ns_; }
  std::uint64_t without_step_ns() const { return without_step_ns_; }

 private:
  LaneSample last_;
  std::uint64_t quiet_ns_ = 0, without_step_ns_ = 0;
};

}  // namespace shoal::supervisor
