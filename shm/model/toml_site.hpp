// Site: where a value of a TOML file stands. Private to the readers of keys.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

#include <toml++/toml.h>

#include "shm/base/errors.hpp"
#include "shm/model/toml_keys.hpp"

namespace shoal::internal {

/// A value of a file, and how errors name it.
struct Site {
  const std::string& where;
  const toml::node& node;
  std::string key;

  Status error(const std::string& what) const { return error_at(where, node, format("'{}' {}", key, what)); }
  Site at(const toml::node& child, const std::string& name) const { return {where, child, name}; }
  Status check_count(std::size_t count, std::size_t most = kMostEntries) const {
    return count <= most ? Status() : error(format("has {} entries; at most {} are possible", count, most));
  }
};

inline Result<std::string> read_string(const Site& site) {
  const auto text = site.node.value_exact<std::string>();
  if (!text) return site.error("must be a string in quotes");
  if (text->empty()) return site.error("must not be empty");
  return *text;
}

inline Result<std::int64_t> read_integer(const Site& site, std::int64_t low, std::int64_t high) {
  const auto number = site.node.value_exact<std::int64_t>();
  if (!number || *number < low || *number > high) {
    if (high == std::numeric_limits<std::int64_t>::max()) return site.error(format("must be a whole number, {} or more", low));
    return site.error(format("must be a whole number from {} to {}", low, high));
  }
  return *number;
}

}  // namespace shoal::internal
