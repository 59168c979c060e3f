// What processes hold, as /proc says: for tests that look for growth.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <span>

namespace shoal::test {

struct ProcessSample {
  std::uint64_t pss_bytes = 0, private_bytes = 0;
  int descriptors = 0;
};
/// Nothing when the process is gone.
std::optional<ProcessSample> sample_process(pid_t pid);

/// How many descriptors are open in it; -1 when the process is gone.
int descriptors_of(pid_t pid);

/// How long the threads of a process were ready to run and did not, all of them together, and how long anything on this machine
/// waited for a disk or memory; so far.
std::uint64_t waited_ns(pid_t pid);

/// Theil and Sen's slope: the median of the slopes between all pairs of points, which a few steps do not move.
struct Point {
  double x = 0, y = 0;
};
double slope_of(std::span<const Point> points);

}  // namespace shoal::test
