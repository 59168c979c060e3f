#include "worker/import/sparse_array.hpp"

#include <cstring>
#include <utility>

#include "shm/base/errors.hpp"
#include "worker/graph/aligned_bytes.hpp"
#include "worker/ops/sparse.hpp"

namespace shoal::worker {
namespace {

using Numbers64 = std::span<const std::int64_t>;

Numbers64 numbers_of(const Constant& constant) {
  return {reinterpret_cast<const std::int64_t*>(constant.bytes.data()), constant.bytes.size() / sizeof(std::int64_t)};
}

Constant owned(DType dtype, const Shape& shape, AlignedBytes bytes) {
  const auto owner = std::make_shared<AlignedBytes>(std::move(bytes));
  return {dtype, shape, owner->bytes(), owner};
}

/// Checks one array.
class Checker {
 public:
  Checker(const ForeignFile& file, std::uint64_t offset, NamedArray& array, MemoryBudget& budget)
      : file_(file), offset_(offset), array_(array), parts_(*array.sparse), budget_(budget) {}

  Status run() { return parts_.storage == Storage::kCsr ? csr() : row_sparse(); }

 private:
  template <typename... Args>
  Status damaged(std::string_view what, Args... args) const {
    return data_loss("{}: offset {}, {} array '{}': {}", file_.name, offset_, storage_name(parts_.storage), array_.name,
                     format(what, args...));
  }

  Status csr() {
    const Shape& shape = array_.array.shape;
    if (shape.rank() != 2) return damaged("it has shape {}; a matrix has two axes", shape.to_string());
    if (shape[0] > kMaxElements || shape[1] > kMaxElements) return damaged("shape {} is too large", shape.to_string());
    if (parts_.values.shape.rank() != 1) return damaged("its values have shape {}", parts_.values.shape.to_string());
    const std::int64_t count = parts_.values.shape[0];
    if (count == 0 && parts_.indptr.shape == Shape{0}) {  // nothing was ever stored
      SHOAL_RETURN_IF_ERROR(empty_indptr(shape[0] + 1));
    } else {
      SHOAL_RETURN_IF_ERROR(widen("indptr", parts_.indptr, shape[0] + 1));
    }
    SHOAL_RETURN_IF_ERROR(widen("indices", parts_.indices, count));
    const Numbers64 indptr = numbers_of(parts_.indptr);
    if (indptr.front() != 0) return damaged("indptr begins with {}, not with 0", indptr.front());
    if (indptr.back() != count) return damaged("indptr ends with {}; there are {} values", indptr.back(), count);
    for (std::size_t i = 1; i < indptr.size(); ++i) {
      if (indptr[i] < indptr[i - 1]) return damaged("indptr[{}] is {}, less than {} before it", i, indptr[i], indptr[i - 1]);
    }
    return check_range("column", numbers_of(parts_.indices), shape[1]);
  }

  Status row_sparse() {
    const Shape &shape = array_.array.shape, &values = parts_.values.shape;
    bool fits = shape.rank() > 0 && values.rank() == shape.rank() && shape[0] <= kMaxElements;
    for (int axis = 1; fits && axis < shape.rank(); ++axis) fits = values[axis] == shape[axis];
    if (!fits) return damaged("its values have shape {}, and it has shape {}", values.to_string(), shape.to_string());
    SHOAL_RETURN_IF_ERROR(widen("indices", parts_.indices, values[0]));
    const Numbers64 rows = numbers_of(parts_.indices);
    SHOAL_RETURN_IF_ERROR(check_range("row", rows, shape[0]));
    for (std::size_t i = 1; i < rows.size(); ++i) {
      if (rows[i] <= rows[i - 1])
        return damaged("row number {} is {}; rows ascend, and the one before is {}", i, rows[i], rows[i - 1]);
    }
    return {};
  }

  Status check_range(const char* what, Numbers64 numbers, std::int64_t size) const {
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      if (numbers[i] < 0 || numbers[i] >= size)
        return damaged("{} number {} is {}; there are {} of them", what, i, numbers[i], size);
    }
    return {};
  }

  Status empty_indptr(std::int64_t count) {
    SHOAL_RETURN_IF_ERROR(budget_.take(file_, "the indices of a sparse array", static_cast<std::uint64_t>(count), sizeof count));
    AlignedBytes bytes = AlignedBytes::allocate(static_cast<std::size_t>(count) * sizeof count);
    std::memset(bytes.data.get(), 0, bytes.size_bytes);
    parts_.indptr = owned(DType::kInt64, Shape{count}, std::move(bytes));
    return {};
  }

