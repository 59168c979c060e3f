// ThreadSettings: the settings of a thread that affect the results of a run, or that a run changes.
#pragma once

#include <cfenv>

#include "shoal/result.hpp"

namespace shoal::worker {

/// A thread's floating-point environment (rounding, denormal numbers, traps, exception flags) and OpenMP width.
class ThreadSettings {
 public:
  static ThreadSettings of_this_thread();
  void apply() const;  ///< to the calling thread
  const std::fenv_t& floating_point() const { return floating_point_; }

 private:
  std::fenv_t floating_point_{};
  int width_ = 1;
};

/// Gives the calling thread, for a scope, the floating-point environment that a program starts with; then restores its own. The
/// same for the OpenMP threads that help it: they belong to the calling thread, so the application uses them, too.
///   width    OpenMP threads of the run, the calling thread included. More than 1 cost two parallel regions
///   Threads  thread-bound
class RunSettings {
 public:
  explicit RunSettings(int width = 1);
  ~RunSettings();
  RunSettings(const RunSettings&) = delete;
  RunSettings& operator=(const RunSettings&) = delete;
  const ThreadSettings& callers() const { return callers_; }

 private:
  const ThreadSettings callers_;
  const int width_;
};

/// The number of threads of this process. Errors: kInternal when /proc cannot be read.
Result<int> count_threads();

}  // namespace shoal::worker
