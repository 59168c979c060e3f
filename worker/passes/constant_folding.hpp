// Constant folding: nodes that read only constants run once, at load.
#pragma once

#include "shoal/result.hpp"
#include "worker/graph/graph.hpp"

namespace shoal::worker {

/// Replaces these nodes by their results. infer() must have run. A node stays if its results would be much larger than the
/// graph's constants. Otherwise a file of a few bytes could fill any memory.
Status fold_constants(Graph& graph);

}  // namespace shoal::worker
