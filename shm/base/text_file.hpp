// Small files that strangers wrote, read whole.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

#include "shoal/result.hpp"

namespace shoal {

inline constexpr std::size_t kLargestTextFile = 16 << 20;

/// The bytes of a regular file. Never waits for anyone, as a pipe or a terminal would have it.
///   Errors  those of open() and read(); kInvalidArgument: no regular file, or more than kLargestTextFile bytes
Result<std::string> read_text_file(const std::filesystem::path& path);

}  // namespace shoal
