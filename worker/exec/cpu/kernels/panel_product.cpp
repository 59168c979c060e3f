#include "worker/exec/cpu/kernels/panel_product.hpp"

#include <immintrin.h>

#include <algorithm>
#include <iterator>

#include "worker/exec/cpu/kernels/vectorized.hpp"

namespace shoal::worker::cpu {
namespace {

constexpr std::int64_t kTileRows = 6;  // with 4 vectors of AVX-512 in a row, 24 of the 32 registers hold sums
// Of a panel, while all rows pass. 16 KB of a narrow one stay in the nearest cache; 64 KB of a wide one come from the second, in
// time.
constexpr std::int64_t kNarrowDepthAtOnce = 128, kWideDepthAtOnce = 256;
constexpr std::int64_t kRowsAhead = 16;        // of a panel, asked for early: few rows of `a` leave too little time for it
constexpr std::int64_t kNarrowRowsAhead = 64;  // of the narrower panels of AVX2

// One tile: its sums stay in registers. There are two functions, because the compiler inlines an intrinsic only into
// a function of its instruction set.
template <int kRows, int kVectors>
[[gnu::target("avx512f"), gnu::noinline]] void tile_of_avx512(std::int64_t depth, ConstRows a, ConstRows b, ConstRows start,
                                                              Rows c) {
  __m512 sums[kRows][kVectors];
#pragma GCC unroll 6
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j)
      sums[i][j] = start.data ? _mm512_loadu_ps(start.data + i * start.stride + j * 16) : _mm512_setzero_ps();
  }
  const float* row = b.data;
  for (std::int64_t k = 0; k < depth; ++k, row += b.stride) {
    __m512 right[kVectors];
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) {
      right[j] = _mm512_loadu_ps(row + j * 16);
      _mm_prefetch(row + kRowsAhead * b.stride + j * 16, _MM_HINT_T0);
    }
#pragma GCC unroll 6
    for (int i = 0; i < kRows; ++i) {
      const __m512 left = _mm512_set1_ps(a.data[i * a.stride + k]);
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j) sums[i][j] = _mm512_fmadd_ps(left, right[j], sums[i][j]);
    }
  }
#pragma GCC unroll 6
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) _mm512_storeu_ps(c.data + i * c.stride + j * 16, sums[i][j]);
  }
}

template <int kRows, int kVectors, bool kFetches = false>
[[gnu::target("avx2,fma"), gnu::noinline]] void tile_of_avx2(std::int64_t depth, ConstRows a, ConstRows b, ConstRows start,
                                                             Rows c) {
  __m256 sums[kRows][kVectors];
#pragma GCC unroll 6
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j)
      sums[i][j] = start.data ? _mm256_loadu_ps(start.data + i * start.stride + j * 8) : _mm256_setzero_ps();
  }
  const float* row = b.data;
  // What is loaded must fit beside the sums into 16 registers: the rows of few rows, or the vectors of two.
  for (std::int64_t k = 0; k < depth; ++k, row += b.stride) {
    if constexpr (kVectors > 2) {
      __m256 left[kRows];
#pragma GCC unroll 6
      for (int i = 0; i < kRows; ++i) left[i] = _mm256_set1_ps(a.data[i * a.stride + k]);
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j) {
        if (j % 2 == 0) _mm_prefetch(row + kNarrowRowsAhead * b.stride + j * 8, _MM_HINT_T0);
        const __m256 right = _mm256_loadu_ps(row + j * 8);
#pragma GCC unroll 6
        for (int i = 0; i < kRows; ++i) sums[i][j] = _mm256_fmadd_ps(left[i], right, sums[i][j]);
      }
    } else {
      if constexpr (kFetches) _mm_prefetch(row + kNarrowDepthAtOnce * b.stride, _MM_HINT_T1);
      const __m256 right[2] = {_mm256_loadu_ps(row), _mm256_loadu_ps(row + 8)};
#pragma GCC unroll 6
      for (int i = 0; i < kRows; ++i) {
        const __m256 left = _mm256_set1_ps(a.data[i * a.stride + k]);
        sums[i][0] = _mm256_fmadd_ps(left, right[0], sums[i][0]);
        sums[i][1] = _mm256_fmadd_ps(left, right[1], sums[i][1]);
      }
    }
  }
#pragma GCC unroll 6
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) _mm256_storeu_ps(c.data + i * c.stride + j * 8, sums[i][j]);
  }
}

using Tile = void (*)(std::int64_t depth, ConstRows a, ConstRows b, ConstRows start, Rows c);

template <int kVectors>
constexpr Tile kAvx512Tiles[] = {tile_of_avx512<1, kVectors>, tile_of_avx512<2, kVectors>, tile_of_avx512<3, kVectors>,
                                 tile_of_avx512<4, kVectors>, tile_of_avx512<5, kVectors>, tile_of_avx512<6, kVectors>};
