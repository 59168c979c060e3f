// JSON as text.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace shoal {

/// The value on one line. Names and paths come from users and need not be UTF-8: each wrong byte is replaced by U+FFFD, where
/// plain dump() throws.
inline std::string json_text(const nlohmann::json& value) {
  return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace shoal
