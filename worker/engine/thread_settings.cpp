#include "worker/engine/thread_settings.hpp"

#include <fcntl.h>
#include <omp.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>
#include <string_view>

#include "shm/base/errors.hpp"
#include "shm/base/unique_fd.hpp"

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

Result<int> count_threads() {
  const char* path = "/proc/self/status";
  const UniqueFd fd(::open(path, O_RDONLY | O_CLOEXEC));
  if (!fd) return status_from_errno("open", path, errno);
  std::string text;  // the list of groups may be long
  for (;;) {
    char part[4096];
    const ssize_t size = ::read(fd.get(), part, sizeof part);
    if (size < 0) return status_from_errno("read", path, errno);
    if (size == 0) break;
    text.append(part, static_cast<std::size_t>(size));
  }
  constexpr std::string_view kLine = "\nThreads:";
  const std::size_t line = text.find(kLine);
  if (line == std::string::npos) return internal_error("{} has no line Threads", path);
  return std::atoi(text.c_str() + line + kLine.size());
}

}  // namespace shoal::worker
