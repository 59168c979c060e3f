// Sums of products, as the oracle kernels of all products compute them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "worker/ops/elements.hpp"

namespace shoal::worker {

/// A matrix in memory: its element (i, k) is first[i * row + k * column].
template <typename T>
struct MatrixView {
  const T* first = nullptr;
  std::int64_t row = 0, column = 0;
};

/// The sum of a[i] * b[i] in interleaved partial sums, which the compiler keeps in vector registers.
template <typename Sum, typename T>
Sum dot_product(const T* a, const T* b, std::int64_t count) {
  constexpr std::int64_t kLanes = 16;
  Sum partial[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane)
      partial[lane] += static_cast<Sum>(a[i + lane]) * static_cast<Sum>(b[i + lane]);
  }
  Sum sum = 0;
  for (; i < count; ++i) sum += static_cast<Sum>(a[i]) * static_cast<Sum>(b[i]);
  for (const Sum part : partial) sum += part;
  return sum;
}

/// Sums of integers wrap.
template <typename T>
using ProductSum = std::conditional_t<std::is_integral_v<Compute<T>>, std::uint64_t, Compute<T>>;

/// dst[i * dst_row + j] = scale * sum of a(i, k) b(k, j) over k < depth, for i < rows and j < columns.
template <typename T>
void multiply(std::int64_t rows, std::int64_t depth, std::int64_t columns, Compute<T> scale, const MatrixView<T>& a,
              const MatrixView<T>& b, T* dst, std::int64_t dst_row) {
  using Sum = ProductSum<T>;
  const auto store = [factor = static_cast<Sum>(scale)](T& to, Sum sum) {
    to = to_element<T>(static_cast<Compute<T>>(factor * sum));
  };
  constexpr std::int64_t kWidest = 256;  // columns that are computed together
  for (std::int64_t i = 0; i < rows; ++i, dst += dst_row) {
    const T* const left = a.first + i * a.row;
    if (a.column == 1 && b.row == 1) {
      for (std::int64_t j = 0; j < columns; ++j) store(dst[j], dot_product<Sum>(left, b.first + j * b.column, depth));
      continue;
    }
    for (std::int64_t first = 0; first < columns; first += kWidest) {
      const std::int64_t width = std::min(kWidest, columns - first);
      Sum sums[kWidest] = {};
      for (std::int64_t k = 0; k < depth; ++k) {
        const Sum x = static_cast<Sum>(left[k * a.column]);
        const T* const right = b.first + k * b.row + first * b.column;
        if (b.column == 1) {
          for (std::int64_t j = 0; j < width; ++j) sums[j] += x * static_cast<Sum>(right[j]);
        } else {
          for (std::int64_t j = 0; j < width; ++j) sums[j] += x * static_cast<Sum>(right[j * b.column]);
        }
      }
      for (std::int64_t j = 0; j < width; ++j) store(dst[first + j], sums[j]);
    }
  }
}

/// One matrix of a KhatriRao.
template <typename T>
struct KhatriRaoFactor {
  const T* first = nullptr;
  std::int64_t rows = 0;
};
/// One row of a KhatriRao: the products of a row of each matrix. The rows of the last matrix change fastest.
template <typename T>
void khatri_rao_row(std::span<const KhatriRaoFactor<T>> factors, std::int64_t columns, std::int64_t row, T* dst) {
  for (std::int64_t column = 0; column < columns; ++column) {
    Compute<T> product = 1;
    std::int64_t rest = row;
    for (std::size_t i = factors.size(); i-- > 0; rest /= factors[i].rows)
      product *= static_cast<Compute<T>>(factors[i].first[rest % factors[i].rows * columns + column]);
    dst[column] = to_element<T>(product);
  }
}

}  // namespace shoal::worker
