// CheckCsr, CheckRows, CsrToDense, RowsToDense, SparseDot, DotSparse, TakeRows, RetainRows: tensors of which only some elements,
// or some rows, are stored.
//
// A csr matrix is three tensors: `values` (n), `indptr` (rows + 1) and `indices` (n). Row r has the elements indptr[r] to
// indptr[r + 1] - 1 of `values`, and `indices` has their columns. A row_sparse tensor is two: `values` (n, ...) and the ascending
// numbers `rows` (n) of the rows that they are. All other elements are 0.
#pragma once

#include "worker/graph/operators.hpp"
#include "worker/ops/indexing.hpp"

namespace shoal::worker {

namespace ops {
extern const Operator kCheckCsr, kCheckRows, kCsrToDense, kRowsToDense, kSparseDot, kDotSparse, kTakeRows, kRetainRows;
}  // namespace ops

struct CsrAttributes {
  std::int64_t columns = 0;
};
template <>
inline constexpr auto fields_of<CsrAttributes> = std::tuple{
    field("columns", &CsrAttributes::columns, "of the matrix"),
};

struct RowsAttributes {
  std::int64_t count = 0;
};
template <>
inline constexpr auto fields_of<RowsAttributes> = std::tuple{
    field("count", &RowsAttributes::count, "the size of axis 0, with the rows that are not stored"),
};

struct SparseDotAttributes {
  std::int64_t columns = 0;
  bool transpose = false;
};
template <>
inline constexpr auto fields_of<SparseDotAttributes> = std::tuple{
    field("columns", &SparseDotAttributes::columns, "of the csr matrix"),
    field("transpose", &SparseDotAttributes::transpose, "the rows and columns of the csr matrix change places"),
};

struct TakeRowsAttributes {
  std::int64_t count = 0;
  IndexMode mode = IndexMode::kClip;
  Dims table;
};
template <>
inline constexpr auto fields_of<TakeRowsAttributes> = std::tuple{
    field("count", &TakeRowsAttributes::count, "the size of axis 0, with the rows that are not stored"),
    field("mode", &TakeRowsAttributes::mode, "an index outside becomes the nearest one, or is counted on around the axis"),
    field("table", &TakeRowsAttributes::table, "the shape that the data must have; none: any"),
};

}  // namespace shoal::worker
