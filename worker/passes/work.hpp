// How much work nodes are.
#pragma once

#include <span>

#include "shoal/tensor.hpp"
#include "worker/graph/operators.hpp"

namespace shoal::worker {

/// Multiplications and additions of a node that multiplies by weights (Convolution, FullyConnected, Rnn), as the operator defines
/// them; 0 for others. `src`, `dst`: infer() has run; `data` is not read.
double flops_of(const Node& node, std::span<const TensorView> src, std::span<const TensorView> dst);

/// At least as many element operations as the oracle kernel of the node takes. For operators that are seldom computed from
/// constants this may be far too many. Infinite if shapes do not bound the work.
double most_work_of(const Node& node, std::span<const TensorView> src, std::span<const TensorView> dst);

}  // namespace shoal::worker
