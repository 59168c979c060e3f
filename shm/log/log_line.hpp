// One log line, an event and its fields, as text or as JSON.
#pragma once

#include <cmath>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "shm/base/format.hpp"

namespace shoal {

enum class LogFormat { kText, kJson };

/// The value for one "{}" of a pattern.
struct LogArgument {
  std::string text;
  bool is_number = false;
};
template <typename T>
LogArgument log_argument(const T& value) {
  bool is_number = std::is_arithmetic_v<T> && !std::is_same_v<T, char>;
  if constexpr (std::is_floating_point_v<T>) is_number = std::isfinite(value);
  return {format("{}", value), is_number};
}

/// kText: the pattern with its arguments. Arguments are quoted if needed, so that none can end its value or line, or start a
/// field. kJson: the members of a JSON object without its braces: "event":"worker_died","pid":7. A field that is a number stays a
/// number.
///   pattern   "event key={} key=\"{}\" key=\"words and {}\""
std::string log_line(LogFormat format, std::string_view pattern, std::span<const LogArgument> arguments);

}  // namespace shoal
