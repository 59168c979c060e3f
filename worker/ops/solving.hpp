// Cholesky, Solve, TensorInverse, TensorSolve, SingularValues, PseudoInverse: linear equations and what is needed for them.
#pragma once

#include "worker/graph/operators.hpp"

namespace shoal::worker {

namespace ops {
extern const Operator kCholesky, kSolve, kTensorInverse, kTensorSolve, kSingularValues, kPseudoInverse;
}  // namespace ops

struct TensorInverseAttributes {
  std::int64_t split = 2;
};
template <>
inline constexpr auto fields_of<TensorInverseAttributes> = std::tuple{
    field("split", &TensorInverseAttributes::split, "how many of the first axes are the rows of the matrix"),
};

struct TensorSolveAttributes {
  Dims axes;
};
template <>
inline constexpr auto fields_of<TensorSolveAttributes> = std::tuple{
    field("axes", &TensorSolveAttributes::axes, "those of a that move behind the others before the equations are read"),
};

struct PseudoInverseAttributes {
  double cutoff = 1e-15;
};
template <>
inline constexpr auto fields_of<PseudoInverseAttributes> = std::tuple{
    field("cutoff", &PseudoInverseAttributes::cutoff, "without a second input: as that"),
};

}  // namespace shoal::worker
