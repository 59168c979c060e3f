// What the operators of linalg.hpp compute for one line, matrix or element. The oracle kernels and the kernels of devices share
// it.
#pragma once

#include <cstring>

#include "worker/ops/elements.hpp"
#include "worker/ops/linalg.hpp"

namespace shoal::worker {

inline std::int64_t diagonals_away(std::int64_t offset) { return offset < 0 ? -offset : offset; }

/// One triangle, as its elements count: (i, k) of the square matrix, transposed if the node says so.
template <typename T>
struct Triangle {
  const T* first = nullptr;
  std::int64_t size = 0;
  bool transpose = false, lower = true;

  double at(std::int64_t i, std::int64_t k) const {
    return static_cast<double>(transpose ? first[k * size + i] : first[i * size + k]);
  }
  /// Does (i, k) count?
  bool holds(std::int64_t i, std::int64_t k) const { return lower != transpose ? k <= i : k >= i; }
};

/// One row or column of a matrix.
template <typename T>
struct MatrixLine {
  T* first = nullptr;
  std::int64_t stride = 1;
  T& operator[](std::int64_t i) const { return first[i * stride]; }
};

/// The result with a scale of 0, as BLAS has it: NaN and infinities do not matter.
template <typename T>
void fill_with_zeros(const Triangle<T>& triangle, MatrixLine<T> x) {
  for (std::int64_t i = 0; i < triangle.size; ++i) x[i] = T();
}

/// y = scale * triangle x, which may lie in the same memory: the elements that are still needed are computed last.
template <typename T>
void triangular_product(const Triangle<T>& triangle, double scale, MatrixLine<T> x) {
  if (static_cast<T>(scale) == T()) return fill_with_zeros(triangle, x);
  const bool from_last = triangle.holds(1, 0);
  for (std::int64_t step = 0; step < triangle.size; ++step) {
    const std::int64_t i = from_last ? triangle.size - 1 - step : step;
    double sum = 0;
    for (std::int64_t k = from_last ? 0 : i; k < (from_last ? i + 1 : triangle.size); ++k)
      sum += triangle.at(i, k) * static_cast<double>(x[k]);
    x[i] = static_cast<T>(scale * sum);
  }
}

/// Solves triangle y = scale * x, in place.
template <typename T>
void triangular_solve(const Triangle<T>& triangle, double scale, MatrixLine<T> x) {
  if (static_cast<T>(scale) == T()) return fill_with_zeros(triangle, x);
  const bool from_first = triangle.holds(1, 0);
  for (std::int64_t step = 0; step < triangle.size; ++step) {
    const std::int64_t i = from_first ? step : triangle.size - 1 - step;
    double rest = scale * static_cast<double>(x[i]);
    for (std::int64_t k = from_first ? 0 : i + 1; k < (from_first ? i : triangle.size); ++k)
      rest -= triangle.at(i, k) * static_cast<double>(x[k]);
    x[i] = static_cast<T>(rest / triangle.at(i, i));
  }
}

/// The lines of a TriangularProduct or TriangularSolve: the columns of b, or its rows if the triangle stands on the right.
struct TriangularExtents {
  std::int64_t rows, columns, matrices, lines, size;
  TriangularExtents(const TriangularAttributes& attributes, const Shape& b)
      : rows(b[b.rank() - 2]),
        columns(b[b.rank() - 1]),
        matrices(b.element_count() / (rows * columns)),
        lines(attributes.from_right ? rows : columns),
        size(attributes.from_right ? columns : rows) {}
};
/// The triangle for line i, counted through all matrices. x A = b is A^T x^T = b^T, so on the right it is transposed.
template <typename T>
Triangle<T> triangle_of(const TriangularAttributes& attributes, const TriangularExtents& extents, const T* a, std::int64_t i) {
  return {a + i / extents.lines * extents.size * extents.size, extents.size, attributes.transpose != attributes.from_right,
          attributes.lower};
}
template <typename T>
MatrixLine<T> line_of(const TriangularAttributes& attributes, const TriangularExtents& extents, T* b, std::int64_t i) {
  T* const matrix = b + i / extents.lines * extents.rows * extents.columns;
  const std::int64_t line = i % extents.lines;
  return attributes.from_right ? MatrixLine<T>{matrix + line * extents.columns, 1}
                               : MatrixLine<T>{matrix + line, extents.columns};
}

/// Calls run(in_matrix, in_line) with the places of the elements of a triangle in a matrix of `size`, and in a line. The elements
/// of the upper one stand in the order of the transposed matrix, as in MXNet.
template <typename Run>
void each_place(const TriangleAttributes& triangle, std::int64_t size, Run run) {
  const bool is_upper = triangle.offset > 0 || (triangle.offset == 0 && !triangle.lower);
  const std::int64_t away = diagonals_away(triangle.offset);
  std::int64_t place = 0;
  for (std::int64_t i = 0; i < size - away; ++i) {
    for (std::int64_t k = 0; k <= i; ++k) run(is_upper ? k * size + i + away : (i + away) * size + k, place++);
  }
}

/// Matrices, the last two axes of one shape, and as many lines, the last axis of another.
struct LineExtents {
  std::int64_t size, length, count;
  LineExtents(const Shape& matrices, const Shape& lines)
      : size(matrices[matrices.rank() - 1]),
        length(lines[lines.rank() - 1]),
        count(size == 0 ? 0 : matrices.element_count() / (size * size)) {}
};
/// Copies the places of one matrix into its line, or a line into its matrix, which is 0 elsewhere.
template <typename Word>
void copy_line(const TriangleAttributes& attributes, const LineExtents& extents, bool to_lines, const Word* src, Word* dst,
               std::int64_t i) {
  const std::int64_t matrix = i * extents.size * extents.size, line = i * extents.length;
  if (!to_lines) std::memset(dst + matrix, 0, static_cast<std::size_t>(extents.size * extents.size) * sizeof(Word));
  each_place(attributes, extents.size, [&](std::int64_t in_matrix, std::int64_t in_line) {
    if (to_lines)
      dst[line + in_line] = src[matrix + in_matrix];
    else
      dst[matrix + in_matrix] = src[line + in_line];
  });
}

}  // namespace shoal::worker
