// Choices: the algorithms that a model's programs use where its device offers several. Measured once, then recorded.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "shoal/result.hpp"

namespace shoal::worker {

/// Empty: the device's default, without a measurement.
struct Choices {
  std::string layout;                             ///< of whole regions; one of the device's names
  std::map<std::string, std::string> algorithms;  ///< by a node's tuning_key(): the implementation's name
  int preference = 0;  ///< of nodes not named above: the index of their algorithm; 0 if they have fewer

  bool empty() const { return layout.empty() && algorithms.empty(); }
  /// One line per choice: "layout WORD", then "KEY NAME". `preference` is left out: only measuring needs it.
  std::string to_text() const;
  ///   Errors  kDataLoss: names the line
  static Result<Choices> parse(std::string_view text);
};

/// The name of a node in Choices: the same for equal graphs.
std::string tuning_key(int node_index);

}  // namespace shoal::worker
