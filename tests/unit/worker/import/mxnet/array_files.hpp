// Files of arrays made byte by byte, as the releases of MXNet and NumPy write them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace shoal::test {

/// The bytes of a number, little-endian.
template <typename T>
std::string raw(T value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
}

/// `bytes` with `value` written over them at `offset`.
template <typename T>
std::string with(std::string bytes, std::size_t offset, T value) {
  return bytes.replace(offset, sizeof(T), raw(value));
}

enum class Era { kV0, kV1, kV2, kV3 };

/// One dense record. `flag`: MXNet's number of the type.
std::string record(Era era, const std::vector<std::int64_t>& dims, std::int32_t flag, const std::string& data);
/// A sparse V2 record of float32: row_sparse (storage 1), whose rows `places` are stored, or csr (2), whose `places` are columns.
std::string sparse_record(std::int32_t storage, std::int64_t rows, std::int64_t columns,
                          const std::vector<std::int64_t>& pointers, const std::vector<std::int64_t>& places,
                          const std::string& data);
/// One that leaves out the zeros of a matrix.
std::string sparse_record(std::int32_t storage, std::int64_t rows, std::int64_t columns, std::span<const float> elements);
/// One of 5x2: row_sparse (storage 1) with one stored row, or csr (2) with one stored value.
std::string sparse_record(std::int32_t storage);
/// The list of these records; names empty: a plain list.
std::string list(const std::vector<std::string>& records, const std::vector<std::string>& names);
/// Float32 numbers 0, 1, 2 ...
std::string floats(std::size_t count);

/// A .npy file of version 1.0. `order`: "True" for Fortran's.
std::string npy(const std::string& descr, const std::string& order, const std::string& shape, const std::string& data);

/// A member of an archive, and how to write it.
struct Member {
  std::string name, contents;
  bool deflated = false;
  bool streamed = false;  ///< sizes and CRC behind the data, as MXNet 2 writes; zero in the local header
  bool zip64 = false;     ///< sizes and offset in the extra fields
};
struct Archive {
  std::string bytes;
  std::uint64_t directory = 0;  ///< offset of the central directory
  std::uint64_t end = 0;        ///< offset of its end record
};
/// zip64: the end record says that its numbers stand in a Zip64 one.
Archive archive(const std::vector<Member>& members, bool zip64 = false);

}  // namespace shoal::test
