// NumPy's .npy files.
#pragma once

#include <filesystem>

#include "shoal/result.hpp"
#include "shoal/tensor.hpp"

namespace shoal {

/// Reads a .npy file of version 1.0 or 2.0, C or Fortran order (the Tensor is row-major always), little-endian.
/// '<V2' is read as bfloat16, as ml_dtypes writes it.
///   Errors  kNotFound, kPermissionDenied; kDataLoss (truncated, trailing bytes, header damaged) and kUnimplemented (big-endian,
///           text and object types), each naming the file and the field
Result<Tensor> read_npy(const std::filesystem::path& path);

/// Writes version 1.0, C order. An existing file is replaced.
///   Errors  kNotFound, kPermissionDenied, kInternal (disk full), naming the file
Status write_npy(const std::filesystem::path& path, const TensorView& tensor);

}  // namespace shoal
