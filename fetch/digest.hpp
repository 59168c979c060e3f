// SHA-256 and HMAC, by OpenSSL.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "shoal/result.hpp"

namespace shoal::fetch {

/// Lower-case hexadecimal digits of bytes.
std::string hex(std::string_view bytes);
/// 32 bytes.
std::string sha256(std::string_view text);
/// HMAC-SHA-256: 32 bytes.
std::string hmac_sha256(std::string_view key, std::string_view text);
/// The hexadecimal SHA-256 of a file. Errors: those of open_regular_file() and read()
Result<std::string> sha256_of_file(const std::filesystem::path& file);

}  // namespace shoal::fetch
