// The MXNet operators that Shoal can import, as the documentation lists them.
#pragma once

#include <vector>

#include "worker/import/importer.hpp"

namespace shoal::worker {

/// All registered operators, by name. `becomes` is found by lowering a node of each kind.
std::vector<ForeignOperator> mxnet_catalog();

}  // namespace shoal::worker
