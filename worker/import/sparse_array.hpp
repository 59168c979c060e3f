// Sparse arrays of files: they are checked, enter a graph as they are stored, or are made dense.
#pragma once

#include <span>

#include "shoal/result.hpp"
#include "worker/import/foreign_file.hpp"
#include "worker/import/named_array.hpp"

namespace shoal::worker {

/// The parts of an array that is being read. Errors: kInvalidArgument: over the limits.
Result<std::shared_ptr<SparseParts>> make_parts(const ForeignFile& file, Storage storage, MemoryBudget& budget);

/// Checks the parts against the shape of `array`, and copies the indices: they are then int64, ascend where they must, and lie
/// within the shape. All other code relies on it. `offset`: where the array lies in the file.
///   Errors  kDataLoss naming file, offset and array, the element, and what it must be; kInvalidArgument: over the limits
Status check_sparse(const ForeignFile& file, std::uint64_t offset, NamedArray& array, MemoryBudget& budget);

/// Adds the array, which is sparse, to the graph under that name: its parts as constants, and the node that makes it dense for
/// those who need it so (worker/passes/sparse_forms.hpp). A row_sparse array with all its rows is one constant.
ValueId add_sparse(Graph& graph, const std::string& name, const NamedArray& array);

/// Makes the sparse ones of the arrays dense.
///   Errors  kInvalidArgument: over the limits
Status make_dense(const ForeignFile& file, std::span<NamedArray> arrays, MemoryBudget& budget);

}  // namespace shoal::worker
