#include "worker/exec/choices.hpp"

#include <algorithm>

#include "shm/base/errors.hpp"

namespace shoal::worker {

std::string Choices::to_text() const {
  std::string text;
  if (!layout.empty()) text += format("layout {}\n", layout);
  for (const auto& [key, name] : algorithms) text += format("{} {}\n", key, name);
  return text;
}

Result<Choices> Choices::parse(std::string_view text) {
  Choices choices;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const std::size_t space = line.find(' ');
    if (space == 0 || space == std::string_view::npos || space + 1 == line.size())
      return data_loss("a choice of algorithms wants 'KEY NAME', not '{}'", line);
    std::string key(line.substr(0, space)), name(line.substr(space + 1));
    if (key == "layout")
      choices.layout = std::move(name);
    else
      choices.algorithms.insert_or_assign(std::move(key), std::move(name));
  }
  return choices;
}

std::string tuning_key(int node_index) { return format("n{}", node_index); }

}  // namespace shoal::worker
