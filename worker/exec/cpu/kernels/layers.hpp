// The kernels of layers: normalization over the data, softmax. `node` and the tensors are as in Kernel::make.
#pragma once

#include "worker/exec/cpu/kernels/kernels.hpp"

namespace shoal::worker::cpu {

/// Mean and variance are found in two passes: the second one sums distances from the mean that the first one found, so float32
/// sums lose no digits. The third writes the result.
Loop make_layer_norm(const Node& node, TensorTypes src, TensorTypes dst);
Loop make_group_norm(const Node& node, TensorTypes src, TensorTypes dst);

/// NaN and infinities give the same results as in the oracle kernel. Declines lengths along an axis that is not the last, and
/// temperatures that are not positive.
Loop make_softmax(const Node& node, TensorTypes src, TensorTypes dst);

/// The softmax of a row, in its place, as that kernel computes it.
void softmax_of_row(float* row, std::int64_t size);
/// The number of elements of a row that take part, read once. The caller cuts it to the size of the row.
using SoftmaxLengthReader = std::int64_t (*)(const std::byte* lengths, std::int64_t row);
/// For lengths of that type; null: there are none of that type.
SoftmaxLengthReader softmax_length_reader(DType type);

}  // namespace shoal::worker::cpu
