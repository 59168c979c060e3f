// The simplest executor: runs a Graph node by node with the oracle kernels. Every value has its own memory.
#pragma once

#include "shoal/result.hpp"
#include "shoal/tensor.hpp"
#include "worker/graph/graph.hpp"

namespace shoal::testing {

/// Returns the graph's outputs for these inputs (by name). Errors: those of shape inference and of the kernels.
Result<Tensors> interpret(worker::Graph graph, const Tensors& inputs);

}  // namespace shoal::testing
