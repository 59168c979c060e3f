// Kernels of batches of sequences. Each length is read once for a step, and cut to the number of steps.
#pragma once

#include "worker/exec/cpu/kernels/kernels.hpp"

namespace shoal::worker::cpu {

Loop make_sequence_mask(const Node& node, TensorTypes src, TensorTypes dst);
Loop make_sequence_last(const Node& node, TensorTypes src, TensorTypes dst);
Loop make_sequence_reverse(const Node& node, TensorTypes src, TensorTypes dst);

}  // namespace shoal::worker::cpu
