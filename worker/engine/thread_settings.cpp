#include "worker/engine/thread_settings.hpp"

#include <omp.h>

#include <initializer_list>

namespace shoal::worker {

ThreadSettings ThreadSettings::of_this_thread() {
  ThreadSettings settings;
  std::fegetenv(&settings.floating_point_);
  settings.width_ = ::omp_get_max_threads();
  return settings;
}

void ThreadSettings::apply() const {
  ::omp_set_num_threads(width_);
  std::fesetenv(&floating_point_);
}

namespace {

// What a helping thread had before the run. OpenMP may end a helper and start another one meanwhile: that one has nothing here.
struct Own {
  bool is_kept = false;
  std::fenv_t floating_point{};
};
thread_local Own own;

bool is_helper() { return ::omp_get_thread_num() != 0; }

}  // namespace

// The helpers are asked first: OpenMP makes those that it lacks with the settings that this thread has then.
RunSettings::RunSettings(int width) : callers_(ThreadSettings::of_this_thread()), width_(width) {
  if (width_ > 1) {
#pragma omp parallel num_threads(width_)
    if (is_helper()) {
      own.is_kept = true;
      std::fegetenv(&own.floating_point);
      std::fesetenv(FE_DFL_ENV);
    }
  }
  std::fesetenv(FE_DFL_ENV);
}

RunSettings::~RunSettings() {
  callers_.apply();
  if (width_ <= 1) return;
#pragma omp parallel num_threads(width_)
  if (is_helper()) {
    std::fesetenv(own.is_kept ? &own.floating_point : &callers_.floating_point());
    own.is_kept = false;
  }
}

BlockedSignals::BlockedSignals() {
  sigset_t blocked;
  ::sigfillset(&blocked);
  for (const int signal : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGSYS, SIGTRAP}) ::sigdelset(&blocked, signal);
  ::pthread_sigmask(SIG_BLOCK, &blocked, &before_);
}

}  // namespace shoal::worker
