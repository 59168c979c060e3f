// Attention in one step: the scores of some queries at a time, never all.
#pragma once

#include <vector>

#include "worker/exec/cpu/kernels/layers.hpp"
#include "worker/exec/cpu/kernels/loop_step.hpp"
#include "worker/ops/attention.hpp"

namespace shoal::worker::cpu {

/// result = softmax(scale * queries . keys + mask) * values, for each head. Where vectors lie is told in elements.
struct AttentionExtents {
  HeadVectors queries, keys, values, result;
  float scale = 1;
  std::vector<std::int64_t> masks;  ///< per head: where its mask begins; empty: no mask
  std::int64_t mask_stride = 0;     ///< from one query's row of the mask to the next one's; 0: one row for all
  SoftmaxLengthReader read_length =
      nullptr;  ///< of each row of scores: how many keys take part; the others have the weight 0. Null: all
};

/// Operands: queries, keys, values, mask (or null), lengths (or null), result, scratch memory of attention_scratch_bytes(). Needs
/// has_panel_products(). No result depends on the number of threads.
///   threads  the most that run it
Loop attention_loop(const AttentionExtents& extents, int threads);
std::size_t attention_scratch_bytes(const AttentionExtents& extents, int threads);

}  // namespace shoal::worker::cpu
