// The array files of MXNet 2: an archive of .npy files, or one of them alone.
#pragma once

#include <vector>

#include "worker/import/mxnet/mxnet_params.hpp"

namespace shoal::worker {

/// Members "<key>.npy", each an array named <key>; arrays in column order are transposed into memory of their own.
///   Errors  as parse_mxnet_params()
Result<std::vector<MxnetArray>> parse_npz(const ForeignFile& file, MemoryBudget& budget);

/// One array without a name.
Result<std::vector<MxnetArray>> parse_single_npy(const ForeignFile& file, MemoryBudget& budget);

}  // namespace shoal::worker
