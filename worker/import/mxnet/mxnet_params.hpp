// MXNet's files of arrays: the .params file of every era.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "shoal/result.hpp"
#include "worker/graph/graph.hpp"
#include "worker/import/mxnet/foreign_file.hpp"

namespace shoal::worker {

/// One array of a file. Its bytes are a view into the file wherever they lie there in row-major order, at any address.
struct MxnetArray {
  std::string name;  ///< as stored: "arg:conv0_weight"; empty in a plain list, which has no names
  Constant array;    ///< dtype kInvalid: a "none" array, which holds nothing
};

/// Reads the arrays in the file's order. By the first word the file is a list of arrays (records of V0, V1, V2 and V3, in any
/// mixture: MXNet up to 0.10, 0.11, from 0.12, and with NumPy shapes), an archive of .npy files (MXNet 2) or a single .npy file.
/// No memory is taken by a number of the file that its size does not bear out.
///   Errors   kNotFound; kDataLoss naming file, offset and field; kUnimplemented for sparse arrays, by name, and for archives
///   that
///            are encrypted; kInvalidArgument: over the limits
///   Source   reference: the NDArray list, and npz as MXNet 2 writes it
Result<std::vector<MxnetArray>> read_mxnet_params(const std::filesystem::path& path, const ImportLimits& limits = {});
/// The same of bytes in memory, as part of an import.
Result<std::vector<MxnetArray>> parse_mxnet_params(const ForeignFile& file, MemoryBudget& budget);

}  // namespace shoal::worker
