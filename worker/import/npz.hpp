// NumPy's files, which MXNet 2 writes: an archive of .npy files, or a single .npy file.
#pragma once

#include <vector>

#include "shoal/result.hpp"
#include "worker/import/foreign_file.hpp"
#include "worker/import/named_array.hpp"

namespace shoal::worker {

/// Reads the members "<key>.npy" as arrays named <key>. Arrays in column order are transposed into new memory. A folder "<key>/"
/// with data, shape, indices, and a format that says csr or row_sparse, is a sparse array, which is checked (check_sparse()).
///   Errors  kDataLoss naming file, member, offset and field; kUnimplemented for encrypted archives; kInvalidArgument: over the
///           limits
Result<std::vector<NamedArray>> parse_npz(const ForeignFile& file, MemoryBudget& budget);

/// One array without a name.
Result<std::vector<NamedArray>> parse_single_npy(const ForeignFile& file, MemoryBudget& budget);

}  // namespace shoal::worker
