// Regular files that users name.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>

#include "shm/base/unique_fd.hpp"
#include "shoal/result.hpp"

namespace shoal {

struct RegularFile {
  UniqueFd fd;
  std::size_t size_bytes = 0;  ///< at the time of opening
};

/// Opens a file for reading. Never blocks, as opening a pipe would.
///   Errors  those of open(); kInvalidArgument (not a regular file). Both name the path.
Result<RegularFile> open_regular_file(const std::filesystem::path& path);

/// Reads until `room` is full or the file ends. Returns the number of bytes read.
///   name    what errors name
///   Errors  those of read()
Result<std::size_t> read_fully(int fd, std::span<std::byte> room, std::string_view name);
/// Writes all of `bytes`. Errors: those of write(), which name `name`
Status write_fully(int fd, std::span<const std::byte> bytes, std::string_view name);

}  // namespace shoal
