// Counts what a test program allocates: linking this replaces its operator new.
#pragma once

#include <cstdint>

namespace shoal {

/// Calls of operator new so far, of all threads.
std::uint64_t allocations();

}  // namespace shoal
