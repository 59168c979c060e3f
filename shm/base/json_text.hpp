// JSON as text, and back.
#pragma once

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>

namespace shoal {

/// The value of a text from another process. Throws nlohmann's exceptions, and std::runtime_error if its values are nested more
/// deeply than any of our texts needs: copying a value recurses.
inline nlohmann::json parse_json(std::string_view text) {
  constexpr int kDeepest = 12;
  return nlohmann::json::parse(text, [](int depth, nlohmann::json::parse_event_t, nlohmann::json&) {
    if (depth > kDeepest) throw std::runtime_error("its values are nested too deeply");
    return true;
  });
}

/// The value on one line. Names and paths come from users and need not be UTF-8: each wrong byte is replaced by U+FFFD, where
/// plain dump() throws.
inline std::string json_text(const nlohmann::json& value) {
  return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace shoal
