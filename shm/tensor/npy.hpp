// NumPy's .npy files.
#pragma once

#include <filesystem>
#include <span>
#include <string_view>

#include "shoal/result.hpp"
#include "shoal/tensor.hpp"

namespace shoal {

/// An array where it lies in the bytes of a .npy file.
///   Lifetime  `data` is valid while those bytes are
struct NpyArray {
  DType dtype = DType::kInvalid;
  Shape shape;
  bool fortran_order = false;       ///< the first dimension changes fastest
  std::span<const std::byte> data;  ///< at any address
};

/// Looks at the bytes of a .npy file of version 1.0 or 2.0, little-endian; nothing is copied. bfloat16 is '<V2' as ml_dtypes
/// writes it, or '<b2' as MXNet 2 does.
///   name    of the file, or of a member of an archive: what errors name
///   Errors  kDataLoss (truncated, trailing bytes, header damaged) and kUnimplemented (big-endian, text and object types), each
///           naming the field and its offset
Result<NpyArray> parse_npy(std::span<const std::byte> bytes, std::string_view name);

/// A row-major copy. Errors: kInvalidArgument (Tensor::create).
Result<Tensor> to_row_major(const NpyArray& array);

/// Reads a .npy file into a Tensor, which is row-major always.
///   Errors  those of parse_npy; kNotFound, kPermissionDenied, kInvalidArgument (no file), naming the file
Result<Tensor> read_npy(const std::filesystem::path& path);

/// Writes version 1.0, C order. An existing file is replaced.
///   Errors  kNotFound, kPermissionDenied, kInternal (disk full), naming the file
Status write_npy(const std::filesystem::path& path, const TensorView& tensor);

}  // namespace shoal
