// CoreTurns: runs of several cores do not compete for them.
#pragma once

#include <cstdint>

#include "shm/base/mutex.hpp"

namespace shoal::predict {

/// Threads with a predictor each, which all use every core, would together have many more threads than there are cores, and each
/// of them would wait in every layer until the kernel has run its helpers: 32 runs of LeNet in each of 20 threads, on 2 busy
/// cores, took 221 s, and 27 s in turns. So such runs take turns, in the order in which they come. A run of one core waits for
/// nobody: the kernel divides cores well then.
///   Threads  thread-safe
class CoreTurns {
 public:
  /// The turn of a run of this process, for a scope.
  ///   cores  how many it uses; with 1, nothing is locked
  class Turn {
   public:
    explicit Turn(int cores) : cores_(cores > 1 ? process().take(cores) : 0) {}
    ~Turn() {
      if (cores_ > 0) process().give_back(cores_);
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    const int cores_;
  };

  explicit CoreTurns(int cores) : all_(cores), free_(cores) {}
  /// Waits. Returns how many cores were taken: not more than there are.
  int take(int cores) SHOAL_EXCLUDES(mutex_);
  void give_back(int cores) SHOAL_EXCLUDES(mutex_);
  /// How many wait in take().
  std::uint64_t waiting() SHOAL_EXCLUDES(mutex_);

 private:
  static CoreTurns& process();

  Mutex mutex_;
  Condition changed_;
  const int all_;
  int free_ SHOAL_GUARDED_BY(mutex_);
  std::uint64_t last_ SHOAL_GUARDED_BY(mutex_) = 0;  ///< who came last
  std::uint64_t next_ SHOAL_GUARDED_BY(mutex_) = 0;  ///< whose turn is the next
};

}  // namespace shoal::predict
