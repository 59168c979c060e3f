// The peak speed of this machine, which gives the lower bounds of a profile.
#pragma once

namespace shoal::bench {

struct MachinePeak {
  double flops_per_s = 0;  ///< float32 operations of fused multiply-adds in the widest vectors
  double bytes_per_s = 0;  ///< reads from memory, not from caches
};

/// Measures with that many threads at once, and takes the best of many bursts. Takes about 250 ms on an idle machine.
MachinePeak measure_machine_peak(int threads);

}  // namespace shoal::bench
