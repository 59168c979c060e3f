// A small "{}" formatter for error messages, so that libshoal carries no formatting library.
#pragma once

#include <locale>
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

/// `pattern` with each "{}" replaced by the next argument, written with operator<< in the classic locale, whatever the
/// application's locale is. Throws std::bad_alloc; a text is never cut.
template <typename... Args>
std::string format(std::string_view pattern, const Args&... args) {
  std::ostringstream out;
  out.imbue(std::locale::classic());
  out.exceptions(std::ios_base::badbit);  // otherwise a stream keeps std::bad_alloc for itself
  internal::append_formatted(out, pattern, args...);
  return std::move(out).str();
}

}  // namespace shoal
