#include "shoal/passive_openmp.hpp"

#include <strings.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>

namespace shoal {

// About 20 us, as long as the gap between two primitives of a small network: with none, every primitive under two threads waits
// for the kernel to wake the other (MobileNet v2: 6.0 ms instead of 3.6).
constexpr const char* kSpinCount = "1000";

void ensure_passive_openmp(char** argv) {
  const char* const policy = std::getenv("OMP_WAIT_POLICY");
  const bool is_active = policy && ::strcasecmp(policy, "active") == 0;
  if (is_active || (policy && std::getenv("GOMP_SPINCOUNT"))) return;  // by the user, or by the lines below
  ::setenv("OMP_WAIT_POLICY", "passive", 0);
  ::setenv("GOMP_SPINCOUNT", kSpinCount, 0);
  // By its own path: the name of a process is that of the file it was started from, and "exe" is nobody's.
  char path[PATH_MAX];
  const ssize_t size = ::readlink("/proc/self/exe", path, sizeof path - 1);
  if (size <= 0) return;
  path[size] = '\0';
  ::execv(path, argv);
}

}  // namespace shoal
