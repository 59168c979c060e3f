// ensure_passive_openmp: makes OpenMP threads sleep between runs instead of keeping their cores busy.
#pragma once

namespace shoal {

/// Sets OMP_WAIT_POLICY=passive and GOMP_SPINCOUNT, and executes this program again, because libgomp reads both before main().
/// Threads then look for work for about 20 us before they sleep. A variable that the user has set keeps its value, and with
/// OMP_WAIT_POLICY=active nothing changes. Call this first in main(). If the program cannot be executed again, this returns.
void ensure_passive_openmp(char** argv);

}  // namespace shoal
