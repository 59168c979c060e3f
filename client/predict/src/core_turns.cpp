#include "client/predict/src/core_turns.hpp"

#include <omp.h>

#include <algorithm>

namespace shoal::predict {

CoreTurns& CoreTurns::process() {
  static auto& turns = *new CoreTurns(std::max(::omp_get_num_procs(), 1));  // threads may use it while the program ends
  return turns;
}

int CoreTurns::take(int cores) {
  const int taken = std::min(cores, all_);
  const MutexLock lock(mutex_);
  const std::uint64_t mine = last_++;
  while (next_ != mine || free_ < taken) changed_.wait(mutex_);
  ++next_;
  free_ -= taken;
  if (free_ > 0) changed_.notify_all();
  return taken;
}

void CoreTurns::give_back(int cores) {
  const MutexLock lock(mutex_);
  free_ += cores;
  changed_.notify_all();
}

std::uint64_t CoreTurns::waiting() {
  const MutexLock lock(mutex_);
  return last_ - next_;
}

}  // namespace shoal::predict
