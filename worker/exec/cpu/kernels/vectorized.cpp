#include "worker/exec/cpu/kernels/vectorized.hpp"

#include <cpuid.h>

namespace shoal::worker::cpu {

bool has_avx2() {
  static const bool has = [] {
    unsigned a = 0, b = 0, c = 0, d = 0;
    const bool has_f16c = __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
    return has_f16c && __builtin_cpu_supports("avx2") != 0;  // this one asks the system, too
  }();
  return has;
}

}  // namespace shoal::worker::cpu
