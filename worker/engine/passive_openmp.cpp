#include "worker/engine/passive_openmp.hpp"

#include <unistd.h>

#include <cstdlib>

namespace shoal {

void ensure_passive_openmp(char** argv) {
  if (std::getenv("OMP_WAIT_POLICY")) return;
  ::setenv("OMP_WAIT_POLICY", "passive", 1);
  ::execv("/proc/self/exe", argv);
}

}  // namespace shoal
