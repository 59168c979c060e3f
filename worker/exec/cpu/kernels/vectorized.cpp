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

bool has_avx512() {
  static const bool has = has_avx2() && __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
                          __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0;
  return has;
}

}  // namespace shoal::worker::cpu
