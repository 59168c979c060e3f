// NumPy's .npy files.
#pragma once

#include <filesystem>
#include <span>
#include <string_view>

#include "shoal/result.hpp"
#include "shoal/tensor.hpp"

namespace shoal {

/// An array inside the bytes of a .npy file.
///   Lifetime  `data` is valid while those bytes exist
struct NpyArray {
  DType dtype = DType::kInvalid;
  Shape shape;
  bool fortran_order = false;       ///< the first dimension changes fastest
  std::span<const std::byte> data;  ///< not aligned
};

/// Parses the bytes of a little-endian .npy file of version 1.0 or 2.0, without a copy. bfloat16 is '<V2', as ml_dtypes writes
/// it, or '<b2', as MXNet 2 writes it.
///   name    of the file or of the member of an archive, for errors
///   Errors  kDataLoss (truncated, trailing bytes, damaged header), kUnimplemented (big-endian, text and object types). Each
///           names the field and its offset
Result<NpyArray> parse_npy(std::span<const std::byte> bytes, std::string_view name);

/// Makes a row-major copy. Errors: those of Tensor::create().
Result<Tensor> to_row_major(const NpyArray& array);

/// Reads a .npy file into a row-major Tensor.
///   Errors  those of parse_npy(); kNotFound, kPermissionDenied, kInvalidArgument (not a regular file),
///           kFailedPrecondition (out of memory). They name the file
Result<Tensor> read_npy(const std::filesystem::path& path);

/// Writes version 1.0 in C order. Replaces an existing file.
///   Errors  kNotFound, kPermissionDenied, kFailedPrecondition (disk full), kInvalidArgument (no valid tensor): name it
Status write_npy(const std::filesystem::path& path, const TensorView& tensor);

}  // namespace shoal
