// Names in messages of importers.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "shm/base/errors.hpp"

namespace shoal::worker {

/// "a, b, c and 4 more".
template <typename Text>
std::string listed(const std::vector<Text>& names) {
  constexpr std::size_t kListedAtMost = 8;
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), kListedAtMost); ++i) text.append(i == 0 ? "" : ", ").append(names[i]);
  if (names.size() > kListedAtMost) text += format(" and {} more", names.size() - kListedAtMost);
  return text;
}

/// The error for a wanted output that is not among `names`, those of all values of the graph. It names the three that are most
/// alike. Takes time in proportion to the length of all names; long ones are compared by their first 128 bytes.
Status no_such_output(std::string_view wanted, const std::vector<std::string>& names);

}  // namespace shoal::worker
