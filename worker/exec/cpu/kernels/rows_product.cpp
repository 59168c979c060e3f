#include "worker/exec/cpu/kernels/rows_product.hpp"

#include <algorithm>

#include "worker/exec/cpu/kernels/panel_product.hpp"
#include "worker/exec/cpu/kernels/parallel.hpp"
#include "worker/exec/cpu/kernels/row_functions.hpp"

namespace shoal::worker::cpu {
namespace {

constexpr std::int64_t kRowsAtOnce = 96;  // of src, while a panel stays in the second cache

void run_part(const RowsProduct& product, std::span<std::byte* const> operands, std::int64_t panel, std::int64_t first,
              std::int64_t rows) {
  const auto* const src = reinterpret_cast<const float*>(operands[0]) + first * product.depth;
  const std::int64_t width = product.panel_columns, column = panel * width;
  const auto* const weights = reinterpret_cast<const float*>(operands[1]) + column * product.depth;
  const auto* const bias = reinterpret_cast<const float*>(operands[2]);
  float* const dst = reinterpret_cast<float*>(operands[3]) + first * product.columns + column;
  const std::int64_t columns = std::min(width, product.columns - column);
  multiply_panel(rows, product.depth, columns, {src, product.depth}, {weights, width}, {bias ? bias + column : nullptr, 0},
                 {dst, product.columns});
  for (const ElementFunction& function : product.functions) {
    const RowFunction apply = row_function(function.kind);
    for (std::int64_t row = 0; row < rows; ++row) apply(dst + row * product.columns, columns, function);
  }
}

}  // namespace

std::int64_t panel_columns_for(std::int64_t columns) {
  return std::min(kPanelColumns, (columns + kPanelGrain - 1) / kPanelGrain * kPanelGrain);
}

Loop rows_product_loop(const RowsProduct& product) {
  return [product](std::span<std::byte* const> operands) {
    const std::int64_t panels = (product.columns + product.panel_columns - 1) / product.panel_columns,
                       blocks = (product.rows + kRowsAtOnce - 1) / kRowsAtOnce;
    for_ranges(panels * blocks, 1, product.rows * product.depth * product.columns / 8, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t block = i % blocks, first = product.rows * block / blocks;
        run_part(product, operands, i / blocks, first, product.rows * (block + 1) / blocks - first);
      }
    });
  };
}

}  // namespace shoal::worker::cpu
