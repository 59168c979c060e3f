// Small text files, read whole.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

#include "shoal/result.hpp"

namespace shoal {

inline constexpr std::size_t kLargestTextFile = 16 << 20;

/// The bytes of a regular file.
///   Errors  those of open_regular_file() and read(); kInvalidArgument (more than kLargestTextFile bytes)
Result<std::string> read_text_file(const std::filesystem::path& path);

}  // namespace shoal
