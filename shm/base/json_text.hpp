// JSON as text, and back.
#pragma once

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>

namespace shoal {

/// How deeply the values of a JSON text are nested, as far as its brackets say.
inline int json_depth(std::string_view text) {
  int depth = 0, deepest = 0;
  bool is_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\\' && is_string) {
      ++i;
    } else if (c == '"') {
      is_string = !is_string;
    } else if (!is_string && (c == '[' || c == '{')) {
      deepest = std::max(deepest, ++depth);
    } else if (!is_string && (c == ']' || c == '}')) {
      --depth;
    }
  }
  return deepest;
}

/// The value of a text from another process. Throws nlohmann's exceptions, and std::runtime_error if its values are nested more
/// deeply than any of our texts needs: copying a value recurses. Takes time in proportion to the text: nlohmann's parser with a
/// callback would not.
inline nlohmann::json parse_json(std::string_view text) {
  constexpr int kDeepest = 13;
  if (json_depth(text) > kDeepest) throw std::runtime_error("its values are nested too deeply");
  return nlohmann::json::parse(text);
}

/// The value on one line. Names and paths come from users and need not be UTF-8: each wrong byte is replaced by U+FFFD, where
/// plain dump() throws.
inline std::string json_text(const nlohmann::json& value) {
  return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace shoal
