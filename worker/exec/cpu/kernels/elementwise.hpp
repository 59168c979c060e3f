// The element-wise kernels. kernels.cpp says which operators they are for; `node` is a node of such an operator, and the tensors
// are as in Kernel::make.
#pragma once

#include "worker/exec/cpu/kernels/kernels.hpp"

namespace shoal::worker::cpu {

// unary.cpp
Loop make_unary(const Node& node, TensorTypes src, TensorTypes dst);
Loop make_nan_to_num(const Node& node, TensorTypes src, TensorTypes dst);
Loop make_around(const Node& node, TensorTypes src, TensorTypes dst);
Loop make_activation(const Node& node, TensorTypes src, TensorTypes dst);
Loop make_leaky(const Node& node, TensorTypes src, TensorTypes dst);
Loop make_hard_sigmoid(const Node& node, TensorTypes src, TensorTypes dst);
Loop make_clip(const Node& node, TensorTypes src, TensorTypes dst);
Loop make_quadratic(const Node& node, TensorTypes src, TensorTypes dst);
Loop make_div_sqrt_dim(const Node& node, TensorTypes src, TensorTypes dst);

// binary.cpp
Loop make_binary(const Node& node, TensorTypes src, TensorTypes dst);
Loop make_scalar(const Node& node, TensorTypes src, TensorTypes dst);
Loop make_add_n(const Node& node, TensorTypes src, TensorTypes dst);

// selection.cpp
Loop make_where(const Node& node, TensorTypes src, TensorTypes dst);
Loop make_cast(const Node& node, TensorTypes src, TensorTypes dst);

// quantization.cpp
Loop make_quantize(const Node& node, TensorTypes src, TensorTypes dst);
Loop make_dequantize(const Node& node, TensorTypes src, TensorTypes dst);
Loop make_quantized_step(const Node& node, TensorTypes src, TensorTypes dst);

/// dst[i] = src[i] < low ? low : src[i] > high ? high : src[i] for `count` numbers of a floating-point type; NaN stays, as in
/// MXNet's relu and clip. Operands: src, dst, which may be the same.
Loop clamp_loop(DType type, std::int64_t count, float low, float high);
/// dst[i] = src[i] / divisor. Operands as above.
Loop divide_loop(DType type, std::int64_t count, float divisor);

}  // namespace shoal::worker::cpu
