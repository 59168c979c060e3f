// Choices: which algorithms a model's programs use where its device leaves a choice; measured once, then recorded.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "shoal/result.hpp"

namespace shoal::worker {

/// Empty: what the device thinks best without having measured.
struct Choices {
  std::string layout;                             ///< of whole regions, in the device's words
  std::map<std::string, std::string> algorithms;  ///< by a node's tuning_key(): the implementation's name
  int preference = 0;  ///< of nodes not named above: their so-many-th algorithm, the first if there are fewer

  bool empty() const { return layout.empty() && algorithms.empty(); }
  /// One line per choice: "layout WORD", then "KEY NAME". Without `preference`, which only measuring needs.
  std::string to_text() const;
  ///   Errors  kDataLoss: the line
  static Result<Choices> parse(std::string_view text);
};

/// How Choices name a node: the same for equal graphs.
std::string tuning_key(int node_index);

}  // namespace shoal::worker
