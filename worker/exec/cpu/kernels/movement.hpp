// The kernels that move elements, or repeat them. They treat all types of one size alike. `node` and the tensors are as in
// Kernel::make.
#pragma once

#include <vector>

#include "worker/exec/cpu/kernels/kernels.hpp"
#include "worker/ops/movement.hpp"

namespace shoal::worker::cpu {

Loop make_transpose(const Node& node, TensorTypes src, TensorTypes dst);
Loop make_move_axes(const Node& node, TensorTypes src, TensorTypes dst);
Loop make_swap_axes(const Node& node, TensorTypes src, TensorTypes dst);
Loop make_slice(const Node& node, TensorTypes src, TensorTypes dst);
Loop make_slice_like(const Node& node, TensorTypes src, TensorTypes dst);
Loop make_split(const Node& node, TensorTypes src, TensorTypes dst);
Loop make_concat(const Node& node, TensorTypes src, TensorTypes dst);
Loop make_broadcast(const Node& node, TensorTypes src, TensorTypes dst);
Loop make_diagonal(const Node& node, TensorTypes src, TensorTypes dst);
Loop make_make_diagonal(const Node& node, TensorTypes src, TensorTypes dst);
Loop make_pad(const Node& node, TensorTypes src, TensorTypes dst);     // pad.cpp
Loop make_tile(const Node& node, TensorTypes src, TensorTypes dst);    // repetition.cpp
Loop make_repeat(const Node& node, TensorTypes src, TensorTypes dst);  // repetition.cpp

/// The sizes of dense data, outermost first, and how many elements are added before and behind it.
struct PadExtents {
  std::vector<std::int64_t> sizes, before, behind;
};
/// Operands: src, dst.
Loop pad_loop(const PadExtents& extents, PadMode mode, DType dtype, double value);

}  // namespace shoal::worker::cpu
