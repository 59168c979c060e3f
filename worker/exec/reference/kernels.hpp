// The built-in reference kernels, one per operator or family; reference_kernels.cpp lists them by name.
#pragma once

#include "worker/exec/reference/reference_kernels.hpp"

namespace shoal::worker {

using Sources = std::span<const TensorView>;
using Results = std::span<TensorView>;

Status reference_convolution(const Node& node, Sources src, Results dst);
Status reference_fully_connected(const Node& node, Sources src, Results dst);
Status reference_batch_norm(const Node& node, Sources src, Results dst);
Status reference_lrn(const Node& node, Sources src, Results dst);
Status reference_l2_normalization(const Node& node, Sources src, Results dst);
Status reference_activation(const Node& node, Sources src, Results dst);
Status reference_leaky(const Node& node, Sources src, Results dst);
Status reference_pooling(const Node& node, Sources src, Results dst);
Status reference_adaptive_pooling(const Node& node, Sources src, Results dst);
Status reference_softmax(const Node& node, Sources src, Results dst);
Status reference_binary(const Node& node, Sources src, Results dst);
Status reference_add_n(const Node& node, Sources src, Results dst);
Status reference_scalar(const Node& node, Sources src, Results dst);
Status reference_unary(const Node& node, Sources src, Results dst);
Status reference_hard_sigmoid(const Node& node, Sources src, Results dst);
Status reference_div_sqrt_dim(const Node& node, Sources src, Results dst);
Status reference_reduce(const Node& node, Sources src, Results dst);
Status reference_clip(const Node& node, Sources src, Results dst);
Status reference_cast(const Node& node, Sources src, Results dst);  ///< Cast and AmpMulticast
Status reference_copy(const Node& node, Sources src, Results dst);  ///< Identity, Flatten, Reshape
Status reference_concat(const Node& node, Sources src, Results dst);
Status reference_transpose(const Node& node, Sources src, Results dst);
Status reference_swap_axes(const Node& node, Sources src, Results dst);
Status reference_slice(const Node& node, Sources src, Results dst);
Status reference_split(const Node& node, Sources src, Results dst);
Status reference_pad(const Node& node, Sources src, Results dst);

}  // namespace shoal::worker
