// Constant folding: nodes that read only constants run once, at load.
#pragma once

#include "shoal/result.hpp"
#include "worker/graph/graph.hpp"

namespace shoal::worker {

/// Replaces them by their results. The graph's shapes are inferred; those nodes' do not depend on its inputs.
Status fold_constants(Graph& graph);

}  // namespace shoal::worker
