// The one limit of fetching that two processes know: the fetcher keeps it, and the daemon ends a fetcher that does not.
#pragma once

#include <charconv>
#include <cstdlib>
#include <string_view>

#include "shm/base/errors.hpp"

namespace shoal {

inline constexpr int kDefaultFetchS = 3600, kLongestFetchS = 7 * 24 * 3600;

/// The whole number in an environment variable, or `otherwise` if it is not set.
///   Errors  kInvalidArgument: no number from `least` to `most`
inline Result<int> number_variable(const char* name, int otherwise, int least, int most) {
  const char* const value = std::getenv(name);
  if (value == nullptr || *value == '\0') return otherwise;
  const std::string_view text = value;
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc() && end == text.data() + text.size() && number >= least && number <= most) return number;
  return invalid_argument("{} is '{}': it must be a whole number from {} to {}", name, text, least, most);
}

/// $SHOAL_FETCH_TIMEOUT_S: how long one fetch may take.
inline Result<int> fetch_timeout_s() { return number_variable("SHOAL_FETCH_TIMEOUT_S", kDefaultFetchS, 1, kLongestFetchS); }

}  // namespace shoal
