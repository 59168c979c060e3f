// The kernels of sparse tensors. `node` and the tensors are as in Kernel::make.
#pragma once

#include "worker/exec/cpu/kernels/kernels.hpp"

namespace shoal::worker::cpu {

Loop make_csr_to_dense(const Node& node, TensorTypes src, TensorTypes dst);
Loop make_rows_to_dense(const Node& node, TensorTypes src, TensorTypes dst);
Loop make_sparse_dot(const Node& node, TensorTypes src, TensorTypes dst);
Loop make_dot_sparse(const Node& node, TensorTypes src, TensorTypes dst);
Loop make_take_rows(const Node& node, TensorTypes src, TensorTypes dst);

}  // namespace shoal::worker::cpu
