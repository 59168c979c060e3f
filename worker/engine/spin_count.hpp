// How long OpenMP's threads look for work before they sleep.
#pragma once

namespace shoal {

/// GOMP_SPINCOUNT: 0.5 to 1.5 ms, depending on how long the processor's pause takes. A thread that sleeps between two primitives
/// must be woken by the kernel, which takes 50 us, and in a virtual machine whose core has gone idle some milliseconds: with
/// 1000, MobileNet v2 in bf16 took 2 to 7 ms from run to run on two threads, with 30 000 it takes 1.5 ms. A thread spins so long
/// after each run, too.
inline constexpr char kOpenMpSpinCount[] = "30000";

}  // namespace shoal
