#include "shoal/passive_openmp.hpp"

#include <strings.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>

#include "worker/engine/spin_count.hpp"

namespace shoal {

void ensure_passive_openmp(char** argv) {
  const char* const policy = std::getenv("OMP_WAIT_POLICY");
  const bool is_active = policy && ::strcasecmp(policy, "active") == 0;
  if (is_active || (policy && std::getenv("GOMP_SPINCOUNT"))) return;  // set by the user, or by an earlier call
  ::setenv("OMP_WAIT_POLICY", "passive", 0);
  ::setenv("GOMP_SPINCOUNT", kOpenMpSpinCount, 0);
  // By the program's own path: a process is named after the file that it executes, and it must not be called "exe".
  char path[PATH_MAX];
  const ssize_t size = ::readlink("/proc/self/exe", path, sizeof path - 1);
  if (size <= 0) return;
  path[size] = '\0';
  ::execv(path, argv);
}

}  // namespace shoal
