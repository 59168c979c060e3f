// LqFactorization, Eigen, Inverse, Determinant. All are computed in double.
#include "worker/ops/factorization.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "shm/base/errors.hpp"
#include "worker/graph/shapes.hpp"
#include "worker/ops/elements.hpp"
#include "worker/ops/matrix_functions.hpp"

namespace shoal::worker {
namespace {

/// One result like src.
Status infer_square(const Node& node, SourceValues src, ResultValues dst) {
  SHOAL_RETURN_IF_ERROR(check_matrices(node, src[0]));
  set_result(dst[0], src[0].dtype, src[0].shape);
  return {};
}

/// src without its last `lost` axes, and with one of `made` behind them, if there is such a size.
Status replace_axes(const Node& node, const TypedValue& src, int lost, std::optional<Dim> made, TypedValue& dst,
                    bool gives_scalars = false) {
  Sizes out(src.shape.begin(), src.shape.end() - lost);
  if (made) out.push_back(*made);
  if (out.empty() && !gives_scalars) out.push_back(1);
  SHOAL_ASSIGN_OR_RETURN(const SymbolicShape shape, make_shape(node, out));
  set_result(dst, src.dtype, shape);
  return {};
}

Status infer_lq(const Node& node, SourceValues src, ResultValues dst) {
  SHOAL_RETURN_IF_ERROR(check_matrices(node, src[0], /*are_square=*/false));
  const int rank = src[0].shape.rank();
  const Dim height = src[0].shape[rank - 2];
  if (known_less(src[0].shape[rank - 1], height)) {
    return invalid_argument("{}: matrices of '{}' ({}) are higher than wide", describe(node), src[0].name,
                            src[0].shape.to_string());
  }
  set_result(dst[0], src[0].dtype, src[0].shape);
  return replace_axes(node, src[0], 1, height, dst[1]);
}

Status infer_eigen(const Node& node, SourceValues src, ResultValues dst) {
  SHOAL_RETURN_IF_ERROR(check_matrices(node, src[0]));
  set_result(dst[0], src[0].dtype, src[0].shape);
  return replace_axes(node, src[0], 2, src[0].shape[src[0].shape.rank() - 1], dst[1]);
}

Status infer_determinant(const Node& node, SourceValues src, ResultValues dst) {
  SHOAL_RETURN_IF_ERROR(check_matrices(node, src[0]));
  const bool gives_scalars = node.attributes.get<DeterminantAttributes>().gives_scalars;
  for (TypedValue& result : dst) SHOAL_RETURN_IF_ERROR(replace_axes(node, src[0], 2, std::nullopt, result, gives_scalars));
  return {};
}

std::int64_t size_of(const TensorView& matrices) { return matrices.shape[matrices.shape.rank() - 1]; }

/// The reflection of row i of `a` from column i on to a multiple of the first unit vector, as LAPACK chooses it: the vector,
/// whose first element is 1, replaces the row. Returns its factor; `diagonal` becomes the multiple.
double reflect(Matrix& a, std::int64_t i, double& diagonal) {
  double squares = 0;
  for (std::int64_t k = i + 1; k < a.columns(); ++k) squares += a(i, k) * a(i, k);
  diagonal = a(i, i);
  double factor = 0;
  if (squares > 0) {
    const double norm = std::sqrt(diagonal * diagonal + squares), reflected = diagonal < 0 ? norm : -norm;
    factor = (reflected - diagonal) / reflected;
    for (std::int64_t k = i + 1; k < a.columns(); ++k) a(i, k) /= diagonal - reflected;
    diagonal = reflected;
  }
  a(i, i) = 1;
  return factor;
}

/// Applies the reflection in row i of `a` to row `row` of `to`.
void apply_reflection(const Matrix& a, std::int64_t i, double factor, Matrix& to, std::int64_t row) {
  double sum = 0;
  for (std::int64_t k = i; k < a.columns(); ++k) sum += to(row, k) * a(i, k);
  for (std::int64_t k = i; k < a.columns(); ++k) to(row, k) -= factor * sum * a(i, k);
}

Status compute_lq(const Node& node, Sources src, Results dst) {
  const std::int64_t width = size_of(src[0]), height = src[0].shape[src[0].shape.rank() - 2];
  return each_matrix(node, src[0], [&]<typename T>(std::int64_t at) {
    Matrix a = Matrix::of(elements<T>(src[0]) + at * height * width, height, width), q(height, width), l(height, height);
    std::vector<double> factors(static_cast<std::size_t>(height));
    for (std::int64_t i = 0; i < height; ++i) {
      for (std::int64_t k = 0; k < i; ++k) l(i, k) = a(i, k);
      factors[static_cast<std::size_t>(i)] = reflect(a, i, l(i, i));
      for (std::int64_t row = i + 1; row < height; ++row) {
        apply_reflection(a, i, factors[static_cast<std::size_t>(i)], a, row);
        l(row, i) = a(row, i);
      }
    }
    for (std::int64_t row = 0; row < height; ++row) {
      q(row, row) = 1;
      for (std::int64_t i = height - 1; i >= 0; --i) apply_reflection(a, i, factors[static_cast<std::size_t>(i)], q, row);
    }
    if (dst[0].data != nullptr) q.store(elements<T>(dst[0]) + at * height * width);
    if (dst[1].data != nullptr) l.store(elements<T>(dst[1]) + at * height * height);
    return Status();
  });
}

/// Jacobi's method: turns pairs of axes until `a` is diagonal. The rows of `vectors` become the eigenvectors.
void diagonalize(Matrix& a, Matrix& vectors) {
  constexpr int kMostRounds = 60;
  const std::int64_t n = a.rows();
  for (std::int64_t i = 0; i < n; ++i) vectors(i, i) = 1;
  for (int round = 0; round < kMostRounds; ++round) {
    double beside = 0, all = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      for (std::int64_t k = 0; k < n; ++k) {
        all += a(i, k) * a(i, k);
        if (i != k) beside += a(i, k) * a(i, k);
      }
    }
    if (!(beside > 1e-30 * all)) return;
    for (std::int64_t p = 0; p < n; ++p) {
      for (std::int64_t q = p + 1; q < n; ++q) {
        if (a(p, q) == 0) continue;
        const double theta = (a(q, q) - a(p, p)) / (2 * a(p, q));
        const double t = (theta < 0 ? -1 : 1) / (std::abs(theta) + std::sqrt(theta * theta + 1));
        const double c = 1 / std::sqrt(t * t + 1), s = t * c;
        const auto turn = [&](double& x, double& y) {
          const double old = x;
          x = c * old - s * y;
          y = s * old + c * y;
        };
        for (std::int64_t k = 0; k < n; ++k) turn(a(k, p), a(k, q));
        for (std::int64_t k = 0; k < n; ++k) {
          turn(a(p, k), a(q, k));
          turn(vectors(p, k), vectors(q, k));
        }
      }
    }
  }
}

/// Turns it so that its largest number is positive, as MXNet does.
void choose_sign(Matrix& vectors, std::int64_t row) {
  std::int64_t largest = 0;
  for (std::int64_t k = 1; k < vectors.columns(); ++k) {
    // Numbers that only rounding tells apart are equal.
    if (std::abs(vectors(row, k)) > std::abs(vectors(row, largest)) * (1 + 1e-12)) largest = k;
  }
  if (vectors(row, largest) >= 0) return;
  for (std::int64_t k = 0; k < vectors.columns(); ++k) vectors(row, k) = -vectors(row, k);
}

Status compute_eigen(const Node& node, Sources src, Results dst) {
  const std::int64_t n = size_of(src[0]);
  return each_matrix(node, src[0], [&]<typename T>(std::int64_t at) {
    Matrix a = Matrix::of(elements<T>(src[0]) + at * n * n, n, n), vectors(n, n), sorted(n, n);
    for (std::int64_t i = 0; i < n; ++i) {
      for (std::int64_t k = i + 1; k < n; ++k) a(i, k) = a(k, i);
    }
    diagonalize(a, vectors);
    std::vector<std::int64_t> order(static_cast<std::size_t>(n));
    std::iota(order.begin(), order.end(), std::int64_t{0});
    const auto less = [](double x, double y) { return std::isnan(y) ? !std::isnan(x) : x < y; };
    std::ranges::stable_sort(order, less, [&](std::int64_t i) { return a(i, i); });
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int64_t from = order[static_cast<std::size_t>(i)];
      for (std::int64_t k = 0; k < n; ++k) sorted(i, k) = vectors(from, k);
      choose_sign(sorted, i);
      if (dst[1].data != nullptr) elements<T>(dst[1])[at * n + i] = static_cast<T>(a(from, from));
    }
    if (dst[0].data != nullptr) sorted.store(elements<T>(dst[0]) + at * n * n);
    return Status();
  });
}

