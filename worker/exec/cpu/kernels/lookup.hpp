// The kernels that find elements by indices or by their order, and those that make tensors of numbers. `node` and the tensors are
// as in Kernel::make.
#pragma once

#include "worker/exec/cpu/kernels/kernels.hpp"

namespace shoal::worker::cpu {

// indexing.cpp
Loop make_take(const Node& node, TensorTypes src, TensorTypes dst);  ///< none for the mode `raise`: a loop has no errors
Loop make_pick(const Node& node, TensorTypes src, TensorTypes dst);  ///< likewise
Loop make_gather_nd(const Node& node, TensorTypes src, TensorTypes dst);
Loop make_one_hot(const Node& node, TensorTypes src, TensorTypes dst);

// ordering.cpp
Loop make_top_k(const Node& node, TensorTypes src, TensorTypes dst);
std::size_t top_k_scratch_bytes(const Node& node, TensorTypes src, TensorTypes dst);
Loop make_arg_extreme(const Node& node, TensorTypes src, TensorTypes dst);

// creation.cpp
Loop make_fill(const Node& node, TensorTypes src, TensorTypes dst);
/// For operators that read no elements: the oracle kernel runs once, and each run copies what it made. None for large results.
Loop make_from_shapes(const Node& node, TensorTypes src, TensorTypes dst);

}  // namespace shoal::worker::cpu
