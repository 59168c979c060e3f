// Where Shoal keeps what it can make or fetch again.
#pragma once

#include <cstdlib>
#include <filesystem>

namespace shoal {

/// $SHOAL_CACHE_DIR, else $XDG_CACHE_HOME/shoal, else $HOME/.cache/shoal; empty when none of them is set.
inline std::filesystem::path default_cache_directory() {
  const auto set = [](const char* name) {
    const char* const value = std::getenv(name);
    return std::filesystem::path(value == nullptr ? "" : value);
  };
  if (const auto given = set("SHOAL_CACHE_DIR"); !given.empty()) return given;
  // As the XDG specification says, a relative path counts as none.
  if (const auto cache = set("XDG_CACHE_HOME"); cache.is_absolute()) return cache / "shoal";
  if (const auto home = set("HOME"); home.is_absolute()) return home / ".cache" / "shoal";
  return {};
}

/// Where models are that were fetched: absolute, and without "..". Empty if there is no cache directory.
inline std::filesystem::path fetch_directory() {
  const std::filesystem::path cache = default_cache_directory();
  return cache.empty() ? cache : (std::filesystem::absolute(cache) / "fetch").lexically_normal();
}

}  // namespace shoal
