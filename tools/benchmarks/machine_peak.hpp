// What this machine can do at best: the bounds that a profile holds times against.
#pragma once

namespace shoal::bench {

struct MachinePeak {
  double flops_per_s = 0;  ///< float32 multiplications and additions, fused, in the widest vectors
  double bytes_per_s = 0;  ///< read from memory behind all caches
};

/// Measured with so many threads at once, the best of many bursts. Takes about a quarter of a second on an idle machine.
MachinePeak measure_machine_peak(int threads);

}  // namespace shoal::bench
