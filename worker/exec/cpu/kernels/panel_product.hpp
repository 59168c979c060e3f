// Products of float32 matrices by fused multiplications and additions. The number of rows is known only when they run, and
// nothing is generated for it.
#pragma once

#include <cstdint>

namespace shoal::worker::cpu {

/// The most columns of a panel.
inline constexpr std::int64_t kPanelColumns = 64;
/// Vectors of both instruction sets divide a panel's width by this.
inline constexpr std::int64_t kPanelGrain = 16;

/// Does the processor have what they need: AVX2 and fused multiplications and additions?
bool has_panel_products();

/// Rows of float32; row i begins at data + i * stride.
struct ConstRows {
  const float* data = nullptr;
  std::int64_t stride = 0;
};
struct Rows {
  float* data = nullptr;
  std::int64_t stride = 0;
};

/// c[i][j] = start[i][j] + sum over k of a[i][k] * b[k][j], for i < rows and j < columns. Each sum is one chain in the order of
/// k, so the result of a row does not depend on the other rows, on how `depth` is cut, or on the instruction set.
///   b        `depth` rows of `columns` rounded up to kPanelGrain; a column beyond `columns` may hold anything
///   start    null: zeros; a stride of 0: the same row for all; may be c
///   columns  at most kPanelColumns
void multiply_panel(std::int64_t rows, std::int64_t depth, std::int64_t columns, ConstRows a, ConstRows b, ConstRows start,
                    Rows c);

}  // namespace shoal::worker::cpu
