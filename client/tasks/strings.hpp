// Texts of options as strings.
#pragma once

#include <string>
#include <vector>

#include "shoal/options.hpp"

namespace shoal::tasks {

inline std::vector<std::string> strings_of(const List<Text>& texts) {
  std::vector<std::string> strings;
  for (const Text& text : texts) strings.push_back(text.string());
  return strings;
}

}  // namespace shoal::tasks
