// Constant folding: nodes that read only constants run once, at load.
#pragma once

#include "shoal/result.hpp"
#include "worker/graph/graph.hpp"

namespace shoal::worker {

/// Replaces them by their results. The graph's shapes are inferred; those nodes' do not depend on its inputs. A node whose
/// results would be large beside the graph's constants stays: a few bytes may be made to fill any memory.
Status fold_constants(Graph& graph);

}  // namespace shoal::worker
