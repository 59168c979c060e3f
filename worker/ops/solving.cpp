// Cholesky, Solve, TensorInverse, TensorSolve, SingularValues, PseudoInverse. All are computed in double.
#include "worker/ops/solving.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "worker/ops/matrix_functions.hpp"

namespace shoal::worker {
namespace {

Status infer_cholesky(const Node& node, SourceValues src, ResultValues dst) {
  SHOAL_RETURN_IF_ERROR(check_matrices(node, src[0]));
  set_result(dst[0], src[0].dtype, src[0].shape);
  return {};
}

/// b holds vectors if it has one axis less than a.
Status infer_solve(const Node& node, SourceValues src, ResultValues dst) {
  const TypedValue &a = src[0], &b = src[1];
  SHOAL_RETURN_IF_ERROR(check_matrices(node, a));
  SHOAL_RETURN_IF_ERROR(check_same_dtype(node, src));
  const int rank = a.shape.rank();
  SHOAL_RETURN_IF_ERROR(check_rank(node, b, rank - 1, rank));
  for (int axis = 0; axis < rank - 1; ++axis) {
    if (!known_unequal(a.shape[axis], b.shape[axis])) continue;
    return invalid_argument("{}: '{}' of shape {} are no right sides for '{}' of shape {}", describe(node), b.name,
                            b.shape.to_string(), a.name, a.shape.to_string());
  }
  set_result(dst[0], a.dtype, b.shape);
  return {};
}

Dim product_of(const SymbolicShape& shape, int first, int last) {
  Dim product = 1;
  for (int axis = first; axis < last; ++axis) product *= shape[axis];
  return product;
}

Status check_square_tensor(const Node& node, const TypedValue& a, Dim rows, Dim columns) {
  if (!TypeSet(Reals()).holds(a.dtype))
    return invalid_argument("{}: '{}' is {}; float32 or float64 is needed", describe(node), a.name, dtype_name(a.dtype));
  if (!known_unequal(rows, columns)) return {};
  return invalid_argument("{}: '{}' of shape {} is no square matrix of {} and {} elements", describe(node), a.name,
                          a.shape.to_string(), rows.to_string(), columns.to_string());
}

Status infer_tensor_inverse(const Node& node, SourceValues src, ResultValues dst) {
  const TypedValue& a = src[0];
  const std::int64_t split = node.attributes.get<TensorInverseAttributes>().split;
  const int rank = a.shape.rank();
  if (split < 1 || split >= rank)
    return invalid_argument("{}: '{}' of shape {} is not split before axis {}", describe(node), a.name, a.shape.to_string(),
                            split);
  const auto at = static_cast<int>(split);
  SHOAL_RETURN_IF_ERROR(check_square_tensor(node, a, product_of(a.shape, 0, at), product_of(a.shape, at, rank)));
  Sizes sizes(a.shape.begin() + at, a.shape.end());
  sizes.insert(sizes.end(), a.shape.begin(), a.shape.begin() + at);
  set_result(dst[0], a.dtype, SymbolicShape(sizes));
  return {};
}

/// The axes of a in the order in which the equations are read.
Result<std::vector<int>> equation_axes(const Node& node, const SymbolicShape& a) {
  std::vector<bool> moves(static_cast<std::size_t>(a.rank()));
  std::vector<int> last, order;
  for (const std::int64_t given : node.attributes.get<TensorSolveAttributes>().axes) {
    SHOAL_ASSIGN_OR_RETURN(const int axis, normalize_axis(node, given, a));
    if (moves[static_cast<std::size_t>(axis)]) return invalid_argument("{}: axis {} moves twice", describe(node), given);
    moves[static_cast<std::size_t>(axis)] = true;
    last.push_back(axis);
  }
  for (int axis = 0; axis < a.rank(); ++axis) {
    if (!moves[static_cast<std::size_t>(axis)]) order.push_back(axis);
  }
  order.insert(order.end(), last.begin(), last.end());
  return order;
}

Status infer_tensor_solve(const Node& node, SourceValues src, ResultValues dst) {
  const TypedValue &a = src[0], &b = src[1];
  SHOAL_RETURN_IF_ERROR(check_same_dtype(node, src));
  SHOAL_ASSIGN_OR_RETURN(const std::vector<int> order, equation_axes(node, a.shape));
  const int rank_b = b.shape.rank();
  if (rank_b > a.shape.rank()) SHOAL_RETURN_IF_ERROR(check_rank(node, b, 0, a.shape.rank()));
  Sizes unknowns;
  Dim columns = 1;
  for (std::size_t i = static_cast<std::size_t>(rank_b); i < order.size(); ++i) {
    unknowns.push_back(a.shape[order[i]]);
    columns *= unknowns.back();
  }
  SHOAL_RETURN_IF_ERROR(check_square_tensor(node, a, product_of(b.shape, 0, rank_b), columns));
  if (known_unequal(a.shape.element_count(), columns * columns))
    return invalid_argument("{}: '{}' of shape {} holds no equations for '{}' of shape {}", describe(node), a.name,
                            a.shape.to_string(), b.name, b.shape.to_string());
  set_result(dst[0], a.dtype, SymbolicShape(unknowns));
  return {};
}

/// The axes of src but the last two, and others behind them.
SymbolicShape with_axes(const SymbolicShape& src, std::initializer_list<Dim> last) {
  Sizes sizes(src.begin(), src.end() - 2);
  sizes.insert(sizes.end(), last);
  return SymbolicShape(sizes);
}

Status infer_singular_values(const Node& node, SourceValues src, ResultValues dst) {
  const TypedValue& a = src[0];
  SHOAL_RETURN_IF_ERROR(check_matrices(node, a, /*are_square=*/false));
  const Dim rows = a.shape[a.shape.rank() - 2], columns = a.shape[a.shape.rank() - 1];
  if (known_less(columns, rows))
    return invalid_argument("{}: matrices of '{}' ({}) are higher than wide", describe(node), a.name, a.shape.to_string());
  set_result(dst[0], a.dtype, with_axes(a.shape, {rows, rows}));
  set_result(dst[1], a.dtype, with_axes(a.shape, {rows}));
  set_result(dst[2], a.dtype, a.shape);
  return {};
}

Status infer_pseudo_inverse(const Node& node, SourceValues src, ResultValues dst) {
  const TypedValue& a = src[0];
  SHOAL_RETURN_IF_ERROR(check_matrices(node, a, /*are_square=*/false));
  const int rank = a.shape.rank();
  if (src.size() > 1) {
    SHOAL_RETURN_IF_ERROR(check_same_dtype(node, src));
    SHOAL_RETURN_IF_ERROR(check_rank(node, src[1], 0, rank - 2));
    for (int axis = 0; axis < src[1].shape.rank(); ++axis) {
      if (known_unequal(src[1].shape[axis], a.shape[rank - 2 - src[1].shape.rank() + axis]))
        return invalid_argument("{}: '{}' of shape {} is not one number for each matrix of '{}' ({})", describe(node),
                                src[1].name, src[1].shape.to_string(), a.name, a.shape.to_string());
    }
  }
  set_result(dst[0], a.dtype, with_axes(a.shape, {a.shape[rank - 1], a.shape[rank - 2]}));
  return {};
}

Status compute_cholesky(const Node& node, Sources src, Results dst) {
  const std::int64_t n = src[0].shape[src[0].shape.rank() - 1];
  return each_matrix(node, src[0], [&]<typename T>(std::int64_t at) {
    const Matrix a = Matrix::of(elements<T>(src[0]) + at * n * n, n, n);
    Matrix lower(n, n);
    for (std::int64_t i = 0; i < n; ++i) {
      for (std::int64_t k = 0; k <= i; ++k) {
        double rest = a(i, k);
        for (std::int64_t j = 0; j < k; ++j) rest -= lower(i, j) * lower(k, j);
        if (i == k && !(rest > 0)) return invalid_argument("{}: matrix {} is not positive definite", describe(node), at);
        lower(i, k) = i == k ? std::sqrt(rest) : rest / lower(k, k);
      }
    }
    lower.store(elements<T>(dst[0]) + at * n * n);
    return Status();
  });
}

/// Solves a x = x.
Status solve(const Node& node, Matrix a, Matrix& x, std::int64_t at) {
  if (eliminate(a, x) == 0) return invalid_argument("{}: matrix {} is singular", describe(node), at);
  solve_upper_triangle(a, x);
  return {};
}

Status compute_solve(const Node& node, Sources src, Results dst) {
  const int rank = src[0].shape.rank();
  const std::int64_t n = src[0].shape[rank - 1], columns = src[1].shape.rank() < rank ? 1 : src[1].shape[rank - 1];
  return each_matrix(node, src[0], [&]<typename T>(std::int64_t at) {
    Matrix x = Matrix::of(elements<T>(src[1]) + at * n * columns, n, columns);
    SHOAL_RETURN_IF_ERROR(solve(node, Matrix::of(elements<T>(src[0]) + at * n * n, n, n), x, at));
    x.store(elements<T>(dst[0]) + at * n * columns);
    return Status();
  });
}

Status compute_tensor_inverse(const Node& node, Sources src, Results dst) {
  std::int64_t n = 1;
  for (std::int64_t axis = 0; axis < node.attributes.get<TensorInverseAttributes>().split; ++axis)
    n *= src[0].shape[static_cast<int>(axis)];
  return dispatch<Reals>(node, src[0].dtype, [&]<typename T>() {
    Matrix x(n, n);
    for (std::int64_t i = 0; i < n; ++i) x(i, i) = 1;
    SHOAL_RETURN_IF_ERROR(solve(node, Matrix::of(elements<T>(src[0]), n, n), x, 0));
    x.store(elements<T>(dst[0]));
    return Status();
  });
}

Status compute_tensor_solve(const Node& node, Sources src, Results dst) {
  SHOAL_ASSIGN_OR_RETURN(const std::vector<int> order, equation_axes(node, src[0].shape));
  const Strides own = row_major(src[0].shape);
  Strides strides{};
  Dims sizes;
  for (std::size_t i = 0; i < order.size(); ++i) {
    strides[i] = own[static_cast<std::size_t>(order[i])];
    sizes.push_back(src[0].shape[order[i]]);
  }
  const Shape shape(sizes);
  const std::int64_t n = dst[0].element_count(), length = row_length(shape), stride = row_stride(shape, strides);
  return dispatch<Reals>(node, src[0].dtype, [&]<typename T>() {
    Matrix a(n, n), x = Matrix::of(elements<T>(src[1]), n, 1);
    std::int64_t place = 0;
    each_row(shape, strides, [&](std::int64_t offset) {
      for (std::int64_t i = 0; i < length; ++i, ++place)
        a(place / n, place % n) = static_cast<double>(elements<T>(src[0])[offset + i * stride]);
    });
    SHOAL_RETURN_IF_ERROR(solve(node, a, x, 0));
    x.store(elements<T>(dst[0]));
    return Status();
  });
}

/// a = u diag(values) v, for a matrix that is not higher than wide; u is square, and the rows of v are orthonormal.
struct SingularValues {
  Matrix u, v;
  std::vector<double> values;  ///< the largest first
};

/// Makes a row of length 1 that is orthogonal to those before it, of the axis that lies the farthest from them.
void complete_row(Matrix& v, std::int64_t row) {
  const std::int64_t n = v.columns();
  std::int64_t farthest = 0;
  double least = 2;
  for (std::int64_t axis = 0; axis < n; ++axis) {
    double within = 0;  // the square of what the rows have of the axis
    for (std::int64_t i = 0; i < row; ++i) within += v(i, axis) * v(i, axis);
    if (!(within < least)) continue;
    least = within;
    farthest = axis;
  }
  v(row, farthest) = 1;
  for (int again = 0; again < 2; ++again) {  // the second time takes away what rounding has left
    for (std::int64_t i = 0; i < row; ++i) {
      double along = 0;
      for (std::int64_t j = 0; j < n; ++j) along += v(row, j) * v(i, j);
      for (std::int64_t j = 0; j < n; ++j) v(row, j) -= along * v(i, j);
    }
  }
  double square = 0;
  for (std::int64_t j = 0; j < n; ++j) square += v(row, j) * v(row, j);
  for (std::int64_t j = 0; j < n; ++j) v(row, j) /= std::sqrt(square);
}

/// Jacobi's method: turns pairs of rows of `a` until all are orthogonal.
SingularValues singular_values(Matrix a) {
  constexpr int kMostRounds = 60;
  constexpr double kNothing = 1e-14;  // of the largest value: such a row is made of rounding
  const std::int64_t m = a.rows(), n = a.columns();
  double scale = 0;  // the largest number, so that squares neither vanish nor are infinite
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < n; ++j) scale = std::max(scale, std::abs(a(i, j)));
  }
  if (!(scale > 0 && std::isfinite(scale))) scale = 1;
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < n; ++j) a(i, j) /= scale;
  }
  Matrix turns(m, m);
  for (std::int64_t i = 0; i < m; ++i) turns(i, i) = 1;
  const auto product = [&](std::int64_t i, std::int64_t k) {
    double sum = 0;
    for (std::int64_t j = 0; j < n; ++j) sum += a(i, j) * a(k, j);
    return sum;
  };
  bool turned = true;
  for (int round = 0; turned && round < kMostRounds; ++round) {
    turned = false;
    for (std::int64_t p = 0; p < m; ++p) {
      for (std::int64_t q = p + 1; q < m; ++q) {
        const double alpha = product(p, p), beta = product(q, q), gamma = product(p, q);
        if (!(std::abs(gamma) > 1e-15 * std::sqrt(alpha * beta))) continue;
        turned = true;
        const double zeta = (beta - alpha) / (2 * gamma);
        const double t = (zeta < 0 ? -1 : 1) / (std::abs(zeta) + std::sqrt(1 + zeta * zeta));
        const double c = 1 / std::sqrt(1 + t * t), s = c * t;
        const auto turn = [&](Matrix& matrix) {
          for (std::int64_t j = 0; j < matrix.columns(); ++j) {
            const double x = matrix(p, j), y = matrix(q, j);
            matrix(p, j) = c * x - s * y;
            matrix(q, j) = s * x + c * y;
          }
        };
        turn(a);
        turn(turns);
      }
    }
  }
  std::vector<double> lengths(static_cast<std::size_t>(m));
  for (std::int64_t i = 0; i < m; ++i) lengths[static_cast<std::size_t>(i)] = std::sqrt(product(i, i));
  std::vector<std::int64_t> order(static_cast<std::size_t>(m));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  const auto is_longer = [](double x, double y) { return std::isnan(y) ? !std::isnan(x) : x > y; };
  std::ranges::stable_sort(order, is_longer, [&](std::int64_t i) { return lengths[static_cast<std::size_t>(i)]; });
  SingularValues found{Matrix(m, m), Matrix(m, n), {}};
  for (std::int64_t i = 0; i < m; ++i) {
    const std::int64_t row = order[static_cast<std::size_t>(i)];
    const double length = lengths[static_cast<std::size_t>(row)];
    std::int64_t largest = 0;  // MXNet makes the largest number of each row of v positive
    for (std::int64_t j = 1; j < n; ++j) {
      if (std::abs(a(row, j)) > std::abs(a(row, largest)) * (1 + 1e-12)) largest = j;
    }
    const double sign = n > 0 && a(row, largest) < 0 ? -1 : 1;
    if (length <= kNothing * lengths[static_cast<std::size_t>(order[0])]) {
      complete_row(found.v, i);
    } else {
      for (std::int64_t j = 0; j < n; ++j) found.v(i, j) = sign * a(row, j) / length;
    }
    for (std::int64_t j = 0; j < m; ++j) found.u(j, i) = sign * turns(row, j);
    found.values.push_back(length * scale);
  }
  return found;
}

