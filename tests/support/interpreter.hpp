// Runs a Graph node by node with the reference kernels, every value in memory of its own: the simplest executor there is.
#pragma once

#include "shoal/result.hpp"
#include "shoal/tensor.hpp"
#include "worker/graph/graph.hpp"

namespace shoal::testing {

/// The graph's outputs for these inputs (by name). Errors: those of inference and of the kernels.
Result<Tensors> interpret(worker::Graph graph, const Tensors& inputs);

}  // namespace shoal::testing
