// The kernels of linear algebra. `node` and the tensors are as in Kernel::make.
#pragma once

#include "worker/exec/cpu/kernels/kernels.hpp"

namespace shoal::worker::cpu {

Loop make_khatri_rao(const Node& node, TensorTypes src, TensorTypes dst);
Loop make_triangular_product(const Node& node, TensorTypes src, TensorTypes dst);
Loop make_triangular_solve(const Node& node, TensorTypes src, TensorTypes dst);
Loop make_extract_triangle(const Node& node, TensorTypes src, TensorTypes dst);
Loop make_make_triangle(const Node& node, TensorTypes src, TensorTypes dst);

}  // namespace shoal::worker::cpu