Status compute_singular_values(const Node& node, Sources src, Results dst) {
  const std::int64_t m = src[0].shape[src[0].shape.rank() - 2], n = src[0].shape[src[0].shape.rank() - 1];
  return each_matrix(node, src[0], [&]<typename T>(std::int64_t at) {
    const SingularValues found = singular_values(Matrix::of(elements<T>(src[0]) + at * m * n, m, n));
    if (dst[0].data != nullptr) found.u.store(elements<T>(dst[0]) + at * m * m);
    for (std::int64_t i = 0; dst[1].data != nullptr && i < m; ++i)
      elements<T>(dst[1])[at * m + i] = static_cast<T>(found.values[static_cast<std::size_t>(i)]);
    if (dst[2].data != nullptr) found.v.store(elements<T>(dst[2]) + at * m * n);
    return Status();
  });
}

Status compute_pseudo_inverse(const Node& node, Sources src, Results dst) {
  const std::int64_t m = src[0].shape[src[0].shape.rank() - 2], n = src[0].shape[src[0].shape.rank() - 1];
  return each_matrix(node, src[0], [&]<typename T>(std::int64_t at) {
    const T* const first = elements<T>(src[0]) + at * m * n;
    const bool is_high = m > n;  // then the transposed matrix is taken apart, and its inverse is transposed
    Matrix a(std::min(m, n), std::max(m, n));
    for (std::int64_t i = 0; i < a.rows(); ++i) {
      for (std::int64_t k = 0; k < a.columns(); ++k) a(i, k) = static_cast<double>(is_high ? first[k * n + i] : first[i * n + k]);
    }
    const SingularValues found = singular_values(a);
    const double cutoff = src.size() > 1 ? static_cast<double>(elements<T>(src[1])[at % src[1].element_count()])
                                         : node.attributes.get<PseudoInverseAttributes>().cutoff;
    const double least = found.values.empty() ? 0 : cutoff * found.values[0];
    Matrix inverse(n, m);
    for (std::int64_t i = 0; i < a.rows(); ++i) {
      const double value = found.values[static_cast<std::size_t>(i)];
      if (!(value > least)) continue;
      for (std::int64_t row = 0; row < n; ++row) {
        for (std::int64_t column = 0; column < m; ++column) {
          inverse(row, column) +=
              is_high ? found.u(row, i) * found.v(i, column) / value : found.v(i, row) * found.u(column, i) / value;
        }
      }
    }
    inverse.store(elements<T>(dst[0]) + at * m * n);
    return Status();
  });
}

