#include "shoal/passive_openmp.hpp"

#include <unistd.h>

#include <climits>
#include <cstdlib>

namespace shoal {

void ensure_passive_openmp(char** argv) {
  if (std::getenv("OMP_WAIT_POLICY")) return;
  ::setenv("OMP_WAIT_POLICY", "passive", 1);
  // By its own path: the name of a process is that of the file it was started from, and "exe" is nobody's.
  char path[PATH_MAX];
  const ssize_t size = ::readlink("/proc/self/exe", path, sizeof path - 1);
  if (size <= 0) return;
  path[size] = '\0';
  ::execv(path, argv);
}

}  // namespace shoal
