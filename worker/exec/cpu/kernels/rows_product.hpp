// The product of rows with packed weights, with what follows it element by element.
#pragma once

#include <cstdint>
#include <vector>

#include "worker/exec/cpu/kernels/loop_step.hpp"
#include "worker/passes/element_functions.hpp"

namespace shoal::worker::cpu {

struct RowsProduct {
  std::int64_t rows = 0, depth = 0, columns = 0;
  std::int64_t panel_columns = 0;  ///< of each panel of the weights; the last one is filled up with zeros
  Functions functions;             ///< of each result, in order; row_function() knows them all
};

/// Of the product alone, as Step::flops().
inline double flops_of(const RowsProduct& product) {
  return 2.0 * static_cast<double>(product.rows * product.depth) * static_cast<double>(product.columns);
}

/// How many columns a panel of weights with that many columns has: at most kPanelColumns, and a multiple of kPanelGrain.
std::int64_t panel_columns_for(std::int64_t columns);

/// dst = functions(src * weights + bias). Operands: src (rows, depth), weights, bias (columns; null: none), dst (rows, columns).
/// The weights are panels of columns: each has `depth` rows of `panel_columns`. Needs has_panel_products(). A row's result
/// depends neither on the other rows nor on the number of threads.
Loop rows_product_loop(const RowsProduct& product);

}  // namespace shoal::worker::cpu
