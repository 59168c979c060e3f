// Work for all threads of a lane.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>

namespace shoal::worker::cpu {

/// Elements of cheap work. Below this, waking a thread costs more than it saves.
inline constexpr std::int64_t kLeastPerThread = 1 << 14;

/// Calls body(begin, end) for ranges that together are 0 .. count, at most one per thread. Ranges begin at multiples of `grain`.
///   work  elements of the whole: little work stays on the calling thread
template <typename Body>
void for_ranges(std::int64_t count, std::int64_t grain, std::int64_t work, const Body& body) {
  if (work <= kLeastPerThread || count <= grain) {
    if (count > 0) body(std::int64_t{0}, count);
    return;
  }
#pragma omp parallel
  {
    const std::int64_t threads = ::omp_get_num_threads(), index = ::omp_get_thread_num(), grains = (count + grain - 1) / grain;
    const std::int64_t begin = grains * index / threads * grain, end = std::min(grains * (index + 1) / threads * grain, count);
    if (begin < end) body(begin, end);
  }
}

}  // namespace shoal::worker::cpu
