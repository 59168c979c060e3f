// The kernel of Reduce. `node` and the tensors are as in Kernel::make.
#pragma once

#include "worker/exec/cpu/kernels/kernels.hpp"

namespace shoal::worker::cpu {

/// A sum of neighbors is computed in a number of partial sums that depends on the shape alone: the same bits with every number of
/// threads and on every processor. Sums of elements that are no neighbors are computed in the oracle kernel's order.
Loop make_reduce(const Node& node, TensorTypes src, TensorTypes dst);

}  // namespace shoal::worker::cpu
