// Loops over one axis of plain float32 data, where oneDNN 2.6.3 has slow "ref" implementations only, or none, or (softmax of
// rows) one that makes numbers of NaN: softmax, L2 normalisation, padding.
#pragma once

#include <cstdint>
#include <vector>

#include "worker/exec/cpu/loop_step.hpp"

namespace shoal::worker::cpu {

/// Data seen from an axis: `outer` times `size` elements that lie `inner` apart.
struct AxisExtents {
  std::int64_t outer = 1, size = 1, inner = 1;
};

/// Softmax, or its logarithm, over the axis; NaN and infinities as the reference kernel has them.
/// Operands: src, dst, which may be the same.
Loop softmax_loop(const AxisExtents& extents, bool is_log);

/// root = sqrt(sum of squares + eps), summed in double; dst = src / root. Operands: src, dst, root (may be null); dst may be src.
Loop l2_normalization_loop(const AxisExtents& extents, double eps);

/// Dense data of those sizes, outermost first, and how much of `value` is laid around it.
struct PadExtents {
  std::vector<std::int64_t> sizes, before, behind;
};
/// Operands: src, dst.
Loop pad_loop(const PadExtents& extents, float value);

}  // namespace shoal::worker::cpu
