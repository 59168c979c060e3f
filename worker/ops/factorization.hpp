// LqFactorization, Eigen, Inverse, Determinant: what matrices are made of.
#pragma once

#include "worker/graph/operators.hpp"

namespace shoal::worker {

namespace ops {
extern const Operator kLqFactorization, kEigen, kInverse, kDeterminant;
}  // namespace ops

struct DeterminantAttributes {
  bool as_logarithm = false;
  bool gives_scalars = false;
};
template <>
inline constexpr auto fields_of<DeterminantAttributes> = std::tuple{
    field("as_logarithm", &DeterminantAttributes::as_logarithm,
          "the first result is the sign, and the second the logarithm of the absolute value"),
    field("gives_scalars", &DeterminantAttributes::gives_scalars, "of one matrix; else that result has shape (1)"),
};

}  // namespace shoal::worker
