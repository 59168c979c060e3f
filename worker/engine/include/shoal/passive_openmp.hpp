// ensure_passive_openmp: OpenMP threads that sleep between runs instead of burning their core.
#pragma once

namespace shoal {

/// Sets OMP_WAIT_POLICY=passive and GOMP_SPINCOUNT (threads look for work for some 20 us before they sleep) and executes this
/// program again when the first is not set: libgomp reads them before main(). Call it first in main(). When the program cannot be
/// executed again it just goes on.
void ensure_passive_openmp(char** argv);

}  // namespace shoal
