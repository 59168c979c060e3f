// The kernels of Reduce and CumSum. `node` and the tensors are as in Kernel::make.
#pragma once

#include "worker/exec/cpu/kernels/kernels.hpp"

namespace shoal::worker::cpu {

/// A sum of neighbors is computed in a number of partial sums that depends on the shape alone: the same bits with every number of
/// threads and on every processor. Products of floats, and sums of elements that are no neighbors, are computed in the oracle
/// kernel's order.
Loop make_reduce(const Node& node, TensorTypes src, TensorTypes dst);

/// The same sums as the oracle kernel's, in the same order.
Loop make_cum_sum(const Node& node, TensorTypes src, TensorTypes dst);

}  // namespace shoal::worker::cpu
