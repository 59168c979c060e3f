// Loops over one axis of plain float32 data: softmax, L2 normalization. For these oneDNN 2.6.3 has only slow "ref"
// implementations, none, or (softmax of rows) one that turns NaN into numbers.
#pragma once

#include <cstdint>

#include "worker/exec/cpu/kernels/loop_step.hpp"

namespace shoal::worker::cpu {

/// Data seen from an axis: `outer` rows of `size` elements that are `inner` apart.
struct AxisExtents {
  std::int64_t outer = 1, size = 1, inner = 1;
};

/// Softmax of sign x / temperature, or its logarithm, over the axis; sign is 1 or -1, temperature is positive. NaN and infinities
/// give the same results as in the oracle kernel. Operands: src, dst, which may be the same.
Loop softmax_loop(const AxisExtents& extents, bool is_log, float sign = 1, float temperature = 1);

/// root = sqrt(sum of squares + eps), summed in double; dst = src / root. Operands: src, dst, root (may be null); dst may be src.
Loop l2_normalization_loop(const AxisExtents& extents, double eps);

/// BatchNorm over `channels` neighbors of each of `rows` positions, which are `stride` elements apart in the source and
/// `channels` in the destination: dst = (src - mean) * gamma / sqrt(variance + eps) + beta, with relu: 0 if that is negative (NaN
/// stays). Operands: src, gamma, beta, mean, variance, dst.
struct ChannelRows {
  std::int64_t rows, channels, stride;
};
Loop batch_norm_loop(const ChannelRows& extents, float eps, bool with_relu);

}  // namespace shoal::worker::cpu