Status compute_inverse(const Node& node, Sources src, Results dst) {
  const std::int64_t n = size_of(src[0]);
  return each_matrix(node, src[0], [&]<typename T>(std::int64_t at) {
    Matrix a = Matrix::of(elements<T>(src[0]) + at * n * n, n, n), inverse(n, n);
    for (std::int64_t i = 0; i < n; ++i) inverse(i, i) = 1;
    if (eliminate(a, inverse) == 0) return invalid_argument("{}: matrix {} is singular", describe(node), at);
    solve_upper_triangle(a, inverse);
    inverse.store(elements<T>(dst[0]) + at * n * n);
    return Status();
  });
}

/// Nothing if nobody reads it.
void fill(TensorView& view, int number) {
  if (view.data == nullptr) return;
  (void)dispatch<Reals>(Node(), view.dtype, [&]<typename T>() {
    std::fill_n(elements<T>(view), view.element_count(), static_cast<T>(number));
    return Status();
  });
}

Status compute_determinant(const Node& node, Sources src, Results dst) {
  const bool as_logarithm = node.attributes.get<DeterminantAttributes>().as_logarithm;
  const std::int64_t n = size_of(src[0]);
  if (n == 0) {  // each is an empty product
    fill(dst[0], 1);
    if (dst.size() > 1) fill(dst[1], 0);
    return {};
  }
  return each_matrix(node, src[0], [&]<typename T>(std::int64_t at) {
    Matrix a = Matrix::of(elements<T>(src[0]) + at * n * n, n, n), nothing(n, 0);
    double sign = eliminate(a, nothing), size = std::abs(sign), logarithm = sign == 0 ? std::log(0.0) : 0;
    for (std::int64_t i = 0; i < n && sign != 0; ++i) {
      if (a(i, i) < 0) sign = -sign;
      size *= std::abs(a(i, i));
      logarithm += std::log(std::abs(a(i, i)));
    }
    if (dst[0].data != nullptr) elements<T>(dst[0])[at] = static_cast<T>(as_logarithm ? sign : sign * size);
    if (dst.size() > 1 && dst[1].data != nullptr) elements<T>(dst[1])[at] = static_cast<T>(logarithm);
    return Status();
  });
}

