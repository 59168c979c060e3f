#include "worker/exec/cpu/kernels/rows_product.hpp"

#include <algorithm>

#include "worker/exec/cpu/kernels/panel_product.hpp"
#include "worker/exec/cpu/kernels/parallel.hpp"
#include "worker/exec/cpu/kernels/row_functions.hpp"
#include "worker/exec/cpu/kernels/vectorized.hpp"

namespace shoal::worker::cpu {
namespace {

/// How much passes at once, with the wide panels of AVX-512 and the narrow ones of AVX2.
struct Blocks {
  std::int64_t rows;  ///< of src, while a panel stays in the second cache
  std::int64_t deep;  ///< more depth than the second cache holds of a panel
};
constexpr Blocks kWide{24, 4096}, kNarrow{96, 1024};
// From `deep` on, 196 KB of src stay in the second cache while all panels pass. Measured beside oneDNN's inner product: 512 x
// 3072 x 768 on Zen 2 (512 KB) 1.2 x its time instead of 1.5 x, 300 x 12544 x 1024 on Xeon (2 MB) 0.84 x instead of 1.3 x.
constexpr std::int64_t kPartRows = 192, kPartDepth = 256;
constexpr std::int64_t kFewRows = 48, kPanelsPerThread = 4;  // fewer rows, or panels of a thread, do as well without
constexpr std::int64_t kNarrowPanel = 32;

/// Adds to the sums the `depth` terms from `k` on.
void run_part(const RowsProduct& product, std::span<std::byte* const> operands, std::int64_t panel, std::int64_t first,
              std::int64_t rows, std::int64_t k, std::int64_t depth) {
  const auto* const src = reinterpret_cast<const float*>(operands[0]) + first * product.depth + k;
  const std::int64_t width = product.panel_columns, column = panel * width;
  const auto* const weights = reinterpret_cast<const float*>(operands[1]) + column * product.depth + k * width;
  const auto* const bias = reinterpret_cast<const float*>(operands[2]);
  float* const dst = reinterpret_cast<float*>(operands[3]) + first * product.columns + column;
  const std::int64_t columns = std::min(width, product.columns - column);
  const ConstRows start = k == 0 ? ConstRows{bias ? bias + column : nullptr, 0} : ConstRows{dst, product.columns};
  multiply_panel(rows, depth, columns, {src, product.depth}, {weights, width}, start, {dst, product.columns});
  if (k + depth < product.depth) return;
  for (const ElementFunction& function : product.functions) {
    const RowFunction apply = row_function(function.kind);
    for (std::int64_t row = 0; row < rows; ++row) apply(dst + row * product.columns, columns, function);
  }
}

}  // namespace

std::int64_t panel_columns_for(std::int64_t columns) {
  const std::int64_t widest = has_avx512() ? kPanelColumns : kNarrowPanel;
  return std::min(widest, (columns + kPanelGrain - 1) / kPanelGrain * kPanelGrain);
}

Loop rows_product_loop(const RowsProduct& product) {
  return [product](std::span<std::byte* const> operands) {
    const std::int64_t panels = (product.columns + product.panel_columns - 1) / product.panel_columns;
    const Blocks& usual = has_avx512() ? kWide : kNarrow;
    const bool in_parts =
        product.depth >= usual.deep && product.rows >= kFewRows && panels >= kPanelsPerThread * ::omp_get_max_threads();
    const std::int64_t at_once = in_parts ? kPartRows : usual.rows, blocks = (product.rows + at_once - 1) / at_once,
                       work = product.rows * product.depth * product.columns / 8;
    const auto run = [&](std::int64_t panel, std::int64_t block, std::int64_t k, std::int64_t depth) {
      const std::int64_t first = product.rows * block / blocks;
      run_part(product, operands, panel, first, product.rows * (block + 1) / blocks - first, k, depth);
    };
    if (!in_parts) {
      for_ranges(panels * blocks, 1, work, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) run(i / blocks, i % blocks, 0, product.depth);
      });
      return;
    }
    for_ranges(panels, 1, work, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t block = 0; block < blocks; ++block) {
        for (std::int64_t k = 0; k < product.depth; k += kPartDepth) {
          for (std::int64_t panel = begin; panel < end; ++panel) run(panel, block, k, std::min(kPartDepth, product.depth - k));
        }
      }
    });
  };
}

}  // namespace shoal::worker::cpu
