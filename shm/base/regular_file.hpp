// Files that strangers put where we read.
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
  std::size_t size_bytes = 0;  ///< when it was opened
};

/// Opened for reading. Never waits for anyone, as a pipe or a terminal would have it.
///   Errors  those of open(); kInvalidArgument: no regular file. Both name it.
Result<RegularFile> open_regular_file(const std::filesystem::path& path);

/// Reads until the room is full or the file ends; how many bytes there were.
///   name    for the error
///   Errors  those of read()
Result<std::size_t> read_fully(int fd, std::span<std::byte> room, std::string_view name);

}  // namespace shoal
