// SHA-256 and HMAC, by OpenSSL.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
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
/// The hexadecimal SHA-256 of a file. `go_on` is asked for each MiB.
///   Errors  those of open_regular_file(), read() and `go_on`
Result<std::string> sha256_of_file(const std::filesystem::path& file,
                                   const std::function<Status(std::uint64_t done_bytes, std::uint64_t total_bytes)>& go_on);

}  // namespace shoal::fetch
