// MXNet's list of arrays: the .params file.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "shoal/result.hpp"
#include "worker/graph/graph.hpp"

namespace shoal::worker {

/// One array of a file; its bytes are a view into the mapped file, at any address.
struct MxnetArray {
  std::string name;  ///< as stored: "arg:conv0_weight"
  Constant array;    ///< dtype kInvalid: a "none" array, which holds nothing
};

/// Reads a list of V2 records (MXNet 0.12 to 1.9), in the file's order. Nothing is copied, and no memory is reserved by a number
/// of the file that its size does not bear out.
///   Errors   kNotFound; kDataLoss naming file, offset and field; kUnimplemented for files of other eras (V0, V1, V3, ZIP, .npy)
///   and
///            sparse arrays, by name
///   Source   reference: the NDArray list, V2
Result<std::vector<MxnetArray>> read_mxnet_params(const std::filesystem::path& path);

}  // namespace shoal::worker
