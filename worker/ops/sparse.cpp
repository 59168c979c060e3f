// CheckCsr, CheckRows, CsrToDense, RowsToDense, SparseDot, DotSparse, TakeRows, RetainRows: tensors of which only some elements,
// or some rows, are stored.
#include "worker/ops/sparse.hpp"

#include "shm/base/errors.hpp"
#include "worker/graph/shapes.hpp"
#include "worker/ops/elements.hpp"
#include "worker/ops/indexing_functions.hpp"
#include "worker/ops/sparse_functions.hpp"

namespace shoal::worker {
namespace {

using IndexTypes = Types<std::int32_t, std::int64_t>;

Status check_indices(const Node& node, const TypedValue& indices) {
  SHOAL_RETURN_IF_ERROR(check_rank(node, indices, 1, 1));
  if (indices.dtype == DType::kInt64) return {};
  return invalid_argument("{}: '{}' is {}; indices of sparse tensors are int64", describe(node), indices.name,
                          dtype_name(indices.dtype));
}

/// Those that a client sends: they are converted.
Status check_given_indices(const Node& node, const TypedValue& indices) {
  SHOAL_RETURN_IF_ERROR(check_rank(node, indices, 1, 1));
  if (indices.dtype == DType::kInt64 || indices.dtype == DType::kInt32) return {};
  return invalid_argument("{}: '{}' is {}; indices of sparse tensors are int32 or int64", describe(node), indices.name,
                          dtype_name(indices.dtype));
}

/// Values, indptr and indices, from src[first] on. Returns the shape of the matrix.
Result<SymbolicShape> csr_shape(const Node& node, SourceValues src, std::size_t first, std::int64_t columns) {
  const TypedValue &values = src[first], &indptr = src[first + 1], &indices = src[first + 2];
  SHOAL_RETURN_IF_ERROR(check_rank(node, values, 1, 1));
  SHOAL_RETURN_IF_ERROR(check_indices(node, indptr));
  SHOAL_RETURN_IF_ERROR(check_indices(node, indices));
  SHOAL_RETURN_IF_ERROR(check_shape(node, "indices", indices, values.shape));
  if (known_less(indptr.shape[0], 1))
    return invalid_argument("{}: '{}' is empty; it has one element more than there are rows", describe(node), indptr.name);
  if (columns < 0 || columns > kMaxElements) return invalid_argument("{}: {} columns are not possible", describe(node), columns);
  return SymbolicShape{indptr.shape[0] - Dim(1), Dim(columns)};
}

/// The shape of a row_sparse tensor with `count` rows.
Result<SymbolicShape> rows_shape(const Node& node, const TypedValue& values, const TypedValue& rows, std::int64_t count) {
  SHOAL_RETURN_IF_ERROR(check_rank(node, values, 1));
  SHOAL_RETURN_IF_ERROR(check_indices(node, rows));
  SHOAL_RETURN_IF_ERROR(check_shape(node, "rows", rows, SymbolicShape{values.shape[0]}));
  if (count < 0 || count > kMaxElements) return invalid_argument("{}: {} rows are not possible", describe(node), count);
  SymbolicShape shape = values.shape;
  shape[0] = count;
  return shape;
}

Status infer_check_csr(const Node& node, SourceValues src, ResultValues dst) {
  const TypedValue &values = src[0], &indptr = src[1], &indices = src[2];
  SHOAL_RETURN_IF_ERROR(check_given_indices(node, indptr));
  SHOAL_RETURN_IF_ERROR(check_given_indices(node, indices));
  SHOAL_RETURN_IF_ERROR(check_rank(node, values, 1, 1));
  SHOAL_RETURN_IF_ERROR(check_shape(node, "indices", indices, values.shape));
  if (known_less(indptr.shape[0], 1))
    return invalid_argument("{}: '{}' is empty; it has one element more than there are rows", describe(node), indptr.name);
  set_result(dst[0], DType::kInt64, indptr.shape);
  set_result(dst[1], DType::kInt64, indices.shape);
  return {};
}

Status infer_check_rows(const Node& node, SourceValues src, ResultValues dst) {
  const TypedValue &values = src[0], &rows = src[1];
  SHOAL_RETURN_IF_ERROR(check_given_indices(node, rows));
  SHOAL_RETURN_IF_ERROR(check_rank(node, values, 1));
  SHOAL_RETURN_IF_ERROR(check_shape(node, "indices", rows, SymbolicShape{values.shape[0]}));
  set_result(dst[0], DType::kInt64, rows.shape);
  return {};
}

Status infer_csr_to_dense(const Node& node, SourceValues src, ResultValues dst) {
  SHOAL_ASSIGN_OR_RETURN(const SymbolicShape shape, csr_shape(node, src, 0, node.attributes.get<CsrAttributes>().columns));
  set_result(dst[0], src[0].dtype, shape);
  return {};
}

Status infer_rows_to_dense(const Node& node, SourceValues src, ResultValues dst) {
  SHOAL_ASSIGN_OR_RETURN(const SymbolicShape shape,
                         rows_shape(node, src[0], src[1], node.attributes.get<RowsAttributes>().count));
  set_result(dst[0], src[0].dtype, shape);
  return {};
}

Status no_product(const Node& node, const SymbolicShape& a, const SymbolicShape& b) {
  return invalid_argument("{}: tensors of shapes {} and {} have no product: the sum runs over axes that differ", describe(node),
                          a.to_string(), b.to_string());
}

Status infer_sparse_dot(const Node& node, SourceValues src, ResultValues dst) {
  const auto& product = node.attributes.get<SparseDotAttributes>();
  SHOAL_ASSIGN_OR_RETURN(const SymbolicShape csr, csr_shape(node, src, 0, product.columns));
  SHOAL_RETURN_IF_ERROR(check_float(node, src[0]));
  const std::array<TypedValue, 2> both{src[0], src[3]};
  SHOAL_RETURN_IF_ERROR(check_same_dtype(node, both));
  SHOAL_RETURN_IF_ERROR(check_rank(node, src[3], 1));
  SymbolicShape b = src[3].shape;
  if (src.size() == 5) {  // how many rows there would be is not stored: those that csr asks for
    SHOAL_RETURN_IF_ERROR(check_indices(node, src[4]));
    SHOAL_RETURN_IF_ERROR(check_shape(node, "rows", src[4], SymbolicShape{b[0]}));
  } else if (known_unequal(csr[product.transpose ? 0 : 1], b[0])) {
    return no_product(node, csr, b);
  }
  b[0] = csr[product.transpose ? 1 : 0];
  set_result(dst[0], src[0].dtype, b);
  return {};
}

Status infer_dot_sparse(const Node& node, SourceValues src, ResultValues dst) {
  const auto& product = node.attributes.get<SparseDotAttributes>();
  SHOAL_ASSIGN_OR_RETURN(const SymbolicShape csr, csr_shape(node, src, 1, product.columns));
  SHOAL_RETURN_IF_ERROR(check_float(node, src[0]));
  SHOAL_RETURN_IF_ERROR(check_same_dtype(node, src.first(2)));
  SHOAL_RETURN_IF_ERROR(check_rank(node, src[0], 1));
  SymbolicShape out = src[0].shape;
  Dim& last = out[out.rank() - 1];
  if (known_unequal(last, csr[product.transpose ? 1 : 0])) return no_product(node, src[0].shape, csr);
  last = csr[product.transpose ? 0 : 1];
  set_result(dst[0], src[0].dtype, out);
  return {};
}

Status infer_take_rows(const Node& node, SourceValues src, ResultValues dst) {
  const auto& take = node.attributes.get<TakeRowsAttributes>();
  SHOAL_ASSIGN_OR_RETURN(const SymbolicShape data, rows_shape(node, src[0], src[1], take.count));
  SHOAL_RETURN_IF_ERROR(check_number(node, src[2]));
  if (!take.table.empty()) {
    const Sizes table(take.table.begin(), take.table.end());
    const TypedValue whole{src[0].name, src[0].dtype, data};
    SHOAL_RETURN_IF_ERROR(check_shape(node, "weight", whole, SymbolicShape(table)));
  }
  if (take.count < 1 && !(src[2].shape.element_count() == 0))
    return invalid_argument("{}: '{}' has no rows to take", describe(node), src[0].name);
  Sizes sizes(src[2].shape.begin(), src[2].shape.end());
  sizes.insert(sizes.end(), data.begin() + 1, data.end());
  SHOAL_ASSIGN_OR_RETURN(const SymbolicShape out, make_shape(node, sizes));
  set_result(dst[0], src[0].dtype, out);
  return {};
}

Status infer_retain_rows(const Node& node, SourceValues src, ResultValues dst) {
  SHOAL_RETURN_IF_ERROR(check_rank(node, src[0], 1));
  SHOAL_RETURN_IF_ERROR(check_rank(node, src[1], 1, 1));
  SHOAL_RETURN_IF_ERROR(check_number(node, src[1]));
  if (src.size() == 3) {
    SHOAL_RETURN_IF_ERROR(check_indices(node, src[2]));
    SHOAL_RETURN_IF_ERROR(check_shape(node, "rows", src[2], SymbolicShape{src[0].shape[0]}));
  }
  set_result(dst[0], src[0].dtype, src[0].shape);
  return {};
}

/// A message about element `place` of an input: "'x.indices'[5] is 7; " and what it must be.
template <typename... Args>
Status wrong_index(const Node& node, std::string_view part, std::int64_t place, std::int64_t is, std::string_view must,
                   Args... args) {
  return invalid_argument("{}: element {} of '{}.{}' is {}; {}", describe(node), place, node.name, part, is,
                          format(must, args...));
}

template <typename T>
Status copy_indptr(const Node& node, const T* from, std::int64_t count, std::int64_t stored, std::int64_t* to) {
  for (std::int64_t i = 0; i < count; ++i) {
    to[i] = load_once(from + i);
    const std::int64_t least = i == 0 ? 0 : to[i - 1];
    if (i == 0 && to[0] != 0) return wrong_index(node, "indptr", 0, to[0], "the first row begins at 0");
    if (to[i] < least) return wrong_index(node, "indptr", i, to[i], "rows do not end before they begin, at {}", least);
    if (to[i] > stored) return wrong_index(node, "indptr", i, to[i], "there are {} values", stored);
  }
  return {};
}

template <typename T>
Status copy_columns(const Node& node, const T* from, std::int64_t used, std::int64_t count, std::int64_t columns,
                    std::int64_t* to) {
  for (std::int64_t i = 0; i < used; ++i) {
    to[i] = load_once(from + i);
    if (to[i] < 0 || to[i] >= columns)
      return wrong_index(node, "indices", i, to[i], "the matrix has the columns 0 to {}", columns - 1);
  }
  std::fill(to + used, to + count, 0);  // what lies behind the last row is never read
  return {};
}

Status compute_check_csr(const Node& node, Sources src, Results dst) {
  const std::int64_t columns = node.attributes.get<CsrAttributes>().columns, count = src[1].shape[0], stored = src[2].shape[0];
  std::int64_t* const indptr = elements<std::int64_t>(dst[0]);
  SHOAL_RETURN_IF_ERROR(dispatch<IndexTypes>(
      node, src[1].dtype, [&]<typename T>() { return copy_indptr(node, elements<T>(src[1]), count, stored, indptr); }));
  return dispatch<IndexTypes>(node, src[2].dtype, [&]<typename T>() {
    return copy_columns(node, elements<T>(src[2]), indptr[count - 1], stored, columns, elements<std::int64_t>(dst[1]));
  });
}

Status compute_check_rows(const Node& node, Sources src, Results dst) {
  const std::int64_t most = node.attributes.get<RowsAttributes>().count;
  return dispatch<IndexTypes>(node, src[1].dtype, [&]<typename T>() {
    std::int64_t* const to = elements<std::int64_t>(dst[0]);
    std::int64_t before = -1;
    for (std::int64_t i = 0, count = src[1].element_count(); i < count; ++i) {
      to[i] = load_once(elements<T>(src[1]) + i);
      if (to[i] < 0 || to[i] >= most) return wrong_index(node, "indices", i, to[i], "the tensor has the rows 0 to {}", most - 1);
      if (to[i] <= before) return wrong_index(node, "indices", i, to[i], "rows ascend, and the one before is {}", before);
      before = to[i];
    }
    return Status();
  });
}

template <typename T>
CsrMatrix<T> csr_of(Sources src, std::size_t first, std::int64_t columns) {
  return {elements<T>(src[first]),
          elements<std::int64_t>(src[first + 1]),
          elements<std::int64_t>(src[first + 2]),
          src[first + 1].shape[0] - 1,
          columns,
          src[first].shape[0]};
}

Status compute_csr_to_dense(const Node& node, Sources src, Results dst) {
  const std::int64_t columns = node.attributes.get<CsrAttributes>().columns;
  with_word(src[0].dtype, [&]<typename Word>() {
    const CsrMatrix<Word> csr = csr_of<Word>(src, 0, columns);
    expand_csr(csr, 0, csr.rows, elements<Word>(dst[0]));
  });
  return {};
}

Status compute_rows_to_dense(const Node&, Sources src, Results dst) {
  const StoredRows rows{elements<std::int64_t>(src[1]), src[1].shape[0], dst[0].shape[0]};
  const std::size_t bytes = dst[0].size_bytes() / static_cast<std::size_t>(rows.count);
  for (std::int64_t row = 0; row < rows.count; ++row)
    copy_stored_row(src[0].data, rows.find(row), bytes, dst[0].data + static_cast<std::size_t>(row) * bytes);
  return {};
}

/// Runs add(sums), which adds up at random places, in float32 if T is a half.
template <typename T, typename Add>
void sum_into(TensorView& dst, const Add& add) {
  using C = Compute<T>;
  if constexpr (std::is_same_v<T, C>) {
    add(elements<T>(dst));
  } else {
    std::vector<C> sums(static_cast<std::size_t>(dst.element_count()));
    add(sums.data());
    std::ranges::transform(sums, elements<T>(dst), [](C sum) { return to_element<T>(sum); });
  }
}

Status compute_sparse_dot(const Node& node, Sources src, Results dst) {
  const auto& product = node.attributes.get<SparseDotAttributes>();
  const StoredRows rows = stored_rows(product, src[1].shape, src.subspan(3));
  const std::int64_t width = dst[0].element_count() / dst[0].shape[0];
  return dispatch<Floats>(node, src[0].dtype, [&]<typename T>() {
    const CsrMatrix<T> csr = csr_of<T>(src, 0, product.columns);
    if (product.transpose)
      sum_into<T>(dst[0],
                  [&](Compute<T>* sums) { multiply_csr_transposed(csr, elements<T>(src[3]), rows, width, 0, width, sums); });
    else
      multiply_csr_rows(csr, elements<T>(src[3]), rows, width, 0, csr.rows, elements<T>(dst[0]));
    return Status();
  });
}

Status compute_dot_sparse(const Node& node, Sources src, Results dst) {
  const auto& product = node.attributes.get<SparseDotAttributes>();
  return dispatch<Floats>(node, src[0].dtype, [&]<typename T>() {
    const CsrMatrix<T> csr = csr_of<T>(src, 1, product.columns);
    const std::int64_t width = product.transpose ? csr.rows : csr.columns;
    const std::int64_t lines = dst[0].element_count() / width;
    sum_into<T>(dst[0], [&](Compute<T>* sums) { multiply_by_csr(elements<T>(src[0]), csr, product.transpose, 0, lines, sums); });
    return Status();
  });
}

Status compute_take_rows(const Node& node, Sources src, Results dst) {
  const auto& take = node.attributes.get<TakeRowsAttributes>();
  const StoredRows rows{elements<std::int64_t>(src[1]), src[1].shape[0], take.count};
  const ReadPlaces read = places_reader(src[2].dtype, outside_of(take.mode));
  const std::int64_t count = src[2].element_count();
  const std::size_t bytes = dst[0].size_bytes() / static_cast<std::size_t>(count);
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t row = 0;
    read(src[2].data, i, 1, take.count, &row);
    copy_stored_row(src[0].data, rows.find(row), bytes, dst[0].data + static_cast<std::size_t>(i) * bytes);
  }
  return {};
}

Status compute_retain_rows(const Node&, Sources src, Results dst) {
  StoredRows rows{nullptr, src[0].shape[0], src[0].shape[0]};
  if (src.size() == 3) rows = {elements<std::int64_t>(src[2]), src[0].shape[0], kMaxElements};
  const ReadPlaces read = places_reader(src[1].dtype, Outside::kNowhere);
  const std::size_t bytes = dst[0].size_bytes() / static_cast<std::size_t>(rows.stored);
  std::memset(dst[0].data, 0, dst[0].size_bytes());
  for (std::int64_t i = 0, count = src[1].element_count(); i < count; ++i) {
    std::int64_t row = 0;
    read(src[1].data, i, 1, rows.count, &row);
    const std::int64_t place = row < 0 ? -1 : rows.find(row);
    if (place >= 0) copy_stored_row(src[0].data, place, bytes, dst[0].data + static_cast<std::size_t>(place) * bytes);
  }
  return {};
}

bool dot_sparse_rows(const BatchedNode& batched) { return batched.only_first_has_rows() && batched.rank() > 1; }

bool take_rows_rows(const BatchedNode& batched) {
  return batched.has_rows_in(2) && !batched.has_rows_in(0) && !batched.has_rows_in(1);
}

}  // namespace

