// Loops over one axis of plain float32 data, which the Compiler lowers itself: L2 normalization, BatchNorm of a range of
// channels. For these oneDNN 2.6.3 has only slow "ref" implementations, or none.
#pragma once

#include <cstdint>

#include "worker/exec/cpu/kernels/loop_step.hpp"

namespace shoal::worker::cpu {

/// Data seen from an axis: `outer` rows of `size` elements that are `inner` apart.
struct AxisExtents {
  std::int64_t outer = 1, size = 1, inner = 1;
};

/// root = sqrt(sum of squares + eps), summed in double; dst = src / root. Operands: src, dst, root (may be null); dst may be src.
Loop l2_normalization_loop(const AxisExtents& extents, double eps);

/// BatchNorm over `channels` neighbors of each of `rows` positions, which are `stride` elements apart in the source and
/// `channels` in the destination: dst = (src - mean) * gamma / sqrt(variance + eps) + beta, with relu: 0 if that is negative (NaN
/// stays). Operands: src, gamma, beta, mean, variance, dst; the parameters in float32, src and dst in float32 or bfloat16.
struct ChannelRows {
  std::int64_t rows, channels, stride;
};
Loop batch_norm_loop(const ChannelRows& extents, DType src_type, DType dst_type, float eps, bool with_relu);

}  // namespace shoal::worker::cpu
