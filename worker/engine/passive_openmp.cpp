#include "shoal/passive_openmp.hpp"

#include <strings.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>

namespace shoal {

// 0.5 to 1.5 ms, depending on how long the processor's pause takes. A thread that sleeps between two primitives must be woken by
// the kernel, which takes 50 us, and in a virtual machine whose core has gone idle some milliseconds: with 1000, MobileNet v2 in
// bf16 took 2 to 7 ms from run to run on two threads, with 30 000 it takes 1.5 ms. A thread spins so long after each run, too.
constexpr const char* kSpinCount = "30000";

void ensure_passive_openmp(char** argv) {
  const char* const policy = std::getenv("OMP_WAIT_POLICY");
  const bool is_active = policy && ::strcasecmp(policy, "active") == 0;
  if (is_active || (policy && std::getenv("GOMP_SPINCOUNT"))) return;  // set by the user, or by an earlier call
  ::setenv("OMP_WAIT_POLICY", "passive", 0);
  ::setenv("GOMP_SPINCOUNT", kSpinCount, 0);
  // By the program's own path: a process is named after the file that it executes, and it must not be called "exe".
  char path[PATH_MAX];
  const ssize_t size = ::readlink("/proc/self/exe", path, sizeof path - 1);
  if (size <= 0) return;
  path[size] = '\0';
  ::execv(path, argv);
}

}  // namespace shoal