/// Each matrix has its own results.
bool solved_rows(const BatchedNode& batched) { return batched.rank() > 2 && batched.only_first_has_rows(); }
bool solve_rows(const BatchedNode& batched) { return batched.rank() > 2 && batched.has_rows_in(0) && batched.has_rows_in(1); }

}  // namespace

namespace ops {

const Operator kCholesky({
    .name = "Cholesky",
    .infer = infer_cholesky,
    .facts = layer_facts(solved_rows, work_of_factorization, Accuracy::kLost),
    .oracle = compute_cholesky,
    .formula =
        "a (..., n, n), symmetric, of which the lower triangle counts: the lower triangle l with l l^T = a. A matrix that is "
        "not positive definite is an error",
    .source = "MXNet 1.9.1 src/operator/numpy/linalg/np_potrf.cc",
});

const Operator kSolve({
    .name = "Solve",
    .inputs = 2,
    .infer = infer_solve,
    .constant_types = ConstantTypes::kAsData,
    .facts = layer_facts(solve_rows, work_of_factorization, Accuracy::kLost),
    .oracle = compute_solve,
    .formula = "a (..., n, n), b (..., n, m) or (..., n): the x with a x = b. A singular matrix is an error",
    .source = "MXNet 1.9.1 src/operator/numpy/linalg/np_solve-inl.h",
});

const Operator kTensorInverse({
    .name = "TensorInverse",
    .attributes = &kSchema<TensorInverseAttributes>,
    .infer = infer_tensor_inverse,
    .facts = layer_facts(rows_mixed, work_of_factorization, Accuracy::kLost),
    .oracle = compute_tensor_inverse,
    .formula = "a, read as a matrix whose rows are its first axes: the inverse, with these axes behind the others",
    .source = "MXNet 1.9.1 src/operator/numpy/linalg/np_tensorinv-inl.h",
});

const Operator kTensorSolve({
    .name = "TensorSolve",
    .inputs = 2,
    .attributes = &kSchema<TensorSolveAttributes>,
    .infer = infer_tensor_solve,
    .constant_types = ConstantTypes::kAsData,
    .facts = layer_facts(rows_mixed, work_of_factorization, Accuracy::kLost),
    .oracle = compute_tensor_solve,
    .formula = "a (b's axes, then those of x), b: the x for which the sum of a x over the axes of x is b",
    .source = "MXNet 1.9.1 src/operator/numpy/linalg/np_tensorsolve-inl.h",
});

const Operator kSingularValues({
    .name = "SingularValues",
    .outputs = 3,
    .infer = infer_singular_values,
    .facts = layer_facts(solved_rows, work_of_factorization, Accuracy::kLost),
    .oracle = compute_singular_values,
    .formula =
        "a (..., m, n), m at most n: u (..., m, m), the singular values (..., m), the largest first, and v (..., m, n), for "
        "a = u diag(values) v. The largest number of each row of v is positive",
    .source = "MXNet 1.9.1 src/operator/numpy/linalg/np_gesvd-inl.h",
});

const Operator kPseudoInverse({
    .name = "PseudoInverse",
    .inputs = {1, 2},
    .attributes = &kSchema<PseudoInverseAttributes>,
    .infer = infer_pseudo_inverse,
    .constant_types = ConstantTypes::kAsData,
    .facts = layer_facts(solved_rows, work_of_factorization, Accuracy::kLost),
    .oracle = compute_pseudo_inverse,
    .formula =
        "a (..., m, n), [cutoff (...)]: the pseudo-inverse (..., n, m). Singular values up to cutoff times the largest count "
        "as 0",
    .source = "MXNet 1.9.1 src/operator/numpy/linalg/np_pinv-inl.h",
});

}  // namespace ops

}  // namespace shoal::worker
