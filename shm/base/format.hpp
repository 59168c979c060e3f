// A small "{}" formatter for error messages, so that libshoal carries no formatting library.
#pragma once

#include <sstream>
#include <string>
#include <string_view>

namespace shoal {

namespace internal {
inline void append_formatted(std::ostringstream& out, std::string_view pattern) { out << pattern; }
template <typename First, typename... Rest>
void append_formatted(std::ostringstream& out, std::string_view pattern, const First& first, const Rest&... rest) {
  const auto hole = pattern.find("{}");
  out << pattern.substr(0, hole);
  if (hole == std::string_view::npos) return;
  out << first;
  append_formatted(out, pattern.substr(hole + 2), rest...);
}
}  // namespace internal

/// `pattern` with each "{}" replaced by the next argument, written with operator<<.
template <typename... Args>
std::string format(std::string_view pattern, const Args&... args) {
  std::ostringstream out;
  internal::append_formatted(out, pattern, args...);
  return std::move(out).str();
}

}  // namespace shoal