constexpr const Tile* kAvx512ByVectors[] = {kAvx512Tiles<1>, kAvx512Tiles<2>, kAvx512Tiles<3>, kAvx512Tiles<4>};
// For few rows, if the panel has 32 columns: more sums than two vectors hold, because each addition waits for the one before it.
constexpr Tile kAvx2Tiles[] = {tile_of_avx2<1, 2>, tile_of_avx2<2, 2>, tile_of_avx2<3, 2>,
                               tile_of_avx2<4, 2>, tile_of_avx2<5, 2>, tile_of_avx2<6, 2>};
// They ask for the part of the panel that follows: with few rows it would come too late.
constexpr Tile kFetchingAvx2Tiles[] = {tile_of_avx2<1, 2, true>, tile_of_avx2<2, 2, true>, tile_of_avx2<3, 2, true>,
                                       tile_of_avx2<4, 2, true>, tile_of_avx2<5, 2, true>, tile_of_avx2<6, 2, true>};
constexpr Tile kWideAvx2Tiles[] = {tile_of_avx2<1, 4>, tile_of_avx2<2, 4>, tile_of_avx2<3, 4>};
constexpr std::int64_t kWideColumns = 32;

ConstRows from(ConstRows rows, std::int64_t row, std::int64_t column) {
  return rows.data ? ConstRows{rows.data + row * rows.stride + column, rows.stride} : rows;
}
Rows from(Rows rows, std::int64_t row, std::int64_t column) { return {rows.data + row * rows.stride + column, rows.stride}; }

// `width` is a multiple of kPanelGrain here. Rows are dealt evenly to the tiles: 7 rows are 4 and 3.
void multiply_whole(std::int64_t rows, std::int64_t depth, std::int64_t width, ConstRows a, ConstRows b, ConstRows start,
                    Rows c) {
  static const bool is_wide = has_avx512();
  static const std::int64_t at_once = is_wide ? kWideDepthAtOnce : kNarrowDepthAtOnce;
  const std::int64_t tiles = (rows + kTileRows - 1) / kTileRows;
  for (std::int64_t k = 0; k < depth || k == 0; k += at_once) {
    const std::int64_t part = std::min(at_once, depth - k);
    const ConstRows before = k == 0 ? start : ConstRows{c.data, c.stride}, panel = from(b, k, 0);
    for (std::int64_t tile = 0; tile < tiles; ++tile) {
      const std::int64_t row = rows * tile / tiles, count = rows * (tile + 1) / tiles - row;
      const ConstRows left = from(a, row, k);
      if (is_wide) {
        kAvx512ByVectors[width / 16 - 1][count - 1](part, left, panel, from(before, row, 0), from(c, row, 0));
        continue;
      }
      for (std::int64_t column = 0; column < width;) {
        const bool is_wide_tile = count <= std::ssize(kWideAvx2Tiles) && column + kWideColumns <= width;
        const Tile multiply = is_wide_tile ? kWideAvx2Tiles[count - 1]
                              : tile == 0  ? kFetchingAvx2Tiles[count - 1]
                                           : kAvx2Tiles[count - 1];
        multiply(part, left, from(panel, 0, column), from(before, row, column), from(c, row, column));
        column += is_wide_tile ? kWideColumns : kPanelGrain;
      }
    }
  }
}

}  // namespace

bool has_panel_products() {
  static const bool has = has_avx2() && __builtin_cpu_supports("fma");
  return has;
}

void multiply_panel(std::int64_t rows, std::int64_t depth, std::int64_t columns, ConstRows a, ConstRows b, ConstRows start,
                    Rows c) {
  const std::int64_t width = (columns + kPanelGrain - 1) / kPanelGrain * kPanelGrain;
  if (width == columns) return multiply_whole(rows, depth, columns, a, b, start, c);
  float tile[kTileRows * kPanelColumns] = {};  // c and start have no columns beyond `columns`
  for (std::int64_t row = 0; row < rows; row += kTileRows) {
    const std::int64_t count = std::min(kTileRows, rows - row);
    for (std::int64_t i = 0; i < count && start.data; ++i)
      std::copy_n(start.data + (row + i) * start.stride, columns, tile + i * width);
    if (!start.data) std::fill_n(tile, count * width, 0.0F);
    multiply_whole(count, depth, width, from(a, row, 0), b, {tile, width}, {tile, width});
    for (std::int64_t i = 0; i < count; ++i) std::copy_n(tile + i * width, columns, c.data + (row + i) * c.stride);
  }
}

}  // namespace shoal::worker::cpu
