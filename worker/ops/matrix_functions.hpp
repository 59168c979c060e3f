// Matrices in double, for the operators that take them apart or solve equations.
#pragma once

#include <cmath>
#include <utility>
#include <vector>

#include "shm/base/errors.hpp"
#include "worker/graph/shapes.hpp"
#include "worker/ops/elements.hpp"

namespace shoal::worker {

using Reals = Types<float, double>;

/// Matrices (..., n, n), or of any height and width.
inline Status check_matrices(const Node& node, const TypedValue& src, bool are_square = true) {
  if (!TypeSet(Reals()).holds(src.dtype))
    return invalid_argument("{}: '{}' is {}; float32 or float64 is needed", describe(node), src.name, dtype_name(src.dtype));
  SHOAL_RETURN_IF_ERROR(check_rank(node, src, 2));
  const int rank = src.shape.rank();
  if (!are_square || !known_unequal(src.shape[rank - 2], src.shape[rank - 1])) return {};
  return invalid_argument("{}: '{}' of shape {} holds no square matrices", describe(node), src.name, src.shape.to_string());
}

/// A matrix in memory of its own.
class Matrix {
 public:
  Matrix(std::int64_t rows, std::int64_t columns)
      : rows_(rows), columns_(columns), elements_(static_cast<std::size_t>(rows * columns)) {}
  template <typename T>
  static Matrix of(const T* first, std::int64_t rows, std::int64_t columns) {
    Matrix made(rows, columns);
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t k = 0; k < columns; ++k) made(i, k) = static_cast<double>(first[i * columns + k]);
    }
    return made;
  }
  template <typename T>
  void store(T* to) const {
    for (std::int64_t i = 0; i < rows_; ++i) {
      for (std::int64_t k = 0; k < columns_; ++k) to[i * columns_ + k] = static_cast<T>((*this)(i, k));
    }
  }
  std::int64_t rows() const { return rows_; }
  std::int64_t columns() const { return columns_; }
  double& operator()(std::int64_t i, std::int64_t k) { return elements_[static_cast<std::size_t>(i * columns_ + k)]; }
  double operator()(std::int64_t i, std::int64_t k) const { return elements_[static_cast<std::size_t>(i * columns_ + k)]; }

 private:
  std::int64_t rows_, columns_;
  std::vector<double> elements_;
};

/// Calls run.operator()<T>(i) for each matrix of src; an error ends it.
template <typename Run>
Status each_matrix(const Node& node, const TensorView& src, const Run& run) {
  const Shape& shape = src.shape;
  const std::int64_t size = shape[shape.rank() - 2] * shape[shape.rank() - 1];
  return dispatch<Reals>(node, src.dtype, [&]<typename T>() {
    for (std::int64_t i = 0, count = size == 0 ? 0 : shape.element_count() / size; i < count; ++i)
      SHOAL_RETURN_IF_ERROR(run.template operator()<T>(i));
    return Status();
  });
}

/// Gauss' method with the largest pivots: `a` becomes an upper triangle, and the same steps are done with the rows of `with`.
/// Returns the sign of the order of the rows; 0 if the matrix is singular.
inline int eliminate(Matrix& a, Matrix& with) {
  int sign = 1;
  for (std::int64_t k = 0; k < a.rows(); ++k) {
    std::int64_t pivot = k;
    for (std::int64_t i = k + 1; i < a.rows(); ++i) {
      if (std::abs(a(i, k)) > std::abs(a(pivot, k))) pivot = i;
    }
    if (a(pivot, k) == 0) return 0;
    const auto step = [&](Matrix& m, std::int64_t i, double factor) {
      for (std::int64_t j = 0; j < m.columns(); ++j) m(i, j) -= factor * m(k, j);
    };
    if (pivot != k) {
      for (std::int64_t j = 0; j < a.columns(); ++j) std::swap(a(k, j), a(pivot, j));
      for (std::int64_t j = 0; j < with.columns(); ++j) std::swap(with(k, j), with(pivot, j));
      sign = -sign;
    }
    for (std::int64_t i = k + 1; i < a.rows(); ++i) {
      const double factor = a(i, k) / a(k, k);
      step(a, i, factor);
      step(with, i, factor);
    }
  }
  return sign;
}

/// The x with a x = with, for an upper triangle without zeros in its diagonal; `with` becomes x.
inline void solve_upper_triangle(const Matrix& a, Matrix& with) {
  for (std::int64_t i = a.rows() - 1; i >= 0; --i) {
    for (std::int64_t k = 0; k < with.columns(); ++k) {
      double rest = with(i, k);
      for (std::int64_t j = i + 1; j < a.rows(); ++j) rest -= a(i, j) * with(j, k);
      with(i, k) = rest / a(i, i);
    }
  }
}

}  // namespace shoal::worker
