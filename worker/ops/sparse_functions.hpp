// The loops of sparse tensors, as oracle kernels and kernels run them. Numbers of rows and columns lie in memory that may hold
// anything: each is loaded once, and what lies outside counts as not stored.
#pragma once

#include <algorithm>
#include <cstring>

#include "worker/ops/elements.hpp"
#include "worker/ops/sparse.hpp"

namespace shoal::worker {

/// The elements of a row of a csr matrix with `stored` elements.
struct RowRange {
  std::int64_t begin = 0, end = 0;
};
inline RowRange row_range(const std::int64_t* indptr, std::int64_t row, std::int64_t stored) {
  const std::int64_t begin = std::clamp<std::int64_t>(load_once(indptr + row), 0, stored);
  return {begin, std::clamp<std::int64_t>(load_once(indptr + row + 1), begin, stored)};
}

/// Where the rows of a tensor lie: row i at i, or, if only some are stored, at the place of i in `rows`.
struct StoredRows {
  const std::int64_t* rows = nullptr;  ///< ascending; null: all `count` rows are stored
  std::int64_t stored = 0, count = 0;

  /// -1: the row is not stored, or there is none of that number.
  std::int64_t find(std::int64_t row) const {
    if (row < 0 || row >= count) return -1;
    if (rows == nullptr) return row;
    std::int64_t low = 0, high = stored;
    while (low < high) {
      const std::int64_t middle = low + (high - low) / 2;
      if (load_once(rows + middle) < row)
        low = middle + 1;
      else
        high = middle;
    }
    return low < stored && load_once(rows + low) == row ? low : -1;
  }
};

/// Of the b of a SparseDot, with its rows if there are some. The addresses may come later.
StoredRows stored_rows(const SparseDotAttributes& product, const Shape& indptr, Sources b);

template <typename T>
struct CsrMatrix {
  const T* values = nullptr;
  const std::int64_t *indptr = nullptr, *indices = nullptr;
  std::int64_t rows = 0, columns = 0, stored = 0;
};

/// Columns of a result that are summed at a time.
inline constexpr std::int64_t kSparseBlock = 64;

/// Rows `first` to `last` - 1 of dst (rows, width) = csr * b (columns, width). Each sum runs over the stored elements in order.
template <typename T>
void multiply_csr_rows(const CsrMatrix<T>& csr, const T* b, const StoredRows& rows_of_b, std::int64_t width, std::int64_t first,
                       std::int64_t last, T* dst) {
  using C = Compute<T>;
  for (std::int64_t row = first; row < last; ++row) {
    const RowRange range = row_range(csr.indptr, row, csr.stored);
    for (std::int64_t begin = 0; begin < width; begin += kSparseBlock) {
      const std::int64_t count = std::min(kSparseBlock, width - begin);
      C sums[kSparseBlock] = {};
      for (std::int64_t i = range.begin; i < range.end; ++i) {
        const std::int64_t place = rows_of_b.find(load_once(csr.indices + i));
        if (place < 0) continue;
        const C value = static_cast<C>(csr.values[i]);
        const T* const from = b + place * width + begin;
        for (std::int64_t j = 0; j < count; ++j) sums[j] += value * static_cast<C>(from[j]);
      }
      for (std::int64_t j = 0; j < count; ++j) dst[row * width + begin + j] = to_element<T>(sums[j]);
    }
  }
}

/// Columns `begin` to `end` - 1 of sums (columns, width) = csr^T * b (rows, width).
template <typename T>
void multiply_csr_transposed(const CsrMatrix<T>& csr, const T* b, const StoredRows& rows_of_b, std::int64_t width,
                             std::int64_t begin, std::int64_t end, Compute<T>* sums) {
  using C = Compute<T>;
  for (std::int64_t column = 0; column < csr.columns; ++column) std::fill_n(sums + column * width + begin, end - begin, C{});
  for (std::int64_t row = 0; row < csr.rows; ++row) {
    const std::int64_t place = rows_of_b.find(row);
    if (place < 0) continue;
    const RowRange range = row_range(csr.indptr, row, csr.stored);
    for (std::int64_t i = range.begin; i < range.end; ++i) {
      const std::int64_t column = load_once(csr.indices + i);
      if (column < 0 || column >= csr.columns) continue;
      const C value = static_cast<C>(csr.values[i]);
      C* const to = sums + column * width;
      for (std::int64_t j = begin; j < end; ++j) to[j] += value * static_cast<C>(b[place * width + j]);
    }
  }
}

/// Rows `first` to `last` - 1 of sums = a (.., rows) * csr, or a (.., columns) * csr^T.
template <typename T>
void multiply_by_csr(const T* a, const CsrMatrix<T>& csr, bool transpose, std::int64_t first, std::int64_t last,
                     Compute<T>* sums) {
  using C = Compute<T>;
  const std::int64_t depth = transpose ? csr.columns : csr.rows, width = transpose ? csr.rows : csr.columns;
  for (std::int64_t line = first; line < last; ++line) {
    const T* const from = a + line * depth;
    C* const to = sums + line * width;
    if (!transpose) std::fill_n(to, width, C{});
    for (std::int64_t row = 0; row < csr.rows; ++row) {
      const RowRange range = row_range(csr.indptr, row, csr.stored);
      C sum{};
      for (std::int64_t i = range.begin; i < range.end; ++i) {
        const std::int64_t column = load_once(csr.indices + i);
        if (column < 0 || column >= csr.columns) continue;
        const C value = static_cast<C>(csr.values[i]);
        if (transpose)
          sum += static_cast<C>(from[column]) * value;
        else
          to[column] += static_cast<C>(from[row]) * value;
      }
      if (transpose) to[row] = sum;
    }
  }
}

/// Rows `first` to `last` - 1 of a csr matrix, dense. Of two elements at one place the last stays.
template <typename Word>
void expand_csr(const CsrMatrix<Word>& csr, std::int64_t first, std::int64_t last, Word* dst) {
  std::fill_n(dst + first * csr.columns, (last - first) * csr.columns, Word{});
  for (std::int64_t row = first; row < last; ++row) {
    const RowRange range = row_range(csr.indptr, row, csr.stored);
    for (std::int64_t i = range.begin; i < range.end; ++i) {
      const std::int64_t column = load_once(csr.indices + i);
      if (column >= 0 && column < csr.columns) dst[row * csr.columns + column] = csr.values[i];
    }
  }
}

/// Copies row `place` of `src`, or writes zeros if it is -1. `bytes`: of a row.
inline void copy_stored_row(const std::byte* src, std::int64_t place, std::size_t bytes, std::byte* dst) {
  if (place < 0)
    std::memset(dst, 0, bytes);
  else
    std::memcpy(dst, src + static_cast<std::size_t>(place) * bytes, bytes);
}

}  // namespace shoal::worker
