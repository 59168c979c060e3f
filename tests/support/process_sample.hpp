// What processes hold and use, from /proc, for tests that look for growth.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>

namespace shoal::test {

struct ProcessSample {
  std::uint64_t pss_bytes = 0, private_bytes = 0;
  int descriptors = 0;
};
/// Returns nothing when the process is gone.
std::optional<ProcessSample> sample_process(pid_t pid);

/// The number of open descriptors; -1 when the process is gone.
int descriptors_of(pid_t pid);

/// The number of its mappings of memfds: arenas, weights, status pages; 0 when the process is gone.
int memfd_mappings_of(pid_t pid);

/// The processor time that all threads of a process have used so far; 0 when the process is gone.
std::chrono::nanoseconds processor_time_of(pid_t pid);

/// How long a process was held up. Threads that have ended since the last look count with what they had waited then, so the
/// time never falls.
///   Threads  thread-compatible
class WaitedTime {
 public:
  explicit WaitedTime(pid_t pid) : pid_(pid) {}
  /// The sum of two times so far: how long the threads of the process were ready and did not run, and how long anything on this
  /// machine waited for a disk or memory.
  std::uint64_t look_ns();

 private:
  pid_t pid_;
  std::map<std::string, std::uint64_t> by_thread_;
  std::uint64_t threads_ns_ = 0;
};

/// The Theil-Sen slope: the median of the slopes between all pairs of points. A few steps in the data do not change it.
struct Point {
  double x = 0, y = 0;
};
double slope_of(std::span<const Point> points);

}  // namespace shoal::test