StoredRows stored_rows(const SparseDotAttributes& product, const Shape& indptr, Sources b) {
  const std::int64_t count = product.transpose ? indptr[0] - 1 : product.columns;
  if (b.size() < 2) return {nullptr, count, count};
  return {elements<std::int64_t>(b[1]), b[1].shape[0], count};
}

namespace ops {

const Operator kCheckCsr({
    .name = "CheckCsr",
    .inputs = 3,
    .outputs = 2,
    .attributes = &kSchema<CsrAttributes>,
    .infer = infer_check_csr,
    .facts = layer_facts(rows_mixed, work_of_elements, Accuracy::kLost),
    .oracle = compute_check_csr,
    .formula =
        "values (n), indptr (rows + 1), indices (n) of a request: indptr and indices as int64, checked. indptr begins with 0 "
        "and descends nowhere, all of it is at most n, and indices lie in 0 to columns - 1; else the run is an error. Elements "
        "behind the last row count for nothing",
    .source = "MXNet 1.9.1 src/common/utils.h (CheckFormatCSRImpl)",
});

const Operator kCheckRows({
    .name = "CheckRows",
    .inputs = 2,
    .attributes = &kSchema<RowsAttributes>,
    .infer = infer_check_rows,
    .facts = layer_facts(rows_mixed, work_of_elements, Accuracy::kLost),
    .oracle = compute_check_rows,
    .formula =
        "values (n, ...), rows (n) of a request: the rows as int64. They ascend and lie in 0 to count - 1; else the run is an "
        "error",
    .source = "MXNet 1.9.1 src/common/utils.h (CheckFormatRSPImpl)",
});

const Operator kCsrToDense({
    .name = "CsrToDense",
    .inputs = 3,
    .attributes = &kSchema<CsrAttributes>,
    .infer = infer_csr_to_dense,
    .facts = layer_facts(rows_mixed, work_of_elements, Accuracy::kLost),
    .oracle = compute_csr_to_dense,
    .formula =
        "values (n), indptr (rows + 1), indices (n): the matrix (rows, columns). Of two elements at one place the last stays",
    .source = "MXNet 1.9.1 src/operator/tensor/cast_storage-inl.h",
});

const Operator kRowsToDense({
    .name = "RowsToDense",
    .inputs = 2,
    .attributes = &kSchema<RowsAttributes>,
    .infer = infer_rows_to_dense,
    .facts = layer_facts(rows_mixed, work_of_elements, Accuracy::kLost),
    .oracle = compute_rows_to_dense,
    .formula = "values (n, ...), rows (n), ascending: a tensor (count, ...) with these rows, and zeros between them",
    .source = "MXNet 1.9.1 src/operator/tensor/cast_storage-inl.h",
});

const Operator kSparseDot({
    .name = "SparseDot",
    .inputs = {4, 5},
    .attributes = &kSchema<SparseDotAttributes>,
    .infer = infer_sparse_dot,
    .constant_types = ConstantTypes::kAsData,
    .facts = layer_facts(rows_mixed, work_of_pairs, Accuracy::kLost),
    .oracle = compute_sparse_dot,
    .formula =
        "values, indptr, indices of a csr matrix, b (k, ...), and if b is row_sparse its rows: the product of matrices. What is "
        "not stored adds nothing, also where b is NaN",
    .source = "MXNet 1.9.1 src/operator/tensor/dot-inl.h",
});

const Operator kDotSparse({
    .name = "DotSparse",
    .inputs = 4,
    .attributes = &kSchema<SparseDotAttributes>,
    .infer = infer_dot_sparse,
    .constant_types = ConstantTypes::kAsData,
    .facts = layer_facts(dot_sparse_rows, work_of_pairs, Accuracy::kLost),
    .oracle = compute_dot_sparse,
    .formula = "a (..., k), values, indptr, indices of a csr matrix: the product of matrices. What is not stored adds nothing",
    .source = "MXNet 1.9.1 src/operator/tensor/dot-inl.h",
});

const Operator kTakeRows({
    .name = "TakeRows",
    .inputs = 3,
    .attributes = &kSchema<TakeRowsAttributes>,
    .infer = infer_take_rows,
    .facts = indexed_facts(take_rows_rows, 2, work_of_results, Accuracy::kLost),
    .oracle = compute_take_rows,
    .formula = "values (n, ...), rows (n), ascending, ids: the rows that the ids name, and zeros for those that are not stored. "
               "Fractions are cut off",
    .source = "MXNet 1.9.1 src/operator/tensor/indexing_op.h (SparseEmbeddingOpForwardRspImpl)",
});

const Operator kRetainRows({
    .name = "RetainRows",
    .inputs = {2, 3},
    .attributes = nullptr,
    .infer = infer_retain_rows,
    .facts = indexed_facts(rows_mixed, 1, work_of_elements, Accuracy::kLost),
    .oracle = compute_retain_rows,
    .formula = "data (n, ...), ids (m), and if data is row_sparse its rows: data with zeros in all rows that the ids do not name",
    .source = "MXNet 1.9.1 src/operator/tensor/sparse_retain-inl.h",
});

}  // namespace ops

}  // namespace shoal::worker
