// What of MXNet Shoal can import, as documentation lists it.
#pragma once

#include <string>
#include <vector>

namespace shoal::worker {

/// One operator of MXNet.
struct MxnetCatalogEntry {
  std::string name;                  ///< the one that this tree prefers
  std::vector<std::string> aliases;  ///< its other names
  /// The Shoal operators that a node without attributes becomes. Empty: the output is the input.
  std::vector<std::string> becomes;
};

/// All registered operators, by name. Made by lowering a node of each kind, so it says what the importer does.
std::vector<MxnetCatalogEntry> mxnet_catalog();

}  // namespace shoal::worker