  /// Makes the numbers int64, in memory of their own.
  Status widen(const char* what, Constant& numbers, std::int64_t count) {
    if (numbers.shape != Shape{count})
      return damaged("{} has shape {}; it needs {} elements", what, numbers.shape.to_string(), count);
    const bool is_short = numbers.dtype == DType::kInt32;
    if (!is_short && numbers.dtype != DType::kInt64) return damaged("{} is {}, not int64", what, dtype_name(numbers.dtype));
    const auto size = static_cast<std::size_t>(count);
    if (numbers.bytes.size() != size * dtype_size_bytes(numbers.dtype))
      return damaged("{} has {} bytes", what, numbers.bytes.size());
    SHOAL_RETURN_IF_ERROR(budget_.take(file_, "the indices of a sparse array", size, sizeof(std::int64_t)));
    AlignedBytes wide = AlignedBytes::allocate(size * sizeof(std::int64_t));
    auto* const to = reinterpret_cast<std::int64_t*>(wide.data.get());
    if (!is_short && size > 0) std::memcpy(to, numbers.bytes.data(), numbers.bytes.size());
    for (std::size_t i = 0; is_short && i < size; ++i) {
      std::int32_t number = 0;
      std::memcpy(&number, numbers.bytes.data() + i * sizeof number, sizeof number);
      to[i] = number;
    }
    numbers = owned(DType::kInt64, Shape{count}, std::move(wide));
    return {};
  }

  const ForeignFile& file_;
  const std::uint64_t offset_;
  NamedArray& array_;
  SparseParts& parts_;
  MemoryBudget& budget_;
};

ValueId add_constant(Graph& graph, std::string name, const Constant& constant) {
  return graph.add_value({.name = std::move(name), .dtype = constant.dtype, .shape = constant.shape, .constant = constant});
}

/// The node that makes the array dense.
Node dense_node(const std::string& name, const NamedArray& array) {
  const Shape& shape = array.array.shape;
  if (array.sparse->storage == Storage::kCsr)
    return {.op = &ops::kCsrToDense, .name = name, .attributes = CsrAttributes{shape[1]}};
  return {.op = &ops::kRowsToDense, .name = name, .attributes = RowsAttributes{shape[0]}};
}

}  // namespace

std::string_view storage_name(Storage storage) {
  return storage == Storage::kCsr ? "csr" : storage == Storage::kRowSparse ? "row_sparse" : "default";
}

Result<std::shared_ptr<SparseParts>> make_parts(const ForeignFile& file, Storage storage, MemoryBudget& budget) {
  constexpr std::uint64_t kAround = 128;  // the counts of references, and a place in a list
  SHOAL_RETURN_IF_ERROR(budget.take(file, "the parts of a sparse array", 1, sizeof(SparseParts) + kAround));
  return std::make_shared<SparseParts>(SparseParts{.storage = storage});
}

Status check_sparse(const ForeignFile& file, std::uint64_t offset, NamedArray& array, MemoryBudget& budget) {
  return Checker(file, offset, array, budget).run();
}

ValueId add_sparse(Graph& graph, const std::string& name, const NamedArray& array) {
  const SparseParts& parts = *array.sparse;
  const bool has_all_rows = parts.storage == Storage::kRowSparse && parts.values.shape == array.array.shape;
  if (has_all_rows) return add_constant(graph, name, parts.values);
  Node node = dense_node(name, array);
  node.inputs.push_back(add_constant(graph, name, parts.values));
  if (parts.storage == Storage::kCsr) node.inputs.push_back(add_constant(graph, name + ".indptr", parts.indptr));
  node.inputs.push_back(add_constant(graph, name + ".indices", parts.indices));
  const ValueId dense = graph.add_value({.name = name});
  graph.value(dense).producer = static_cast<NodeId>(graph.nodes.size());
  node.outputs.push_back(dense);
  graph.nodes.push_back(std::move(node));
  return dense;
}

Status make_dense(const ForeignFile& file, std::span<NamedArray> arrays, MemoryBudget& budget) {
  for (NamedArray& array : arrays) {
    if (!array.sparse) continue;
    Constant& dense = array.array;
    const std::int64_t count = dense.shape.element_count();
    if (count < 0)
      return invalid_argument("{}: array '{}' of shape {} is too large", file.name, array.name, dense.shape.to_string());
    SHOAL_RETURN_IF_ERROR(
        budget.take(file, "a sparse array made dense", static_cast<std::uint64_t>(count), dtype_size_bytes(dense.dtype)));
    AlignedBytes bytes = AlignedBytes::allocate(static_cast<std::size_t>(count) * dtype_size_bytes(dense.dtype));
    AlignedBytes values = AlignedBytes::allocate(array.sparse->values.bytes.size());
    std::ranges::copy(array.sparse->values.bytes, values.data.get());
    std::vector<TensorView> src{{dense.dtype, array.sparse->values.shape, values.data.get()}};
    const auto add = [&](const Constant& numbers) {
      src.push_back({numbers.dtype, numbers.shape, const_cast<std::byte*>(numbers.bytes.data())});
    };
    if (array.sparse->storage == Storage::kCsr) add(array.sparse->indptr);
    add(array.sparse->indices);
    TensorView dst{dense.dtype, dense.shape, bytes.data.get()};
    SHOAL_RETURN_IF_ERROR(run_oracle(dense_node(array.name, array), src, {&dst, 1}));
    dense = owned(dense.dtype, dense.shape, std::move(bytes));
    array.sparse.reset();
  }
  return {};
}

}  // namespace shoal::worker
