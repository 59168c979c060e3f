// ensure_passive_openmp: OpenMP threads that sleep between runs instead of burning their core.
#pragma once

namespace shoal {

/// Sets OMP_WAIT_POLICY=passive and GOMP_SPINCOUNT (threads look for work for some 20 us before they sleep), what of them the
/// user has not set, and executes this program again: libgomp reads them before main(). Who asked for OMP_WAIT_POLICY=active
/// keeps that. Call it first in main(). When the program cannot be executed again it just goes on.
void ensure_passive_openmp(char** argv);

}  // namespace shoal
