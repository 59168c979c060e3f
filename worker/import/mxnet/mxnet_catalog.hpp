// The MXNet operators that Shoal can import, as the documentation lists them.
#pragma once

#include <string>
#include <vector>

namespace shoal::worker {

/// One operator of MXNet.
struct MxnetCatalogEntry {
  std::string name;                  ///< the first of its names
  std::vector<std::string> aliases;  ///< its other names
  /// The Shoal operators that a node without attributes becomes. Empty: the output is the input.
  std::vector<std::string> becomes;
};

/// All registered operators, by name. `becomes` is found by lowering a node of each kind.
std::vector<MxnetCatalogEntry> mxnet_catalog();

}  // namespace shoal::worker
