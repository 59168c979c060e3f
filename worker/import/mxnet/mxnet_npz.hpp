// The array files of MXNet 2: an archive of .npy files, or a single .npy file.
#pragma once

#include <vector>

#include "worker/import/mxnet/mxnet_params.hpp"

namespace shoal::worker {

/// Reads the members "<key>.npy" as arrays named <key>. Arrays in column order are transposed into new memory.
///   Errors  as parse_mxnet_params()
Result<std::vector<MxnetArray>> parse_npz(const ForeignFile& file, MemoryBudget& budget);

/// One array without a name.
Result<std::vector<MxnetArray>> parse_single_npy(const ForeignFile& file, MemoryBudget& budget);

}  // namespace shoal::worker
