// Floating-point constants in another floating-point type.
#pragma once

#include "worker/graph/graph.hpp"

namespace shoal::worker {

/// A copy of `constant` (floating point, at any address) with elements of `dtype` (floating point), on the heap; rounds to
/// nearest even.
Constant convert_constant(const Constant& constant, DType dtype);

}  // namespace shoal::worker
