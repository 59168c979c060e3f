// MXNet's files of arrays: the .params file of every era.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "shoal/result.hpp"
#include "worker/import/foreign_file.hpp"
#include "worker/import/named_array.hpp"

namespace shoal::worker {

/// Reads the arrays in the file's order. The first word of the file tells its format: a list of arrays, an archive of .npy files
/// (MXNet 2), or a single .npy file. The records of a list may be V0 (MXNet up to 0.10), V1 (0.11), V2 (from 0.12) and V3 (with
/// NumPy shapes), also mixed. Every number of the file is compared with the file's size before memory is allocated for it.
/// Sparse arrays have been checked (check_sparse()).
///   Errors   kNotFound; kDataLoss naming file, offset and field, or of a sparse array its name and element; kUnimplemented for
///            encrypted archives; kInvalidArgument: over the limits
///   Source   reference: the NDArray list, and npz as MXNet 2 writes it
Result<std::vector<NamedArray>> read_mxnet_params(const std::filesystem::path& path, const ImportLimits& limits = {});
/// As above, from bytes in memory and within the budget of an import.
Result<std::vector<NamedArray>> parse_mxnet_params(const ForeignFile& file, MemoryBudget& budget);

}  // namespace shoal::worker