/// Each matrix has its own results.
bool factored_rows(const BatchedNode& batched) { return batched.rank() > 2 && batched.has_rows_in(0); }

constexpr const char* kFactorizationSource = "MXNet 1.9.1 src/operator/tensor/la_op.cc";

}  // namespace

namespace ops {

const Operator kLqFactorization({
    .name = "LqFactorization",
    .outputs = 2,
    .infer = infer_lq,
    .facts = layer_facts(factored_rows, work_of_factorization, Accuracy::kLost),
    .oracle = compute_lq,
    .formula =
        "a (..., m, n), m at most n: q (..., m, n) with orthonormal rows, and the lower triangle l (..., m, m), l q = a. Signs "
        "as LAPACK chooses them",
    .source = kFactorizationSource,
});

const Operator kEigen({
    .name = "Eigen",
    .outputs = 2,
    .infer = infer_eigen,
    .facts = layer_facts(factored_rows, work_of_factorization, Accuracy::kLost),
    .oracle = compute_eigen,
    .formula = "a (..., n, n), symmetric, of which the lower triangle counts: its eigenvectors as rows (..., n, n), the largest "
               "number of each positive, and its eigenvalues (..., n), the lowest first",
    .source = kFactorizationSource,
});

const Operator kInverse({
    .name = "Inverse",
    .infer = infer_square,
    .facts = layer_facts(factored_rows, work_of_factorization, Accuracy::kLost),
    .oracle = compute_inverse,
    .formula = "a (..., n, n): the inverse of each matrix. A singular one is an error",
    .source = kFactorizationSource,
});

const Operator kDeterminant({
    .name = "Determinant",
    .outputs = {1, 2},
    .attributes = &kSchema<DeterminantAttributes>,
    .infer = infer_determinant,
    .facts = layer_facts(factored_rows, work_of_factorization, Accuracy::kLost),
    .oracle = compute_determinant,
    .formula = "a (..., n, n): the determinant of each matrix (...), or its sign and the logarithm of its absolute value",
    .source = kFactorizationSource,
});

}  // namespace ops

}  // namespace shoal::worker
